"""When a split is rolled back by itself. Pure: one fixed rule."""

import math
from collections.abc import Sequence
from typing import Final, NamedTuple

from signalbox.program.words import counted

LAST: Final = 200
"""Calls of a version that the rule looks at, the newest."""
FEWEST: Final = 20
"""Calls before errors and times say anything."""
CRASHES: Final = 3
"""Calls that ended their runner before those say something: three inputs, since one that does it again is refused."""


class Call(NamedTuple):
    """One call that has ended, or has ended its runner. run_ms: of one that succeeded."""

    is_error: bool
    is_crash: bool
    run_ms: float | None


class Sample(NamedTuple):
    """A version's last calls. crashes: calls with a strike: alone, they ended their runner, used its memory up or
    exceeded their time; each counts as failed, whatever a later attempt brings. timed: that succeeded.
    """

    calls: int
    failed: int
    crashes: int
    timed: int
    run_p50_ms: float | None
    run_p95_ms: float | None

    @property
    def error_share(self) -> float:
        """Part of the calls."""
        return self.failed / self.calls if self.calls else 0.0

    @property
    def crash_share(self) -> float:
        """Part of the calls."""
        return self.crashes / self.calls if self.calls else 0.0


class Bounds(NamedTuple):
    """error_points: percentage points that the candidate's share of errors may lie above the other's.

    run_factor: its p95 of run may be so many times the other's. run_floor_ms: or so much above it.
    """

    error_points: float
    run_factor: float
    run_floor_ms: float


def sample(calls: Sequence[Call]) -> Sample:
    """What the rule reads of calls."""
    runs = sorted(one.run_ms for one in calls if one.run_ms is not None)
    return Sample(
        calls=len(calls),
        failed=sum(one.is_error or one.is_crash for one in calls),
        crashes=sum(one.is_crash for one in calls),
        timed=len(runs),
        run_p50_ms=_percentile(runs, 50),
        run_p95_ms=_percentile(runs, 95),
    )


def why_rolled_back(candidate: Sample, other: Sample, bounds: Bounds) -> str:
    """Why nobody shall get the candidate any more, as a sentence; empty where the split goes on."""
    points = bounds.error_points / 100
    if candidate.crashes >= CRASHES and candidate.crash_share > other.crash_share + points:
        return f"{candidate.crashes} of its last {counted(candidate.calls, 'call')} ended the runner."
    if candidate.calls < FEWEST:
        return ""
    if candidate.error_share > other.error_share + points:
        return (
            f"{candidate.failed} of its last {candidate.calls} calls failed, and {other.failed} of"
            f" {other.calls} of the other version."
        )
    if min(candidate.timed, other.timed) < FEWEST:
        return ""
    mine, its = candidate.run_p95_ms or 0.0, other.run_p95_ms or 0.0
    if mine > max(bounds.run_factor * its, its + bounds.run_floor_ms):
        return f"The p95 of its runs is {mine:.4g} ms, and {its:.4g} ms of the other version."
    return ""


def _percentile(ordered: Sequence[float], percent: int) -> float | None:
    """Nearest rank."""
    return round(ordered[math.ceil(len(ordered) * percent / 100) - 1], 3) if ordered else None
