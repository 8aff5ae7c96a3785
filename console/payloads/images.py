"""Which tensors hold images, and these images. Never SVG or anything else that a browser would interpret."""

import math
import struct
import zlib
from typing import Any, Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from console.payloads import values
from signalbox.wire.tensors import Tensor

MOST_BYTES: Final = 8 * 1024 * 1024
"""Largest image that is shown."""
_LEAST_SIDE, _MOST_SIDE = 8, 1024
"""Of a tensor that is taken for pixels."""
_SIGNATURES: Final = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
)
_COLOURS: Final = {1: 0, 3: 2}
"""Channels to PNG's colour type."""


class Image(NamedTuple):
    """A file that browsers show. kind: its media type."""

    kind: str
    data: bytes


def kind_of(data: bytes) -> str:
    """The media type of PNG, JPEG, GIF and WebP, by their first bytes; empty for anything else."""
    for start, kind in _SIGNATURES:
        if data.startswith(start):
            return kind
    return "image/webp" if data[:4] == b"RIFF" and data[8:12] == b"WEBP" else ""


def of_string(data: bytes) -> Image | None:
    """The image that an element of a string tensor is."""
    kind = kind_of(data)
    return Image(kind, data) if kind and len(data) <= MOST_BYTES else None


def is_pixels(tensor: Tensor) -> bool:
    """Whether its first element looks like the pixels of an image: ``[rows, height, width, channels]`` or less."""
    sides = _sides(tensor)
    return sides is not None and all(_LEAST_SIDE <= side <= _MOST_SIDE for side in sides[:2])


def of_pixels(tensor: Tensor) -> Image | None:
    """The first element as PNG; floats are of 0 to 1 where all are, else of their own least to most."""
    sides = _sides(tensor)
    if sides is None or not is_pixels(tensor):
        return None
    height, width, channels = sides
    pixels = values.array(tensor, height * width * channels)
    return Image("image/png", _png(_bytes_of(pixels).reshape(height, width * channels), width, channels))


def _sides(tensor: Tensor) -> tuple[int, int, int] | None:
    """Height, width and channels: four or three dimensions with channels, or three without them and with rows."""
    if tensor.dtype not in {"uint8", "float16", "bfloat16", "float32", "float64"} or not math.prod(tensor.shape):
        return None
    shape = tensor.shape[1:] if len(tensor.shape) == 4 else tensor.shape
    if len(shape) != 3:
        return None
    if shape[2] in _COLOURS:
        return shape[0], shape[1], shape[2]
    # Without channels it may be anything with three dimensions: pixels are as high as they are wide.
    return (shape[1], shape[2], 1) if shape[1] == shape[2] else None


def _bytes_of(pixels: NDArray[Any]) -> NDArray[np.uint8]:
    if pixels.dtype == np.uint8:
        return pixels
    clean = np.nan_to_num(pixels.astype("f8"), nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(clean.min()), float(clean.max())
    if low >= 0 and high <= 1:
        low, high = 0.0, 1.0
    elif low >= 0 and high <= 255:
        low, high = 0.0, 255.0
    with np.errstate(all="ignore"):
        scaled = (clean - low) * (255.0 / ((high - low) or 1.0))
    bounded: NDArray[np.uint8] = np.nan_to_num(scaled).clip(0, 255).astype(np.uint8)
    return bounded


def _png(rows: NDArray[np.uint8], width: int, channels: int) -> bytes:
    """A PNG file of rows of bytes, without a filter."""
    height = rows.shape[0]
    lines = np.concatenate([np.zeros((height, 1), np.uint8), rows], axis=1)
    head = struct.pack(">IIBBBBB", width, height, 8, _COLOURS[channels], 0, 0, 0)
    chunks = ((b"IHDR", head), (b"IDAT", zlib.compress(lines.tobytes(), 1)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(_chunk(name, data) for name, data in chunks)


def _chunk(name: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))
