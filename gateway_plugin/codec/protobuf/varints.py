"""Packed varints, as protobuf has repeated integers and booleans, to arrays and back without a loop over elements.

In pieces, since an array takes up to eight times the bytes that its varints take, and what is made on the way more.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np

_PIECE_BYTES: Final = 1 << 18
_PIECE_VALUES: Final = 1 << 14
_LONGEST: Final = 10

Array = np.ndarray[Any, Any]


def count(data: memoryview | bytes) -> int:
    """How many varints there are."""
    return int(np.count_nonzero(np.frombuffer(data, np.uint8) < 0x80))


def unpack(data: memoryview | bytes, most: int) -> Array:
    """The first ``most`` varints, uint64: a negative number is 2**64 larger. Raises as :func:`pieces`."""
    return np.concatenate((np.empty(0, np.uint64), *pieces(data, most)))


def pieces(data: memoryview | bytes, most: int) -> Iterator[Array]:
    """The integers in arrays of a bounded size. Raises :class:`ValueError` for bytes that are no varints."""
    raw = np.frombuffer(data, np.uint8)
    if raw.size and raw[-1] >= 0x80:
        msg = "packed numbers end in the middle of one"
        raise ValueError(msg)
    at = 0
    while most and at < raw.size:
        piece = raw[at : at + _PIECE_BYTES]
        ends = np.flatnonzero(piece < 0x80)
        if not ends.size:
            raise _too_long()
        at += int(ends[-1]) + 1
        ends = ends[:most]
        most -= ends.size
        yield _unpacked(piece, ends)


def _unpacked(piece: Array, ends: Array) -> Array:
    """The varints whose last bytes are at ``ends``; the first begins with the piece."""
    if ends.size == ends[-1] + 1:  # all of one byte
        return piece[: ends.size].astype(np.uint64)
    starts = np.concatenate(([0], ends[:-1] + 1))
    sizes = ends - starts + 1
    longest = int(sizes.max())
    if longest > _LONGEST:
        raise _too_long()
    values = (piece[starts] & 0x7F).astype(np.uint64)
    for place in range(1, longest):
        longer = np.flatnonzero(sizes > place)
        part = (piece[starts[longer] + place] & 0x7F).astype(np.uint64)
        values[longer] |= part << np.uint64(7 * place)
    return values


def pack(values: Array) -> bytes:
    """Whole numbers as varints, negative ones as protobuf has int32 and int64: in ten bytes."""
    if values.dtype.itemsize == 1 and values.dtype.kind in "bu" and (not values.size or values.max() < 0x80):
        return values.tobytes()
    kind = np.int64 if values.dtype.kind == "i" else np.uint64
    pieces = (values[at : at + _PIECE_VALUES].astype(kind) for at in range(0, values.size, _PIECE_VALUES))
    return b"".join(_packed(piece.view(np.uint64)) for piece in pieces)


def _packed(rest: Array) -> bytes:
    """These as varints; they are zero afterwards."""
    width = max(1, -(-int(rest.max()).bit_length() // 7))
    parts = np.empty((rest.size, width), np.uint8)
    is_used = np.ones((rest.size, width), np.bool_)
    for place in range(width):
        parts[:, place] = rest & np.uint64(0x7F)
        rest >>= np.uint64(7)
        if place + 1 < width:
            is_used[:, place + 1] = goes_on = rest != 0
            parts[:, place] |= goes_on.view(np.uint8) << 7
    data: bytes = parts[is_used].tobytes()
    return data


def _too_long() -> ValueError:
    return ValueError(f"packed numbers hold one of more than {_LONGEST} bytes")
