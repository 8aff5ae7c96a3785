"""TensorFlow's TensorProto to tensors and back.

Elements come as raw bytes (``tensor_content``) or in the typed field of their dtype; there the last of too few stands
for all that are missing, as a constant tensor is sent as one value. Tensors go out in typed fields, as a TensorFlow
Serving sends them. Source: TensorFlow's ``tensor.proto``, ``tensor_shape.proto``, ``types.proto`` and ``tensor.cc``.
"""

import struct
from collections import defaultdict
from math import prod
from typing import Any, Final

import numpy as np

from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.protobuf import protowire, varints
from gateway_plugin.codec.protobuf.protowire import FIXED32, FIXED64, LENGTH, MOST_FIELDS, VARINT, Field, WireReader
from signalbox.program.errors import InvalidInput, TooLarge
from signalbox.program.words import counted
from signalbox.wire.tensors import ITEM_SIZE, MAX_RANK, Tensor

ENUMERATORS: Final = {
    "float32": 1,
    "float64": 2,
    "int32": 3,
    "uint8": 4,
    "int16": 5,
    "int8": 6,
    "string": 7,
    "complex64": 8,
    "int64": 9,
    "bool": 10,
    "bfloat16": 14,
    "uint16": 17,
    "complex128": 18,
    "float16": 19,
    "uint32": 22,
    "uint64": 23,
}
_DTYPES: Final = {enumerator: dtype for dtype, enumerator in ENUMERATORS.items()}
_FIELDS: Final = {
    "float32": 5,
    "float64": 6,
    **dict.fromkeys(("int32", "uint8", "int16", "int8", "uint16"), 7),
    "string": 8,
    "complex64": 9,
    "int64": 10,
    "bool": 11,
    "complex128": 12,
    **dict.fromkeys(("float16", "bfloat16"), 13),
    "uint32": 16,
    "uint64": 17,
}
"""The typed field of each dtype."""
_RAW: Final = {"float32": FIXED32, "complex64": FIXED32, "float64": FIXED64, "complex128": FIXED64}
"""Dtypes whose typed field is as their bytes are, and the wire type of one that is not packed."""
_WIDTHS: Final = {FIXED32: 4, FIXED64: 8}
_CONTENT: Final = 4
_NARROW: Final = frozenset({"uint8", "int16", "int8", "uint16"})
_LENGTH_BYTES: Final = 4
_pack: Final = struct.Struct("<I").pack
_LONGEST_VARINT: Final = 10


def read(reader: WireReader, name: str, message: memoryview, room_bytes: int) -> Tensor:
    """The tensor of an input. room_bytes: the most that its elements may take; nothing larger is made on the way.

    Raises :class:`InvalidInput` that begins in TensorFlow Serving's words, and :class:`TooLarge`.
    """
    dtype_number, shape_parts, content = 0, [], memoryview(b"")
    values: defaultdict[int, list[Field]] = defaultdict(list)
    for field in reader.fields(message):
        if field.number == 1:
            dtype_number = reader.integer(field)
        elif field.number == 2:
            shape_parts.append(reader.message(field))
        elif field.number == _CONTENT:
            content = reader.message(field)
        else:
            values[field.number].append(field)
    dtype = _DTYPES.get(dtype_number)
    if dtype is None:
        raise _refusal(name, f"a dtype of {', '.join(sorted(ENUMERATORS))}", f"the number {dtype_number}")
    shape = _shape(reader, name, memoryview(b"".join(shape_parts)))
    count = prod(shape)
    require_room(count, dtype, room_bytes)
    if not count:
        return Tensor(name, dtype, shape, b"")
    fields = values[_FIELDS[dtype]]
    try:
        if dtype == "string":
            data = _strings_in(content, count) if content else strings(fields, count, room_bytes)
        elif content:
            data = _raw(content, count * ITEM_SIZE[dtype])
        else:
            data = numbers(fields, dtype, count)
    except ValueError as error:
        raise _refusal(name, f"{counted(count, 'element')} of {dtype}", str(error)) from error
    return Tensor(name, dtype, shape, data)


def _shape(reader: WireReader, name: str, message: memoryview) -> tuple[int, ...]:
    sizes: list[int] = []
    for field in reader.fields(message):
        if field.number == 3 and reader.integer(field):
            raise _refusal(name, "a shape", "an unknown rank")
        if field.number != 2:
            continue
        if len(sizes) == MAX_RANK:
            raise _refusal(name, f"at most {MAX_RANK} dimensions", "more")
        size = 0
        for part in reader.fields(reader.message(field)):
            if part.number == 1:
                size = reader.integer(part)
        if size < 0:
            raise _refusal(name, "sizes of at least 0", str(size))
        sizes.append(size)
    return tuple(sizes)


def require_room(count: int, dtype: str, room_bytes: int) -> None:
    """Raise :class:`TooLarge` for more elements than there is room for, however few bytes stand for them."""
    size = count * ITEM_SIZE.get(dtype, _LENGTH_BYTES)
    if size > room_bytes:
        raise TooLarge(
            f"The inputs are too large: one has {count} elements of {dtype}, at least {size} bytes, and there are "
            f"{room_bytes} left of what this model takes.",
            bound="tensor_bytes",
            limit_bytes=room_bytes,
        )
    if dtype == "string" and count > MOST_FIELDS:
        raise TooLarge(f"An input has {count} strings; at most {MOST_FIELDS} are taken.", bound="fields")


def _raw(content: memoryview, size: int) -> bytes:
    if len(content) != size:
        msg = f"tensor_content of {len(content)} bytes instead of {size}"
        raise ValueError(msg)
    return bytes(content)


def numbers(fields: list[Field], dtype: str, count: int) -> bytes:
    """``count`` elements of a typed field: what is too much is not looked at, what is missing is the last, or zero."""
    item = ITEM_SIZE[dtype]
    wire_type = _RAW.get(dtype, VARINT)
    if any(field.kind not in {wire_type, LENGTH} for field in fields):
        msg = f"values of another type than {dtype}'s"
        raise ValueError(msg)
    if wire_type != VARINT and any(len(field.data) % _WIDTHS[wire_type] for field in fields):
        msg = "a part of a number"
        raise ValueError(msg)
    packed: Any = fields[0].data if len(fields) == 1 else b"".join(field.data for field in fields)
    if wire_type == VARINT:
        data = b"".join(_whole(piece, dtype).tobytes() for piece in varints.pieces(packed, count))
    else:
        data = bytes(packed[: min(count, len(packed) // item) * item])
    missing = count - len(data) // item
    return data + (data[-item:] or bytes(item)) * missing if missing else data


def _whole(values: varints.Array, dtype: str) -> Any:
    """Varints as elements of a dtype. Raises :class:`ValueError` for one out of the range of a narrow dtype."""
    if dtype == "bool":
        return values != 0
    if dtype in {"int64", "uint64"}:
        return values
    low = values.astype(np.uint32)  # protobuf, too, drops the upper half of what is sent as 32 bits
    if dtype in {"int32", "uint32"}:
        return low
    signed = low.view(np.int32)
    limits = np.iinfo(dtype if dtype in _NARROW else np.uint16)
    if signed.size and (signed.min() < limits.min or signed.max() > limits.max):
        bad = signed.min() if signed.min() < limits.min else signed.max()
        msg = f"the value {bad}, which is not within {limits.min} to {limits.max}"
        raise ValueError(msg)
    return signed.astype(limits.dtype)


def strings(fields: list[Field], count: int, room_bytes: int) -> bytes:
    """``count`` elements of ``string_val``, as :func:`numbers`."""
    if any(field.kind != LENGTH for field in fields):
        msg = "values of another type than string's"
        raise ValueError(msg)
    items = [field.data for field in fields[:count]]
    last = items[-1] if items else memoryview(b"")
    missing = count - len(items)
    _require_strings_room(sum(map(len, items)) + missing * len(last) + _LENGTH_BYTES * count, room_bytes)
    data = b"".join([part for item in items for part in (_pack(len(item)), item)])
    return data + b"".join((_pack(len(last)), last)) * missing


def _require_strings_room(size: int, room_bytes: int) -> None:
    if size > room_bytes:
        raise TooLarge(
            f"The inputs are too large: the strings of one take {size} bytes, and there are {room_bytes} left of what "
            "this model takes.",
            bound="tensor_bytes",
            limit_bytes=room_bytes,
        )


def _strings_in(content: memoryview, count: int) -> bytes:
    """The strings of ``tensor_content``: the lengths of all, as varints, before the bytes of all."""
    heads = content[: count * _LONGEST_VARINT]
    ends = np.flatnonzero(np.frombuffer(heads, np.uint8) < 0x80)
    if ends.size < count:
        msg = f"tensor_content with {ends.size} lengths"
        raise ValueError(msg)
    at = int(ends[count - 1]) + 1
    lengths = varints.unpack(heads[:at], count).tolist()
    if at + sum(lengths) != len(content):
        msg = f"tensor_content of {len(content)} bytes instead of {at + sum(lengths)}"
        raise ValueError(msg)
    parts: list[bytes | memoryview] = []
    for length in lengths:
        parts += (_pack(length), content[at : at + length])
        at += length
    return b"".join(parts)


def _refusal(name: str, expected: str, got: str) -> InvalidInput:
    return InvalidInput(
        f'tensor parsing error: {name}. Input "{name}": expected {expected}, got {got}.',
        input=name,
        expected=expected,
        got=got,
    )


def write(tensor: Tensor) -> list[bytes]:
    """The message of a tensor, in parts; its elements are in the typed field of its dtype."""
    dims = b"".join(protowire.field(2, protowire.number(1, size)) for size in tensor.shape)
    start = protowire.number(1, ENUMERATORS[tensor.dtype]) + protowire.field(2, dims)
    number, values = _FIELDS[tensor.dtype], tensor.data
    if tensor.dtype == "string":
        return [start, *(part for item in split_strings(values) for part in (protowire.head(number, len(item)), item))]
    if tensor.dtype not in _RAW:
        of_numpy = "uint16" if tensor.dtype in {"float16", "bfloat16"} else tensor.dtype
        values = varints.pack(np.frombuffer(values, np.dtype(of_numpy).newbyteorder("<")))
    return [start, *protowire.wrapped(number, [values])] if values else [start]
