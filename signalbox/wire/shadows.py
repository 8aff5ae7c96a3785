"""What came of a candidate's shadow runs: figures that workers add up and tell, and that are added over workers. Pure.

Unlike what a job is told these are counts only: no input, no output and no name of a caller leaves the worker.
"""

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Final

import msgspec

MOST_TENSORS: Final = 16
MOST_NAME: Final = 60
MOST_DIFFERENCE: Final = 1e300
"""Larger ones, and those to no number, are told as this: JSON has no infinity."""


class TensorDifference(msgspec.Struct, frozen=True, array_like=True):
    """One output. outside: how often it was outside the tolerance. largest: difference of two of its numbers."""

    outside: int = 0
    largest: float = 0.0


class ShadowFigures(msgspec.Struct, frozen=True, omit_defaults=True, kw_only=True):
    """What one worker has found of a candidate since its shadow began.

    base: the version whose outputs it is compared with. since: of the split. compared: outputs, one for each row of the
    inputs, or for each request where they have no rows. outside: those of them that differ by more than the tolerance
    in any tensor, those ``failed`` included, which the candidate refused or died of. runs: shadow runs.
    run_s, base_run_s: seconds of ``timed`` runs of the candidate, and of the other version's of the same batches.
    halted: why this worker runs none any more.
    """

    base: int
    since: float = 0.0
    compared: int = 0
    outside: int = 0
    failed: int = 0
    runs: int = 0
    timed: int = 0
    run_s: float = 0.0
    base_run_s: float = 0.0
    tensors: dict[str, TensorDifference] = {}
    halted: str = ""


def added(found: Iterable[ShadowFigures]) -> ShadowFigures:
    """The figures of several workers, or runs, of one split, of which there is one at least."""
    each = list(found)
    return ShadowFigures(
        base=each[0].base,
        since=each[0].since,
        compared=sum(one.compared for one in each),
        outside=sum(one.outside for one in each),
        failed=sum(one.failed for one in each),
        runs=sum(one.runs for one in each),
        timed=sum(one.timed for one in each),
        run_s=sum(one.run_s for one in each),
        base_run_s=sum(one.base_run_s for one in each),
        tensors=_tensors(one.tensors for one in each),
        halted=next((one.halted for one in each if one.halted), ""),
    )


def _tensors(found: Iterable[Mapping[str, TensorDifference]]) -> dict[str, TensorDifference]:
    together: dict[str, TensorDifference] = {}
    for each in found:
        for name, one in islice(each.items(), MOST_TENSORS):
            before = together.get(name)
            if before is None and len(together) >= MOST_TENSORS:
                continue
            before = before or TensorDifference()
            largest = max(before.largest, min(one.largest, MOST_DIFFERENCE))
            together[name] = TensorDifference(before.outside + one.outside, largest)
    return together
