"""What a candidate's shadow runs say, added over workers. Pure: one fixed rule, which no run's time refuses."""

import math
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import msgspec

from signalbox.program.words import counted
from signalbox.wire.shadows import ShadowFigures, TensorDifference, added

FEWEST: Final = 3
"""Outputs outside the tolerance before they say something."""
SHARE: Final = 0.001
"""Of outputs that may be outside."""
_Z: Final = 1.645
"""The share is above its lower bound with a probability of 95 %."""
MOST_WORKERS: Final = 200
"""Whose figures are kept of one split: each start of a worker counts anew."""


class ShadowReport(NamedTuple):
    """What a page shows. share: of outputs that are outside. run_ms, base_run_ms: mean of a run of the same batches."""

    compared: int
    outside: int
    failed: int
    share: float
    runs: int
    run_ms: float | None
    base_run_ms: float | None
    tensors: dict[str, TensorDifference]
    halted: str


def report(shadowed: Mapping[str, Any]) -> ShadowReport | None:
    """Of a split's row; None where nothing was compared yet."""
    found = together(shadowed)
    if found is None:
        return None
    timed = found.timed
    return ShadowReport(
        compared=found.compared,
        outside=found.outside,
        failed=found.failed,
        share=found.outside / found.compared if found.compared else 0.0,
        runs=found.runs,
        run_ms=round(1000 * found.run_s / timed, 3) if timed else None,
        base_run_ms=round(1000 * found.base_run_s / timed, 3) if timed else None,
        tensors=found.tensors,
        halted=found.halted,
    )


def together(shadowed: Mapping[str, Any]) -> ShadowFigures | None:
    """The figures of all workers."""
    each = [msgspec.convert(one, ShadowFigures) for one in shadowed.values()]
    return added(each) if each else None


def why_told(found: ShadowFigures) -> str:
    """Why operators are told that a candidate is not alike, as a sentence; empty where nothing says so."""
    if found.halted:
        return f"{found.halted.rstrip('.')}, in shadow; that worker runs it in shadow no more."
    if found.outside < FEWEST or lower_bound(found.outside, found.compared) <= SHARE:
        return ""
    failed = f", {found.failed} of which failed" if found.failed else ""
    return f"{found.outside} of {counted(found.compared, 'output')} are outside the tolerance{failed}."


def lower_bound(outside: int, compared: int) -> float:
    """Of the share, by Wilson's score."""
    if not compared:
        return 0.0
    share, square = outside / compared, _Z * _Z
    middle = share + square / (2 * compared)
    spread = _Z * math.sqrt(share * (1 - share) / compared + square / (4 * compared * compared))
    return (middle - spread) / (1 + square / compared)
