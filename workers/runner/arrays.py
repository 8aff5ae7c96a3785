"""Tensors as they travel and numpy's arrays, both ways, for every dtype and every rank from 0 on.

TensorFlow hands a tensor of rank 0 out as a scalar, and numpy guesses a string's dtype from its length: what dtype a
tensor has is therefore asked of the tensor, never of the array.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import ml_dtypes
import numpy as np
import numpy.typing as npt

from signalbox.program import errors
from signalbox.program.words import counted
from signalbox.wire import tensors
from signalbox.wire.tensors import Tensor

Array = npt.NDArray[Any]
STRING: Final = "string"
_NUMPY: Final[dict[str, npt.DTypeLike]] = {
    name: np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name) for name in tensors.ITEM_SIZE
}
_LENGTH_BYTES: Final = 4


def array_of(tensor: Tensor) -> Array:
    """The elements; of a string ``bytes`` in an array of objects. Raises :class:`InvalidInput`."""
    if tensor.dtype == STRING:
        return _strings(tensor)
    dtype = _NUMPY.get(tensor.dtype)
    if dtype is None:
        msg = f"{tensor.name}: {tensor.dtype} cannot travel."
        raise errors.InvalidInput(msg)
    try:
        return np.frombuffer(tensor.data, dtype).reshape(tensor.shape)
    except ValueError as error:
        filled = counted(len(tensor.data), "byte does", "bytes do")
        msg = f"{tensor.name}: {filled} not fill {tensor.dtype}{list(tensor.shape)}."
        raise errors.InvalidInput(msg) from error


class Output(NamedTuple):
    """What a signature gave out under one name. dtype: TensorFlow's name of it."""

    dtype: str
    array: Array

    @staticmethod
    def of(name: str, dtype: str, value: Any) -> "Output":
        """``value``: an array, or the scalar that a tensor of rank 0 is given out as.

        Raises :class:`ModelError` for a dtype that cannot travel.
        """
        if dtype == STRING:
            return Output(dtype, np.asarray(value, dtype=object))
        if dtype not in _NUMPY:
            msg = f"Output {name[:60]!r} is of type {dtype}, which cannot travel."
            raise errors.ModelError(msg)
        return Output(dtype, np.asarray(value, dtype=_NUMPY[dtype]))

    def rows(self, first: int, end: int) -> "Output":
        """Part of it along dimension 0."""
        return Output(self.dtype, self.array[first:end])

    def tensor(self, name: str) -> Tensor:
        """The tensor in the form in which it travels."""
        if self.dtype != STRING:
            return Tensor(name, self.dtype, self.array.shape, self.array.tobytes())
        parts: list[bytes] = []
        for item in self.array.ravel():
            parts += (len(item).to_bytes(_LENGTH_BYTES, "little"), item)
        return Tensor(name, self.dtype, self.array.shape, b"".join(parts))


def joined(tensors_: Sequence[Tensor]) -> Array:
    """Tensors of equal name, dtype and inner shape, one behind the other along dimension 0."""
    head = tensors_[0]
    if head.dtype == STRING:
        return np.concatenate([_strings(tensor) for tensor in tensors_])
    shape = (sum(tensor.shape[0] for tensor in tensors_), *head.shape[1:])
    return array_of(Tensor(head.name, head.dtype, shape, b"".join(t.data for t in tensors_)))


def _strings(tensor: Tensor) -> Array:
    items, at, data = [], 0, tensor.data
    while at < len(data):
        size = int.from_bytes(data[at : at + _LENGTH_BYTES], "little")
        at += _LENGTH_BYTES
        items.append(data[at : at + size])
        at += size
    if at != len(data) or len(items) != int(np.prod(tensor.shape)):
        msg = f"{tensor.name}: {counted(len(items), 'string does', 'strings do')} not fill {list(tensor.shape)}."
        raise errors.InvalidInput(msg)
    array = np.empty(len(items), dtype=object)
    array[:] = items
    return array.reshape(tensor.shape)
