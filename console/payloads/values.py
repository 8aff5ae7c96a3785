"""Tensors as arrays of NumPy and as values of JSON, in the forms of the API. No TensorFlow."""

import base64
import math
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from signalbox.wire.tensors import ITEM_SIZE, Tensor

_NUMPY: Final = {name: np.dtype(name).newbyteorder("<") for name in ITEM_SIZE if name != "bfloat16"}
_HALF: Final = {"complex64": "<f4", "complex128": "<f8"}
_HEAD: Final = 4
"""Bytes of the length before a string."""


def array(tensor: Tensor, first: int | None = None) -> NDArray[Any]:
    """Its elements, flat, or the first so many; bfloat16 as float32. Not for strings."""
    size = ITEM_SIZE[tensor.dtype]
    data = memoryview(tensor.data)[: None if first is None else first * size]
    return decoded(tensor.dtype, data)


def decoded(dtype: str, data: memoryview) -> NDArray[Any]:
    """Elements of a dtype, flat."""
    if dtype == "bfloat16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view("<f4")
    return np.frombuffer(data, _NUMPY[dtype])


def strings(tensor: Tensor) -> Iterator[bytes]:
    """The elements of a string tensor, one by one."""
    at = 0
    while at < len(tensor.data):
        end = at + _HEAD + int.from_bytes(tensor.data[at : at + _HEAD], "little")
        yield tensor.data[at + _HEAD : end]
        at = end


def count(tensors: Sequence[Tensor]) -> int:
    """Elements of all of them."""
    return sum(math.prod(tensor.shape) for tensor in tensors)


def as_json(tensor: Tensor) -> Any:
    """Nested lists, as the API takes and gives them: bytes as ``{"b64": ...}``, complex numbers as pairs."""
    if tensor.dtype == "string":
        flat: list[Any] = [_text(one, is_bytes=tensor.name.endswith("_bytes")) for one in strings(tensor)]
    elif tensor.dtype in _HALF:
        flat = np.frombuffer(tensor.data, _HALF[tensor.dtype]).reshape(-1, 2).tolist()
    else:
        flat = plain(array(tensor))
    return _nested(flat, tensor.shape)


def plain(values: NDArray[Any]) -> list[Any]:
    """Python's own numbers; floats with the fewest digits that tell them in their own precision."""
    if values.dtype.kind == "f" and values.dtype.itemsize < 8:
        return [float(str(value)) for value in values]
    found: list[Any] = values.tolist()
    return found


def _nested(flat: list[Any], shape: Sequence[int]) -> Any:
    if not shape:
        return flat[0]
    for axis in range(len(shape) - 1, 0, -1):
        size = shape[axis]
        flat = [flat[at * size : (at + 1) * size] for at in range(math.prod(shape[:axis]))]
    return flat


def _text(item: bytes, *, is_bytes: bool) -> Any:
    if not is_bytes:
        try:
            return item.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(item).decode()}
