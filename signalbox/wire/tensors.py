"""Named tensors as they travel: dtype, shape and little-endian bytes. No numpy, so any process may use it.

A *frame* is the msgpack form of a list of tensors and is what a job's body, a result's body and the
runner's socket carry. Strings are stored row-major, each element a 4-byte little-endian length and
its bytes (the form the Open Inference Protocol uses for BYTES).
"""

import math
from collections.abc import Sequence
from typing import Final

import msgspec

ITEM_SIZE: Final[dict[str, int]] = {
    "bool": 1,
    "int8": 1,
    "uint8": 1,
    "int16": 2,
    "uint16": 2,
    "float16": 2,
    "bfloat16": 2,
    "int32": 4,
    "uint32": 4,
    "float32": 4,
    "int64": 8,
    "uint64": 8,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Bytes an element takes. ``string`` is the one dtype of variable size and is not listed."""

DTYPES: Final = frozenset(ITEM_SIZE) | {"string"}


MAX_RANK: Final = 32
"""Most dimensions of a tensor: as many as the levels that a JSON body may have."""
MAX_HOLLOW: Final = 65_536
"""Lists that the tensors without elements in one frame may make up together.

Elements are bounded by the bytes they take; these take none, and each is a list once it is written as JSON. The
bound is what a body can spell out that is decoded where requests are answered.
"""
_LENGTH_BYTES: Final = 4


class Tensor(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """One named tensor.

    name: input or output name of the signature. dtype: one of :data:`DTYPES`.
    shape: sizes, outermost first; ``()`` is a scalar. data: little-endian, row-major bytes.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    data: bytes


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(list[Tensor])


def encode(tensors: Sequence[Tensor]) -> bytes:
    """The frame of ``tensors``, in order."""
    return _encoder.encode(tensors)


def decode(frame: bytes) -> list[Tensor]:
    """The tensors of a frame.

    Raises :class:`msgspec.MsgspecError` where it is not one, and where data and shape of a tensor disagree.
    """
    try:
        found = _decoder.decode(frame)
    except UnicodeDecodeError as error:  # a name
        raise msgspec.ValidationError("a text that is not UTF-8") from error
    for tensor in found:
        if not _is_filled(tensor):
            raise msgspec.ValidationError(
                f"{tensor.name[:60]}: {len(tensor.data)} bytes do not fill "
                f"{tensor.dtype[:60]}{list(tensor.shape[:MAX_RANK])}"
            )
    if sum(hollow(tensor.shape) for tensor in found) > MAX_HOLLOW:
        raise msgspec.ValidationError(f"more than {MAX_HOLLOW} empty lists")
    return found


def hollow(shape: Sequence[int]) -> int:
    """The empty lists that a tensor of this shape consists of: none if it has elements."""
    return math.prod(shape[: shape.index(0)]) if 0 in shape else 0


def _is_filled(tensor: Tensor) -> bool:
    dtype, shape, data = tensor.dtype, tensor.shape, tensor.data
    if len(shape) > MAX_RANK or min(shape, default=0) < 0:
        return False
    if dtype == "string":
        return _count_strings(data) == math.prod(shape)
    return dtype in ITEM_SIZE and len(data) == ITEM_SIZE[dtype] * math.prod(shape)


def _count_strings(data: bytes) -> int:
    """The elements of a string tensor, -1 where the last is cut."""
    count = at = 0
    while at < len(data):
        at += _LENGTH_BYTES + int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        count += 1
    return count if at == len(data) else -1
