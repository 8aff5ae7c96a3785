"""ModelInfer's messages of the Open Inference Protocol, which hold tensors, from and to bytes.

A tensor's elements come as raw bytes for all inputs together, or in the typed field of each; they go out as raw bytes.
Source: the protocol's ``grpc_predict_v2.proto``, and Triton's.
"""

import struct
from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, Final, NamedTuple

from gateway_plugin.codec.fitting import misfit
from gateway_plugin.codec.oip.datatypes import DATATYPES, datatype
from gateway_plugin.codec.oip.inputs import from_bytes
from gateway_plugin.codec.oip.request import parameters_of
from gateway_plugin.codec.protobuf import protowire, tensorproto, varints
from gateway_plugin.codec.protobuf.protowire import (
    FIXED32,
    FIXED64,
    LENGTH,
    MOST_FIELDS,
    MOST_NAMES,
    VARINT,
    Field,
    WireReader,
)
from signalbox.program.errors import InvalidInput, TooLarge
from signalbox.program.words import counted
from signalbox.wire.tensors import ITEM_SIZE, MAX_RANK, Tensor

_CONTENTS: Final = {
    "bool": (1, VARINT),
    **dict.fromkeys(("int8", "int16", "int32"), (2, VARINT)),
    "int64": (3, VARINT),
    **dict.fromkeys(("uint8", "uint16", "uint32"), (4, VARINT)),
    "uint64": (5, VARINT),
    "float32": (6, FIXED32),
    "float64": (7, FIXED64),
    "string": (8, LENGTH),
}
"""The typed field of each dtype that has one, and the wire type of an element in it."""
_SHOWN: Final = 120


class GivenInput(NamedTuple):
    """An input of a message. contents: its elements in typed fields, as they were sent; empty where they are raw."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    contents: tuple[memoryview, ...]


class InferMessage(NamedTuple):
    """A ModelInferRequest. fields: ``id``, ``parameters`` and ``outputs``, as a JSON body has them."""

    model: str
    version: str
    fields: Mapping[str, Any]
    inputs: tuple[GivenInput, ...]
    raw: tuple[memoryview, ...]


def read(body: bytes, most_fields: int = MOST_FIELDS) -> InferMessage:
    """A request. most_fields: see :class:`WireReader`.

    Raises :class:`InvalidRequest`, :class:`InvalidInput` and :class:`TooLarge`.
    """
    reader = WireReader("ModelInferRequest", most_fields)
    names = {1: "", 2: "", 3: ""}
    parameters: dict[str, Any] = {}
    inputs: list[GivenInput] = []
    outputs: list[dict[str, Any]] = []
    raw: list[memoryview] = []
    for field in reader.fields(memoryview(body)):
        if field.number in names:
            names[field.number] = reader.name(field)
        elif field.number == 4:
            _add_parameter(reader, field, parameters)
        elif field.number == 5:
            inputs.append(_input(reader, field))
        elif field.number == 6:
            outputs.append(_output(reader, field))
        elif field.number == 7:
            raw.append(reader.message(field))
        if max(len(inputs), len(outputs), len(raw)) > MOST_NAMES:
            raise TooLarge(
                f"The request has more than {MOST_NAMES} inputs or outputs.", bound="fields", limit=MOST_NAMES
            )
    fields: dict[str, Any] = {"parameters": parameters, "outputs": outputs}
    if names[3]:
        fields["id"] = names[3]
    return InferMessage(names[1], names[2], fields, tuple(inputs), tuple(raw))


def _add_parameter(reader: WireReader, field: Field, found: dict[str, Any]) -> None:
    """Add an entry of a map of InferParameter. One without a value, or of a kind that is not known, is left out."""
    name, value = reader.entry(field)
    if len(found) >= MOST_NAMES:
        raise TooLarge(f"There are more than {MOST_NAMES} parameters.", bound="fields", limit=MOST_NAMES)
    for part in reader.fields(reader.message(value)) if value is not None else ():
        if part.number == 1:
            found[name] = reader.integer(part) != 0
        elif part.number == 2:
            found[name] = reader.integer(part)
        elif part.number == 3:
            found[name] = reader.name(part)
        elif part.number == 4 and part.kind == FIXED64:
            (found[name],) = struct.unpack("<d", part.data)
        elif part.number == 5:
            found[name] = reader.integer(part) % 2**64


def _input(reader: WireReader, message: Field) -> GivenInput:
    name = word = ""
    sizes: list[int] = []
    parameters: dict[str, Any] = {}
    contents: list[memoryview] = []
    for field in reader.fields(reader.message(message)):
        if field.number == 1:
            name = reader.name(field)
        elif field.number == 2:
            word = reader.name(field)
        elif field.number == 3:
            sizes += _sizes(reader, field)
        elif field.number == 4:
            _add_parameter(reader, field, parameters)
        elif field.number == 5:
            contents.append(reader.message(field))
        if len(sizes) > MAX_RANK:
            raise misfit(name, f"at most {MAX_RANK} dimensions", "more")
    if not name:
        raise reader.malformed("an input has no name")
    parameters_of({"parameters": parameters}, f'input "{name[:_SHOWN]}"')
    dtype = DATATYPES.get(word)
    if dtype is None:
        raise misfit(name, f"a datatype ({', '.join(DATATYPES)})", f'"{word[:_SHOWN]}"')
    if min(sizes, default=0) < 0:
        raise misfit(name, "sizes of at least 0", f"shape {sizes}")
    return GivenInput(name, dtype, tuple(sizes), tuple(part for part in contents if part))


def _sizes(reader: WireReader, field: Field) -> list[int]:
    if field.kind != LENGTH:
        return [reader.integer(field)]
    if (data := bytes(field.data)).isascii():  # each of one byte, as sizes mostly are
        return list(data[: MAX_RANK + 1])
    try:
        sizes: list[int] = varints.unpack(field.data, MAX_RANK + 1).astype("i8").tolist()
    except ValueError as error:
        raise reader.malformed(f"a shape cannot be read, {error}") from error
    return sizes


def _output(reader: WireReader, message: Field) -> dict[str, Any]:
    name = ""
    parameters: dict[str, Any] = {}
    for field in reader.fields(reader.message(message)):
        if field.number == 1:
            name = reader.name(field)
        elif field.number == 2:
            _add_parameter(reader, field, parameters)
    return {"name": name, "parameters": parameters}


def tensors(
    found: InferMessage, most_fields: int = MOST_FIELDS, *, max_tensor_bytes: int, max_elements: int
) -> dict[str, Tensor]:
    """The inputs by name. most_fields: see :class:`WireReader`. max_elements: in typed fields, of all inputs together.

    Raises :class:`InvalidInput` and :class:`TooLarge`.
    """
    if found.raw and len(found.raw) != len(found.inputs):
        sent = f"{counted(len(found.inputs), 'input')} and {len(found.raw)} raw_input_contents"
        raise InvalidInput(f"There are {sent}; send one for each input, or none.")
    reader = WireReader("ModelInferRequest", most_fields)
    made: dict[str, Tensor] = {}
    for index, one in enumerate(found.inputs):
        name, dtype, shape, contents = one
        if name in made:
            raise InvalidInput(f'Input "{name[:_SHOWN]}" is given twice.', input=name[:_SHOWN])
        if found.raw:
            if contents:
                raise InvalidInput(
                    f'Input "{name[:_SHOWN]}" has contents beside raw_input_contents; send one of them.',
                    input=name[:_SHOWN],
                )
            made[name] = from_bytes(name, dtype, shape, bytes(found.raw[index]))
            continue
        max_elements -= prod(shape)
        if max_elements < 0 or prod(shape) * ITEM_SIZE.get(dtype, 1) > max_tensor_bytes:
            raise TooLarge(
                f'Input "{name[:_SHOWN]}" has too many elements, {prod(shape)}; send them as raw_input_contents, or '
                "fewer at once.",
                bound="elements",
            )
        made[name] = Tensor(name, dtype, shape, _typed(reader, one))
    return made


def _typed(reader: WireReader, one: GivenInput) -> bytes:
    """The elements of typed fields: exactly as many as the shape has, in the field of the dtype and no other."""
    name, dtype, shape, contents = one
    if dtype not in _CONTENTS:
        raise misfit(name, f"raw_input_contents for {datatype(dtype)}", "contents")
    number, kind = _CONTENTS[dtype]
    fields = [field for part in contents for field in reader.fields(part)]
    if any(field.number != number or field.kind not in {kind, LENGTH} for field in fields):
        raise misfit(name, f"contents of {datatype(dtype)} alone", "others")
    count = prod(shape)
    if kind == LENGTH:
        found = len(fields)
    elif kind == VARINT:
        found = sum(varints.count(field.data) for field in fields)
    else:
        found = sum(len(field.data) for field in fields) // ITEM_SIZE[dtype]
    if found != count:
        raise misfit(name, f"{counted(count, 'element')} for shape {list(shape)}", str(found))
    if kind == LENGTH:
        return b"".join(part for field in fields for part in (struct.pack("<I", len(field.data)), field.data))
    if not fields:
        return b""
    try:
        return tensorproto.numbers(fields, dtype, count)
    except ValueError as error:
        raise misfit(name, f"elements of {datatype(dtype)}", str(error)) from error


def write(head: Mapping[str, str], outputs: Sequence[Tensor]) -> bytes:
    """A ModelInferResponse. head: ``model_name``, ``model_version`` and ``id``, if the request had one."""
    parts = [
        protowire.field(number, head[name].encode())
        for number, name in enumerate(("model_name", "model_version", "id"), 1)
        if name in head
    ]
    parts += [protowire.field(5, _described(tensor)) for tensor in outputs]
    for tensor in outputs:
        parts += (protowire.head(6, len(tensor.data)), tensor.data)
    return b"".join(parts)


def _described(tensor: Tensor) -> bytes:
    sizes = b"".join(map(protowire.varint, tensor.shape))
    return (
        protowire.field(1, tensor.name.encode())
        + protowire.field(2, datatype(tensor.dtype).encode())
        + protowire.field(3, sizes)
    )
