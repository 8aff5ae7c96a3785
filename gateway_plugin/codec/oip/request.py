"""Reads an inference request of the Open Inference Protocol: JSON, and the bytes of tensors that may follow it.

What does not depend on the model is checked here; :mod:`gateway_plugin.codec.oip.inputs` makes the tensors. Format:
the protocol's ``required_api.md`` and Triton's binary tensor data extension.
"""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from gateway_plugin.codec.fitting import misfit
from gateway_plugin.codec.oip.datatypes import BINARY_ONLY, DATATYPES
from signalbox.front.jsonbody import Bounds, kind_of, parse
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.program.words import counted
from signalbox.wire.tensors import MAX_RANK

MOST_TENSORS: Final = 1_024
"""Inputs, and outputs asked for, of one request."""
LONGEST_NAME: Final = 1_024
REQUEST: Final = "the request"
"""What the parameters of a request are of, in errors."""
_SHOWN: Final = 120
_LEAST_JUDGED: Final = 4096
"""Bytes of JSON up to which it costs less to look at the data than to find out that this is not needed."""
_LARGEST: Final = 2**63
HEADER: Final = "Inference-Header-Content-Length"
_SIZE: Final = "binary_data_size"
_FIELDS: Final = ("id", "parameters", "outputs")
_SHARED_MEMORY: Final = "shared_memory_region"


class GivenTensor(NamedTuple):
    """An input as it was sent. data: its JSON; None where ``binary`` has its bytes."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: list[Any] | None
    binary: memoryview | None


class InferBody(NamedTuple):
    """A request that was read.

    fields: those beside the inputs. inputs: None in raw mode, where ``raw`` is the one input's bytes. is_plain: it is
    known that no input's JSON holds a string, ``true`` or ``false``.
    """

    fields: Mapping[str, Any]
    inputs: tuple[GivenTensor, ...] | None
    is_plain: bool = False
    raw: bytes = b""


def read(body: bytes, bounds: Bounds, header_bytes: int | None) -> InferBody:
    """A request whose first ``header_bytes`` are JSON (None: all of it; 0: none, the body is one tensor).

    Raises as :func:`signalbox.front.jsonbody.parse`, and :class:`InvalidRequest` and :class:`InvalidInput`.
    """
    if header_bytes == 0:
        return InferBody({}, None, raw=body)
    if header_bytes is not None and header_bytes > len(body):
        raise InvalidRequest(f"{HEADER} is {header_bytes}, and the body has only {counted(len(body), 'byte')}.")
    text = body if header_bytes is None else body[:header_bytes]
    try:
        doc = parse(text, bounds).doc
    except (InvalidRequest, TooLarge) as error:
        if header_bytes is None and (b"\0" in body or b'"%b"' % _SIZE.encode() in body):
            raise _headless() from error
        raise
    parameters_of(doc, REQUEST)
    rest = memoryview(body)[len(text) :]
    given = []
    for index, value in enumerate(_list(doc, "inputs")):
        one, size = _input(value, f'"inputs"[{index}]')
        if size is not None:
            if size and header_bytes is None:
                raise _headless()
            if size > len(rest):
                raise misfit(one.name, f"{counted(size, 'byte')} (its binary_data_size) after the JSON", str(len(rest)))
            one, rest = one._replace(binary=rest[:size]), rest[size:]
        given.append(one)
    if rest:
        raise InvalidRequest(
            f"{counted(len(rest), 'byte follows', 'bytes follow')} those of the last input that has a binary_data_size."
        )
    _require_distinct(given)
    is_plain = len(text) > _LEAST_JUDGED and _is_plain(text, doc)
    return InferBody({name: doc[name] for name in _FIELDS if name in doc}, tuple(given), is_plain)


def _headless() -> InvalidRequest:
    return InvalidRequest(
        f"The body has bytes of tensors, and the request no header {HEADER}: send it, with the number of bytes of the "
        "JSON before them (0 where there is none).",
        header=HEADER,
    )


def parameters_of(value: Mapping[str, Any], where: str) -> Mapping[str, Any]:
    """The parameters of a request, an input or an output. Raises :class:`InvalidRequest`."""
    found = value.get("parameters")
    if found is None:
        return {}
    if type(found) is not dict:
        raise InvalidRequest(f'"parameters" of {where} must be an object, not {kind_of(found)}.')
    if _SHARED_MEMORY in found:
        raise InvalidRequest(
            f"{where[:1].upper()}{where[1:]} is to lie in shared memory: callers share none with a GPU host. Send its "
            "bytes after the JSON (binary_data_size)."
        )
    return found


def name_of(value: Any, where: str) -> str:
    """The name of an input or output. Raises :class:`InvalidRequest`."""
    if type(value) is not dict:
        raise InvalidRequest(f"{where} must be an object, not {kind_of(value)}.")
    name = value.get("name")
    if type(name) is not str or not 0 < len(name) <= LONGEST_NAME:
        raise InvalidRequest(f'{where} must have a "name", a string of 1 to {LONGEST_NAME} characters.')
    return name


def _list(doc: Mapping[str, Any], field: str) -> list[Any]:
    found = doc.get(field)
    if type(found) is not list:
        raise InvalidRequest(
            f'The body must have a list of "{field}": {{"inputs": [{{"name": "x", "shape": [2], "datatype": "FP32", '
            '"data": [1.0, 2.0]}]}.',
            field=field,
        )
    if len(found) > MOST_TENSORS:
        raise InvalidRequest(f'"{field}" has {len(found)} entries; at most {MOST_TENSORS} are taken.', field=field)
    return found


def _input(value: Any, where: str) -> tuple[GivenTensor, int | None]:
    """An input, and the size of its bytes after the JSON if it has some."""
    name = name_of(value, where)
    shown = f'input "{name[:_SHOWN]}"'
    datatype = value.get("datatype")
    dtype = DATATYPES.get(datatype) if type(datatype) is str else None
    if dtype is None:
        got = f'"{datatype[:_SHOWN]}"' if type(datatype) is str else kind_of(datatype)
        raise misfit(name, f"a datatype ({', '.join(DATATYPES)})", got)
    shape = _shape(name, value.get("shape"))
    size = parameters_of(value, shown).get(_SIZE)
    data = value.get("data")
    if size is not None:
        if type(size) is not int or not 0 <= size < _LARGEST:
            raise misfit(name, "a whole number of bytes in binary_data_size", kind_of(size))
        if data is not None:
            raise InvalidInput(f'I{shown[1:]} has both "data" and a binary_data_size; send one of them.', input=name)
        return GivenTensor(name, dtype, shape, None, None), size
    if dtype in BINARY_ONLY:
        raise InvalidInput(
            f"I{shown[1:]}: {datatype} has no JSON; send its bytes after the JSON (binary_data_size).",
            input=name[:_SHOWN],
        )
    if type(data) is not list:
        raise misfit(name, 'a list in "data"', kind_of(data))
    return GivenTensor(name, dtype, shape, data, None), None


def _shape(name: str, value: Any) -> tuple[int, ...]:
    if type(value) is not list:
        raise misfit(name, 'a list in "shape"', kind_of(value))
    if len(value) > MAX_RANK:
        raise misfit(name, f"at most {MAX_RANK} dimensions", str(len(value)))
    for size in value:
        if type(size) is not int or not 0 <= size < _LARGEST:
            raise misfit(name, "whole numbers of at least 0 in its shape", kind_of(size))
    return tuple(value)


def _require_distinct(given: list[GivenTensor]) -> None:
    seen: set[str] = set()
    for one in given:
        if one.name in seen:
            raise InvalidInput(f'Input "{one.name[:_SHOWN]}" is given twice.', input=one.name[:_SHOWN])
        seen.add(one.name)


def _is_plain(text: bytes, doc: Mapping[str, Any]) -> bool:
    """Whether the data of all inputs is plain, judged by marks in the text: what is beside the data accounts for each
    quotation mark, and for each letter of ``true`` and ``false`` that no number has."""
    inputs = [{field: None if field == "data" else value for field, value in one.items()} for one in doc["inputs"]]
    texts: list[str] = []
    booleans: list[bool] = []
    level: list[Any] = [{**doc, "inputs": inputs}]
    while level:
        inner: list[Any] = []
        for value in level:
            if type(value) is dict:
                texts += value
                inner += value.values()
            else:
                inner += value
        texts += [value for value in inner if type(value) is str]
        booleans += [value for value in inner if type(value) is bool]
        level = [value for value in inner if type(value) is dict or type(value) is list]
    beside = "".join(texts)
    return (
        b"\\" not in text
        and _occurs(b'"', text, 2 * len(texts))
        and _occurs(b"t", text, beside.count("t") + booleans.count(True))
        and _occurs(b"s", text, beside.count("s") + booleans.count(False))
    )


def _occurs(mark: bytes, text: bytes, times: int) -> bool:
    """Whether a byte occurs just so often. To find a rare byte takes a tenth of the time that counting takes."""
    at = -1
    for _ in range(times):
        at = text.find(mark, at + 1)
        if at < 0:
            return False
    return text.find(mark, at + 1) < 0
