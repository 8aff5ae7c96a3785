"""Named tensors as they travel: dtype, shape and little-endian bytes. No numpy, so any process may use it.

A *frame* is the msgpack form of a list of tensors and is what a job's body, a result's body and the
runner's socket carry. Strings are stored row-major, each element a 4-byte little-endian length and
its bytes (the form the Open Inference Protocol uses for BYTES).
"""

from collections.abc import Sequence
from typing import Final

import msgspec

ITEM_SIZE: Final[dict[str, int]] = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "bfloat16": 2,
    "int32": 4, "uint32": 4, "float32": 4, "int64": 8, "uint64": 8, "float64": 8,
    "complex64": 8, "complex128": 16,
}  # fmt: skip
"""Bytes an element takes. ``string`` is the one dtype of variable size and is not listed."""

DTYPES: Final = frozenset(ITEM_SIZE) | {"string"}


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
    """The tensors of a frame. Raises :class:`msgspec.MsgspecError` where it is not one."""
    return _decoder.decode(frame)
