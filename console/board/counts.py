"""What is counted of one model while its events are told: rates, times of jobs, how many waited. Pure."""

from collections import deque
from typing import Any, Final, NamedTuple

RATE_S: Final = 60
STEPS: Final = 60
"""Figures of the history of what waited."""
SPENT: Final = 400
"""Ended jobs that percentiles are taken of, at most."""
SPENT_S: Final = 900.0
"""And how long ago they ended, at most."""


class Counts:
    """Events counted by the second, for a rate over the last minute."""

    def __init__(self) -> None:
        self._seconds: deque[list[int]] = deque()

    def add(self, now: float) -> None:
        """One more."""
        second = int(now)
        if self._seconds and self._seconds[-1][0] == second:
            self._seconds[-1][1] += 1
        else:
            self._seconds.append([second, 1])

    def per_s(self, now: float, since: float) -> float:
        """Events a second; since: when counting began."""
        oldest = int(now) - RATE_S
        while self._seconds and self._seconds[0][0] < oldest:
            self._seconds.popleft()
        total = sum(count for _, count in self._seconds)
        return round(total / min(RATE_S, max(1.0, now - since)), 2)


class JobTime(NamedTuple):
    """One job that succeeded: when, how long it waited and ran."""

    at: float
    wait_s: float
    run_s: float


class ModelActivity:
    """Of a model that has or had jobs within the last quarter of an hour."""

    def __init__(self) -> None:
        self.history: deque[int] = deque(maxlen=STEPS)
        self.stepped_at = float("-inf")
        self.count_anew()

    def count_anew(self) -> None:
        """Begin rates and times: what came while nobody was told of events is missing between them."""
        self.arrived, self.done, self.failed, self.cancelled = Counts(), Counts(), Counts(), Counts()
        self.spent: deque[JobTime] = deque(maxlen=SPENT)

    def is_quiet(self, now: float) -> bool:
        """Whether nothing was counted within the last minute."""
        return not any(c.per_s(now, now) for c in (self.arrived, self.done, self.failed, self.cancelled))

    def is_over(self, now: float) -> bool:
        """Whether nothing has happened for as long as the history reaches back."""
        return len(self.history) == STEPS and not any(self.history) and self.is_quiet(now) and not self._recent(now)

    def percentiles(self, now: float) -> dict[str, Any]:
        """Those fields of a queue's row, and of how many jobs that have ended since when they are."""
        recent = self._recent(now)
        if not recent:
            return {}
        waits, runs = sorted(one.wait_s for one in recent), sorted(one.run_s for one in recent)
        return {
            "wait_p50_s": _percentile(waits, 50),
            "wait_p99_s": _percentile(waits, 99),
            "run_p50_s": _percentile(runs, 50),
            "run_p99_s": _percentile(runs, 99),
            "sampled": len(recent),
            "sampled_since": recent[0].at,
        }

    def _recent(self, now: float) -> deque[JobTime]:
        while self.spent and self.spent[0].at < now - SPENT_S:
            self.spent.popleft()
        return self.spent


def _percentile(ordered: list[float], percent: int) -> float:
    """Nearest rank, in seconds to the tenth of a millisecond."""
    return round(ordered[min(len(ordered) - 1, len(ordered) * percent // 100)], 4)
