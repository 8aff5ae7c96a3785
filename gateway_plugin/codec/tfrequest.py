"""TFRequest and TFResponse: named arrays in protobuf, as the client of the queue product sends and reads them.

Not TensorFlow Serving's messages, though they carry the same: an array's shape is packed numbers, it has a field for
each kind of element and none for raw bytes, and the request names no model. Source: ``tf_request.proto`` of
eas-prediction 0.36.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from math import prod
from typing import Final, NamedTuple

import numpy as np
from msgspec.structs import replace

from gateway_plugin.codec.binding import bind
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.fitting import misfit, require_names
from gateway_plugin.codec.inputs import Plan, choose, some
from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.protobuf import protowire, tensorproto, varints
from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, LENGTH, MOST_NAMES, VARINT, Field, WireReader
from gateway_plugin.codec.protobuf.tensorproto import ENUMERATORS
from signalbox.program.errors import InvalidRequest
from signalbox.program.words import counted
from signalbox.wire.tensors import ITEM_SIZE, MAX_RANK, Tensor

CONTENT_TYPE: Final = "application/octet-stream"
_WHAT: Final = "TFRequest"
_BEGINNINGS: Final = frozenset({0x0A, 0x12})
"""Of a request: its signature's name, or its first input."""
_JSON_OBJECT: Final = re.compile(rb"[ \t\r\n]*\{[ \t\r\n]*[\"}]")
_FIELDS: Final = {
    "float32": 3,
    "float64": 4,
    **dict.fromkeys(("int32", "uint8", "int16", "int8", "uint16"), 5),
    "string": 6,
    "int64": 7,
    "bool": 8,
}
"""The field of each dtype; the messages have none for others."""
_DTYPES: Final = {ENUMERATORS[dtype]: dtype for dtype in _FIELDS}
_SHAPE: Final = 2
_FLOATS: Final = frozenset({"float32", "float64"})


class TfRequest(NamedTuple):
    """A request whose arrays are still messages. signature: empty = the default. outputs: wanted ones; empty = all."""

    signature: str
    inputs: Mapping[str, memoryview]
    outputs: tuple[str, ...]


def is_one(body: bytes) -> bool:
    """Whether a body is a TFRequest, by its first byte; else it is JSON.

    One of the two bytes that begin a request is white space in JSON too: a line end before an object is not meant so.
    """
    return bool(body) and body[0] in _BEGINNINGS and _JSON_OBJECT.match(body) is None


def read(body: bytes) -> TfRequest:
    """The parts of a request. Raises :class:`InvalidRequest` for what is none, and :class:`TooManyFields`."""
    reader = WireReader(_WHAT, FEW_FIELDS)
    signature = ""
    inputs: dict[str, memoryview] = {}
    outputs: dict[str, None] = {}
    for field in reader.fields(memoryview(body)):
        if field.number == 1:
            signature = reader.name(field)
        elif field.number == 2:
            name, value = reader.entry(field)
            inputs[name] = reader.message(value) if value is not None else memoryview(b"")
        elif field.number == 3:
            outputs[reader.name(field)] = None
        if len(inputs) > MOST_NAMES or len(outputs) > MOST_NAMES:
            raise reader.malformed(f"it names more than {MOST_NAMES} inputs or outputs")
    return TfRequest(signature, inputs, tuple(outputs))


def decoded(request: TfRequest, ready: PreparedVersion, most_fields: int) -> DecodedInputs:
    """The inputs of a request for a version. most_fields: see :class:`WireReader`.

    Raises :class:`InvalidRequest` and :class:`TooLarge`, also for outputs that the signature has not or that a
    TFResponse has no place for: nothing has run then.
    """
    limit = ready.model.limits.max_payload_bytes
    plan = choose({"signature_name": request.signature}, ready.plans)
    plan.require_dense(request.outputs)
    _require_outputs(request.outputs, plan)
    defaults = plan.signature.defaults
    require_names({**defaults, **request.inputs}, plan)
    reader, room = WireReader(_WHAT, most_fields), limit
    found: dict[str, Tensor] = {}
    for one in plan.inputs:
        if one.name in request.inputs:
            tensor = _array(reader, one.name, request.inputs[one.name], room)
        else:
            tensor = tensorproto.read(reader, one.name, memoryview(defaults[one.name]), room)
        found[one.name] = tensor
        room -= len(tensor.data)
    inputs = bind(found, ready, request.signature, max_tensor_bytes=limit)
    if 0 < len(request.outputs) < len(plan.signature.outputs):
        return replace(inputs, outputs=tuple(sorted(request.outputs)))
    return inputs


def written(outputs: Iterable[Tensor]) -> bytes:
    """The TFResponse. Raises :class:`InvalidRequest` for an output that it has no place for."""
    parts: list[bytes] = []
    for tensor in outputs:
        entry = [protowire.field(1, tensor.name.encode()), *protowire.wrapped(2, _array_of(tensor))]
        parts += protowire.wrapped(1, entry)
    return b"".join(parts)


def _require_outputs(wanted: Collection[str], plan: Plan) -> None:
    known = plan.signature.outputs
    unknown = [name for name in wanted if name not in known]
    if unknown:
        (shown,) = some(unknown[:1])
        raise InvalidRequest(
            f'There is no output "{shown}"; the signature "{plan.name}" has {", ".join(some(known))}.',
            output=shown,
            expected=some(known),
        )
    for name in wanted or known:
        _require_place(name, known[name].dtype)


def _require_place(name: str, dtype: str) -> None:
    if dtype not in _FIELDS:
        (shown,) = some([name])
        raise InvalidRequest(
            f'The output "{shown}" is {dtype}, for which a TFResponse has no place. Send JSON, or name the other '
            "outputs in output_filter.",
            output=shown,
        )


def _array(reader: WireReader, name: str, message: memoryview, room_bytes: int) -> Tensor:
    """The tensor of an input. It has as many elements as its shape: none stands for others."""
    dtype_number, shapes = 0, list[memoryview]()
    values: defaultdict[int, list[Field]] = defaultdict(list)
    for field in reader.fields(message):
        if field.number == 1:
            dtype_number = reader.integer(field)
        elif field.number == _SHAPE:
            shapes.append(reader.message(field))
        else:
            values[field.number].append(field)
    dtype = _DTYPES.get(dtype_number)
    if dtype is None:
        raise misfit(name, f"a dtype of {', '.join(sorted(_FIELDS))}", f"the number {dtype_number}")
    shape = _shape(reader, name, memoryview(b"".join(shapes)))
    count = prod(shape)
    tensorproto.require_room(count, dtype, room_bytes)
    fields = values[_FIELDS[dtype]]
    try:
        if (found := _count(fields, dtype)) != count:
            raise misfit(name, f"{counted(count, 'element')} for shape {list(shape)}", str(found))
        if not count:
            return Tensor(name, dtype, shape, b"")
        if dtype == "string":
            return Tensor(name, dtype, shape, tensorproto.strings(fields, count, room_bytes))
        return Tensor(name, dtype, shape, tensorproto.numbers(fields, dtype, count))
    except ValueError as error:
        raise misfit(name, f"{counted(count, 'element')} of {dtype}", str(error)) from error


def _shape(reader: WireReader, name: str, message: memoryview) -> tuple[int, ...]:
    packed = [field for field in reader.fields(message) if field.number == 1]
    if any(field.kind not in {VARINT, LENGTH} for field in packed):
        raise misfit(name, "a shape of whole numbers", "others")
    try:
        sizes = varints.unpack(b"".join(field.data for field in packed), MAX_RANK + 1).astype(np.int64).tolist()
    except ValueError as error:
        raise misfit(name, "a shape", str(error)) from error
    if len(sizes) > MAX_RANK:
        raise misfit(name, f"at most {MAX_RANK} dimensions", "more")
    if min(sizes, default=0) < 0:
        raise misfit(name, "sizes of at least 0", f"shape {sizes}")
    return tuple(sizes)


def _count(fields: Collection[Field], dtype: str) -> int:
    """How many elements there are; those of fields that are not what they should be are refused where they are read."""
    if dtype == "string":
        return len(fields)
    if dtype in _FLOATS:
        return sum(len(field.data) for field in fields) // ITEM_SIZE[dtype]
    return sum(varints.count(field.data) for field in fields)


def _array_of(tensor: Tensor) -> list[bytes]:
    """The message of a tensor, in parts."""
    dtype, data = tensor.dtype, tensor.data
    _require_place(tensor.name, dtype)
    number = _FIELDS[dtype]
    sizes = b"".join(map(protowire.varint, tensor.shape))
    start = protowire.number(1, ENUMERATORS[dtype]) + protowire.field(_SHAPE, protowire.field(1, sizes))
    if dtype == "string":
        return [start, *(part for item in split_strings(data) for part in (protowire.head(number, len(item)), item))]
    if dtype not in _FLOATS:
        data = varints.pack(np.frombuffer(data, np.dtype(dtype).newbyteorder("<")))
    return [start, *protowire.wrapped(number, [data])] if data else [start]
