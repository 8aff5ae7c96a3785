"""Compares what a candidate gives with what another version gave for the same requests. Pure."""

from collections.abc import Container, Sequence
from typing import NamedTuple

import msgspec
import numpy as np

from signalbox.program.errors import InvalidInput
from signalbox.wire import tensors
from signalbox.wire.shadows import MOST_DIFFERENCE, MOST_NAME, MOST_TENSORS
from signalbox.wire.tensors import Tensor
from workers.runner.arrays import Array, array_of
from workers.runner.likeness import TOLERANCE, floor, is_inexact, unlike, wide


class Compared(NamedTuple):
    """The fields of :class:`workers.runner.frames.ShadowRan`."""

    compared: int
    outside: int
    failed: int
    tensors: dict[str, tuple[int, float]]


def compare(
    results: Sequence[bytes], expected: Sequence[bytes], failed: Container[int], *, tolerance: float
) -> Compared:
    """Compare the outputs of some requests, row by row where all of them have as many rows.

    results: the candidate's frames; those whose index is in ``failed`` have none.
    """
    compared = outside = lost = 0
    found: dict[str, tuple[int, float]] = {}
    for at, wanted in enumerate(expected):
        ones = tensors.decode(wanted)
        rows = _rows(ones)
        compared += rows
        if at in failed:
            lost += rows
            outside += rows
        elif results[at] == wanted:
            for one in ones[:MOST_TENSORS]:
                found.setdefault(one.name[:MOST_NAME], (0, 0.0))
        else:
            others = {other.name: other for other in tensors.decode(results[at])}
            wrong = np.zeros(rows, dtype=bool)
            for one in ones:
                differs, largest = _compare(one, others.get(one.name), rows, tolerance)
                wrong |= differs
                name = one.name[:MOST_NAME]
                if name in found or len(found) < MOST_TENSORS:
                    count, before = found.get(name, (0, 0.0))
                    found[name] = (count + int(differs.sum()), max(before, largest))
            outside += int(wrong.sum())
    return Compared(compared, outside, lost, found)


def _rows(ones: Sequence[Tensor]) -> int:
    """Rows that all outputs have, 1 where they have not the same number, or none."""
    sizes = {one.shape[0] if one.shape else 0 for one in ones}
    return max(1, sizes.pop()) if len(sizes) == 1 else 1


def _compare(one: Tensor, other: Tensor | None, rows: int, tolerance: float) -> tuple[Array, float]:
    """Which rows of one output are outside, and the largest difference; all are, where type or shape is another."""
    if other is None or (one.dtype, one.shape) != (other.dtype, other.shape):
        return np.ones(rows, dtype=bool), 0.0
    if one.data == other.data:
        return np.zeros(rows, dtype=bool), 0.0
    try:
        mine, its = array_of(one), array_of(other)
    except (InvalidInput, msgspec.MsgspecError):
        return np.ones(rows, dtype=bool), 0.0
    least = floor(mine) * (tolerance / TOLERANCE) if is_inexact(mine) else mine
    differs = unlike(mine, its, least, tolerance)
    return np.any(differs.reshape(rows, -1), axis=1, keepdims=True)[:, 0], _largest(mine, its)


def _largest(one: Array, other: Array) -> float:
    if one.dtype == object:
        return 0.0
    with np.errstate(all="ignore"):
        size = np.abs(wide(one) - wide(other))
    size = np.where(np.isnan(size), 0.0, size)
    return min(float(size.max(initial=0.0)), MOST_DIFFERENCE)
