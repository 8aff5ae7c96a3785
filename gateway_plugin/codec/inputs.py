"""JSON bodies to named tensors, checked against a signature: TF Serving's row and columnar forms.

A body is parsed by :mod:`signalbox.front.jsonbody`. A :class:`Plan` is a signature made ready; :func:`decode`
turns the parsed body into tensors in the order of the signature, or raises :class:`InvalidInput` naming
input, expected and got. Names and dtypes are checked, and that lists make a tensor at all; whether its shape
suits the model is TensorFlow's to judge, as in TF Serving. The way back is :mod:`gateway_plugin.codec.outputs`. The
format is that of TF Serving's REST API (docs/api.md).
"""

import base64
import binascii
import heapq
import struct
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from typing import Any, Final, NoReturn, TypeVar

import msgspec
import numpy as np

from gateway_plugin.codec.regular import leading, leading_rows
from signalbox.front.jsonbody import MAX_DEPTH, Body, kind_of
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.wire.messages import Signature, TensorSpec
from signalbox.wire.tensors import ITEM_SIZE, MAX_HOLLOW, Tensor, hollow

DEFAULT_SIGNATURE: Final = "serving_default"
ROW: Final = "row"
COLUMNAR: Final = "columnar"
SERVING_WORDS: Final = ("instances", "inputs")
OUR_WORDS: Final = (*SERVING_WORDS, "input")

NUMPY: Final[dict[str, np.dtype[Any]]] = {
    name: np.dtype(name).newbyteorder("<") for name in ITEM_SIZE if name != "bfloat16"
}
"""How numpy holds a tensor of a dtype; it has no bfloat16."""
_INTEGERS: Final = frozenset(n for n in ITEM_SIZE if n.startswith(("int", "uint")))
_COMPLEX: Final = {"complex64": "float32", "complex128": "float64"}
_PACK: Final = {
    "float16": "e",
    "float32": "f",
    "float64": "d",
    "int8": "b",
    "int16": "h",
    "int32": "i",
    "int64": "q",
    "uint8": "B",
    "uint16": "H",
    "uint32": "I",
    "uint64": "Q",
}
_MOST_SHOWN: Final = 16
_LONGEST_NAME: Final = 120
_TOP: Final = "the top"
_BOOL: Final = frozenset({bool})
_INT: Final = frozenset({int})
_FLOAT: Final = frozenset({int, float})
E = TypeVar("E")


class Decoded(msgspec.Struct, frozen=True):
    """A request's inputs.

    style: how its answer is rendered. rows: size of dimension 0, 1 for one that runs alone.
    batch_key: requests with equal keys may run as one batch along dimension 0; empty = alone.
    """

    tensors: list[Tensor]
    signature: str
    style: str
    rows: int
    batch_key: str


class Input:
    """One input of a signature, ready to be filled. rank: as the signature says it, None = any."""

    def __init__(self, name: str, spec: TensorSpec) -> None:
        self.name = name
        self.dtype = spec.dtype
        self.rank = None if spec.shape is None else len(spec.shape)
        self._code = _PACK.get(spec.dtype, "")
        self.build: Callable[[Any, bool], Tensor] = self._pick()

    def _pick(self) -> Callable[[Any, bool], Tensor]:
        if self.dtype == "string":
            return self._strings
        if self.dtype in _COMPLEX:
            return self._complex
        if self.dtype in ITEM_SIZE:
            return self._numbers
        return self._unsupported

    def _unsupported(self, value: Any, is_plain: bool) -> Tensor:
        raise InvalidInput(f'Input "{self.name}": {self.dtype} cannot be sent as JSON.', input=self.name)

    def _numbers(self, value: Any, is_plain: bool) -> Tensor:
        self._require_kinds(value, self.dtype, is_plain)
        packed = self._packed(value) if type(value) is list and self._code else None
        if packed is not None:
            return packed
        array = self._array(value, self.dtype)
        data = _bfloat16(array) if self.dtype == "bfloat16" else array.tobytes()
        return Tensor(self.name, self.dtype, array.shape, data)

    def _packed(self, value: list[Any]) -> Tensor | None:
        """A list of numbers, or of such lists, without an array, which costs three times as much.

        None for what is nested otherwise, or wrong: the array tells.
        """
        is_nested = bool(value) and type(value[0]) is list
        rows = value if is_nested else [value]
        width = len(rows[0])
        pack = struct.Struct(f"<{width}{self._code}").pack
        try:
            data = b"".join([pack(*row) for row in rows])
        except (struct.error, OverflowError, TypeError):
            return None
        return Tensor(self.name, self.dtype, (len(rows), width) if is_nested else (width,), data)

    def _complex(self, value: Any, is_plain: bool) -> Tensor:
        """A complex number is a pair ``[real, imaginary]``; TF Serving has no form for it."""
        self._require_kinds(value, _COMPLEX[self.dtype], is_plain)
        array = self._array(value, _COMPLEX[self.dtype])
        if array.ndim == 0 or array.shape[-1] != 2:
            self._refuse("pairs [real, imaginary]", f"shape {list(array.shape)}")
        return Tensor(self.name, self.dtype, array.shape[:-1], array.tobytes())

    def _require_kinds(self, value: Any, dtype: str, is_plain: bool) -> None:
        """Refuse a boolean among numbers, which numpy takes for one, and a string before numpy sees it.

        One string makes numpy turn all its neighbours into strings, each as wide as the longest.
        """
        if is_plain and type(value) is list:
            return
        if not _kinds(value) <= _kinds_of(dtype):
            self._explain(value, dtype)

    def _array(self, value: Any, dtype: str) -> np.ndarray[Any, Any]:
        """``value`` as a little-endian array of ``dtype`` (bfloat16: still as float32)."""
        target = NUMPY.get(dtype, NUMPY["float32"])
        try:
            raw = np.array(value)
        except ValueError:  # ragged, or deeper than arrays go
            self._explain(value, dtype)
            self._refuse(f"{dtype} in at most {MAX_DEPTH} dimensions", "lists that do not fit")
        kind = raw.dtype.kind
        if raw.ndim > MAX_DEPTH:
            self._refuse(f"at most {MAX_DEPTH} dimensions", str(raw.ndim))
        if raw.size == 0:
            return raw.astype(target)
        if dtype == "bool":
            if kind != "b":
                self._explain(value, dtype)
            return raw
        if kind not in "iuf":
            self._explain(value, dtype)
        if dtype in _INTEGERS:
            return self._integers(value, raw, dtype, target)
        if kind == "O":  # whole numbers of more than 64 bits
            raw = np.array([float(n) for n in raw.flat]).reshape(np.shape(value))
        with np.errstate(over="ignore"):  # too large a number becomes infinite, as in TensorFlow Serving
            return raw.astype(target)

    def _integers(
        self, value: Any, raw: np.ndarray[Any, Any], dtype: str, target: np.dtype[Any]
    ) -> np.ndarray[Any, Any]:
        if raw.dtype.kind == "f":
            # Either a decimal, or whole numbers on both sides of 2**63, which numpy makes floats.
            self._explain(value, dtype)
            raw = np.array(value, dtype=object)
        limits = np.iinfo(target)
        low, high = int(raw.min()), int(raw.max())
        if low < limits.min or high > limits.max:
            bad = low if low < limits.min else high
            self._refuse(f"{dtype} ({limits.min} to {limits.max})", str(bad))
        return raw.astype(target)

    def _strings(self, value: Any, is_plain: bool) -> Tensor:
        shape = self._shape(value)
        flat: list[bytes] = []
        self._walk(value, shape, "", self._bytes_of, flat)
        data = b"".join(part for item in flat for part in (struct.pack("<I", len(item)), item))
        return Tensor(self.name, "string", shape, data)

    def _shape(self, value: Any) -> tuple[int, ...]:
        shape: list[int] = []
        while type(value) is list:
            if len(shape) == MAX_DEPTH:
                self._refuse(f"at most {MAX_DEPTH} dimensions", "more")
            shape.append(len(value))
            if not value:
                break
            value = value[0]
        return tuple(shape)

    def _bytes_of(self, value: Any, path: str) -> bytes:
        where = path or _TOP
        try:
            if type(value) is str:
                return value.encode()
            if is_base64(value):
                return bytes_of(value["b64"])
        except UnicodeEncodeError:
            self._refuse("string", f"a lone surrogate at {where}")
        except ValueError:
            self._refuse("valid base64 in b64", f"something else at {where}")
        return self._refuse("string", f"{kind_of(value)} at {where}")

    def _explain(self, value: Any, dtype: str) -> None:
        """Raise for the first element that does not fit ``dtype``; return if all do."""
        fitting, shape, good = _kinds_of(dtype), self._shape(value), 0

        def check(value: Any, path: str) -> None:
            if type(value) not in fitting:
                self._refuse(dtype, f"{kind_of(value)} at {path or _TOP}")

        if shape:
            good, elements, size = leading_rows(value, shape[1:])
            good = min(good, leading(elements, fitting) // size) if size else good
        self._walk(value, shape, "", check, [], good)

    def _walk(
        self,
        value: Any,
        shape: tuple[int, ...],
        path: str,
        take: Callable[[Any, str], E],
        taken: list[E],
        start: int = 0,
    ) -> None:
        """Add what ``take`` returns of each element to ``taken``, from item ``start`` on.

        Raises for lists that do not have this shape.
        """
        if not shape:
            taken.append(take(value, path))
            return
        if type(value) is not list:
            self._refuse(f"a list of {shape[0]}", f"{kind_of(value)} at {path or _TOP}")
        if len(value) != shape[0]:
            self._refuse(f"a list of {shape[0]}", f"a list of {len(value)} at {path or _TOP}")
        inner = shape[1:]
        for index in range(start, len(value)):
            self._walk(value[index], inner, f"{path}[{index}]", take, taken)

    def _refuse(self, expected: str, got: str) -> NoReturn:
        raise InvalidInput(
            f'Input "{self.name}": expected {expected}, got {got}.', input=self.name, expected=expected, got=got
        )


class Plan:
    """One signature made ready for decoding.

    is_batchable: every input and output has a free dimension 0, so requests can share a run.
    """

    def __init__(self, name: str, signature: Signature, *, batch_prefix: str = "") -> None:
        self.name = name
        self.signature = signature
        self.inputs = tuple(Input(n, s) for n, s in signature.inputs.items())
        self.names = frozenset(signature.inputs)
        self.is_batchable = bool(self.inputs) and all(
            spec.shape and spec.shape[0] == -1 for spec in (*signature.inputs.values(), *signature.outputs.values())
        )
        self._prefix = f"{batch_prefix}{name}"

    def rows(self, value: Any, is_plain: bool) -> list[Tensor]:
        """Tensors of an ``instances`` list. Raises :class:`InvalidInput`."""
        if type(value) is not list:
            raise InvalidInput(f'"instances" must be a list, not {kind_of(value)}.')
        if not value:
            raise InvalidInput('"instances" is empty; give at least one.')
        if len(self.inputs) == 1:
            only = self.inputs[0]
            return [only.build(self._bare(only.name, value), is_plain)]
        for index, row in enumerate(value):
            self._check_row(index, row)
        return [i.build([row[i.name] for row in value], is_plain) for i in self.inputs]

    def columns(self, value: Any, is_plain: bool) -> list[Tensor]:
        """Tensors of an ``inputs`` value; names the signature does not have are ignored."""
        if len(self.inputs) == 1:
            only = self.inputs[0]
            if type(value) is dict and not (is_base64(value) and only.name != "b64"):
                value = self._column(only.name, value)
            return [only.build(value, is_plain)]
        if type(value) is not dict:
            raise InvalidInput(f'"inputs" must be an object with {self._listed()}, not {kind_of(value)}.')
        return [i.build(self._column(i.name, value), is_plain) for i in self.inputs]

    def batch_key(self, tensors: Sequence[Tensor]) -> tuple[int, str]:
        """``(rows, key)`` of these inputs; ``(1, "")`` where they must run alone.

        The signature says that dimension 0 counts rows, and this holds only for the rank that it declares: a
        model for ``[-1, 8]`` that gets ``[8]`` may work along the one dimension there is.
        """
        rows = tensors[0].shape[0] if tensors and tensors[0].shape else 0
        if not self.is_batchable or not rows:
            return 1, ""
        for tensor, one in zip(tensors, self.inputs, strict=True):
            if len(tensor.shape) != one.rank or tensor.shape[0] != rows:
                return 1, ""
        shapes = ";".join(",".join(map(str, t.shape[1:])) for t in tensors)
        return rows, f"{self._prefix}|{shapes}"

    def _bare(self, name: str, rows: list[Any]) -> list[Any]:
        """The values of single-input rows, given bare or as ``{name: value}``."""
        if type(rows[0]) is not dict or (is_base64(rows[0]) and name != "b64"):
            return rows
        for index, row in enumerate(rows):
            self._check_row(index, row)
        return [row[name] for row in rows]

    def _check_row(self, index: int, row: Any) -> None:
        if type(row) is not dict:
            raise InvalidInput(f'"instances"[{index}] must be an object with {self._listed()}, not {kind_of(row)}.')
        if row.keys() != self.names:
            missing, extra = self.names - row.keys(), row.keys() - self.names
            name = min(missing or extra)
            raise InvalidInput(
                f'"instances"[{index}] has {"no" if missing else "an unknown"} input "{name[:_LONGEST_NAME]}"; '
                f"the signature has {self._listed()}.",
                input=name[:_LONGEST_NAME],
                expected=sorted(self.names),
                got=_some(row),
            )

    def _column(self, name: str, value: dict[str, Any]) -> Any:
        if name not in value:
            raise InvalidInput(
                f'"inputs" has no input "{name}"; the signature has {self._listed()}.',
                input=name,
                expected=sorted(self.names),
                got=_some(value),
            )
        return value[name]

    def _listed(self) -> str:
        return ", ".join(f'"{name}"' for name in sorted(self.names)) or "no inputs"


def plans(signatures: Mapping[str, Signature], *, batch_prefix: str = "") -> dict[str, Plan]:
    """The plans of a version's signatures, by name."""
    return {n: Plan(n, s, batch_prefix=batch_prefix) for n, s in signatures.items()}


def decode(
    body: Body, available: Mapping[str, Plan], max_tensor_bytes: int, words: Sequence[str] = OUR_WORDS
) -> Decoded:
    """The inputs of a request: ``{signature_name?, instances | inputs | input}``. words: those it may use.

    ``input`` is our own name for ``inputs`` in its named form. Raises :class:`InvalidRequest`,
    :class:`InvalidInput`, or :class:`TooLarge` when the tensors, or the empty lists in them, exceed their bound.
    """
    doc = body.doc
    plan = choose(doc, available)
    forms = [word for word in words if word in doc]
    if len(forms) > 1:
        raise InvalidRequest(f'Give "{forms[0]}" or "{forms[1]}", not both.')
    if not forms:
        raise InvalidRequest("Missing 'inputs' or 'instances' key")
    value = doc[forms[0]]
    if forms[0] == "instances":
        style, found = ROW, plan.rows(value, body.is_plain)
    else:
        if forms[0] == "input" and type(value) is not dict:
            raise InvalidInput(f'"input" must be an object of named tensors, not {kind_of(value)}.')
        style, found = COLUMNAR, plan.columns(value, body.is_plain)
    size = sum(len(t.data) for t in found)
    if size > max_tensor_bytes:
        raise TooLarge(
            f"The inputs take {size} bytes; this model takes at most {max_tensor_bytes}.",
            bound="tensor_bytes",
            limit_bytes=max_tensor_bytes,
        )
    if sum(hollow(t.shape) for t in found if not t.data) > MAX_HOLLOW:
        raise TooLarge(f"The inputs are more than {MAX_HOLLOW} empty lists.", bound="empty", limit=MAX_HOLLOW)
    rows, key = plan.batch_key(found)
    return Decoded(found, plan.name, style, rows, key)


def choose(doc: Mapping[str, Any], available: Mapping[str, Plan]) -> Plan:
    """The plan of the signature a body names, or of the default one."""
    name = doc.get("signature_name", DEFAULT_SIGNATURE)
    if type(name) is not str:
        raise InvalidRequest(f'"signature_name" must be a string, not {kind_of(name)}.')
    plan = available.get(name or DEFAULT_SIGNATURE)
    if plan is None:
        raise InvalidRequest(
            f'Serving signature name: "{name[:_LONGEST_NAME]}" not found in signature def. {listed(available)}',
            signature=name[:_LONGEST_NAME],
            available=sorted(available),
        )
    return plan


def listed(available: Collection[str]) -> str:
    """Which signatures may be named, as a sentence; TensorFlow's own are not among them."""
    return f"The signatures are: {', '.join(sorted(n for n in available if not n.startswith('__'))) or 'none'}."


def _some(names: Iterable[str]) -> list[str]:
    """The first of a caller's names, cut short, so that an error is not as long as the body."""
    return [name[:_LONGEST_NAME] for name in heapq.nsmallest(_MOST_SHOWN, names)]


def is_base64(value: Any) -> bool:
    """Whether ``value`` is the ``{"b64": text}`` form of bytes."""
    return type(value) is dict and len(value) == 1 and type(value.get("b64")) is str


def bytes_of(text: str) -> bytes:
    """What base64 text stands for; as in TensorFlow Serving it may lack its padding and hold white space.

    Raises :class:`ValueError`.
    """
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error:
        bare = "".join(text.split())
        return base64.b64decode(bare + "=" * (-len(bare) % 4), validate=True)


def _bfloat16(array: np.ndarray[Any, Any]) -> bytes:
    """float32 to bfloat16, rounding to nearest even."""
    bits = np.ascontiguousarray(array, dtype="<f4").view("<u4")
    rounded = (bits + 0x7FFF + ((bits >> 16) & 1)) >> 16
    return np.where(np.isnan(array), 0x7FC0, rounded).astype("<u2").tobytes()


def _kinds(value: Any) -> set[type]:
    """The types of what the innermost lists hold; ``list`` is one of them where some are deeper than others."""
    level = [value]
    while (kinds := set(map(type, level))) == {list}:
        level = list(chain.from_iterable(level))
    return kinds


def _kinds_of(dtype: str) -> frozenset[type]:
    """The types that elements of ``dtype`` may have in JSON."""
    return _BOOL if dtype == "bool" else _INT if dtype in _INTEGERS else _FLOAT
