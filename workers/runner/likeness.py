"""Whether two answers are alike, within a tolerance. Pure."""

from typing import Any, Final

import ml_dtypes
import numpy as np

from workers.runner.arrays import Array

TOLERANCE: Final = 1e-4
"""Relative difference of floats that counts as none: another batch size may mean another algorithm."""


def unlike(one: Array, other: Array, least: Array, tolerance: float = TOLERANCE) -> Array:
    """Where values differ: floats by more than the tolerance and ``least``; NaN is like NaN."""
    if not is_inexact(one):
        return np.asarray(one != other, dtype=bool)
    tolerance = max(tolerance, 2 * _epsilon(one.dtype))  # a half float has fewer digits
    one, other = wide(one), wide(other)
    with np.errstate(all="ignore"):
        apart = np.abs(one - other)  # infinite to an infinity, and so is what would be tolerated
        near = np.isfinite(apart) & (apart <= tolerance * np.maximum(np.abs(one), np.abs(other)) + least)
        return np.asarray(~(near | (one == other) | (np.isnan(one) & np.isnan(other))), dtype=bool)


def _epsilon(dtype: np.dtype[Any]) -> float:
    return float(ml_dtypes.finfo(dtype).eps)  # type: ignore[no-untyped-call]  # it has no types


def floor(array: Array) -> Array:
    """Differences that count as none though a value is near zero: sums of larger numbers leave so much there.

    A hundred thousandth of the largest value at the same place of any row; a millionth, or that of the largest of all
    where they are small.
    """
    size = np.abs(wide(array))
    size = np.where(np.isfinite(size), size, 0.0)
    largest = float(size.max(initial=0.0))
    return np.broadcast_to(
        np.maximum(1e-5 * (size.max(axis=0) if size.ndim else size), 1e-6 * min(1.0, largest)), array.shape
    )


def is_inexact(array: Array) -> bool:
    """Whether its values are rounded."""
    return array.dtype.kind in "fc" or array.dtype == ml_dtypes.bfloat16


def wide(array: Array) -> Array:
    """Its values in double precision."""
    return array.astype(np.complex128 if array.dtype.kind == "c" else np.float64)
