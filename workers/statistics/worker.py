"""Statistics of a worker: run times, rates, sizes, counts, and bytes of results by account. No I/O."""

import time
from collections import defaultdict
from itertools import islice
from typing import Final

from workers.statistics.batchlimits import BatchLimits
from workers.statistics.byterate import ByteRate
from workers.statistics.joinings import Joinings
from workers.statistics.lru import Lru
from workers.statistics.shadowed import Shadowed
from workers.statistics.sizes import Sizes
from workers.statistics.storedbytes import StoredBytes

SHARE: Final = 0.2
"""Weight of the newest measurement in a moving average."""
MOST_MODELS: Final = 1024
"""Models whose averages are kept: those that ran last."""
MOST_REPORTED: Final = 128
"""Rates that presence tells."""


class Statistics:
    """Moving averages per model, counts since the process started, the device's batch limits, joinings and shadows.

    run_s, load_s: mean seconds of a run and of a load, by model. mean_bytes: of a job's inputs. Not there before the
    first. load_rate: bytes of a version that a load takes a second. used_s: seconds that runs and loads have taken, by
    activity. results_kept_s: the least time that results are kept.
    """

    def __init__(self, *, results_kept_s: float = 600.0) -> None:
        self.results = StoredBytes(kept_s=results_kept_s, clock=time.monotonic)
        self.large_results = StoredBytes(kept_s=results_kept_s, clock=time.monotonic)
        self.batch_limits = BatchLimits()
        self.sizes = Sizes()
        self.joinings = Joinings()
        self.shadowed = Shadowed()
        self.done = 0
        self.failed = 0
        self.used_s: defaultdict[str, float] = defaultdict(float)
        self.run_s: Lru[str, float] = Lru(MOST_MODELS)
        self.load_s: Lru[str, float] = Lru(MOST_MODELS)
        self.load_rate = ByteRate()
        self.mean_bytes: Lru[str, float] = Lru(MOST_MODELS)
        self._rate: Lru[str, float] = Lru(MOST_MODELS)

    def ran(self, model: str, *, jobs: int, seconds: float, size_bytes: int) -> None:
        """A batch of ``jobs`` jobs took ``seconds`` and had ``size_bytes`` of inputs together."""
        measured = (
            (self.run_s, seconds),
            (self._rate, jobs / max(seconds, 1e-6)),
            (self.mean_bytes, size_bytes / max(jobs, 1)),
        )
        for table, value in measured:
            before = table.get(model, value)
            table[model] = before + SHARE * (value - before)

    def used(self, activity: str, seconds: float) -> None:
        """The runner has computed, or loaded, for so long."""
        self.used_s[activity] += seconds

    def loaded(self, model: str, seconds: float) -> None:
        """A version of the model was loaded and warmed up in ``seconds``."""
        before = self.load_s.get(model, seconds)
        self.load_s[model] = before + SHARE * (seconds - before)

    def rates(self) -> dict[str, float]:
        """Jobs a second this worker manages while it serves a model; the models that ran last, the last one first."""
        return _latest(self._rate)  # a run of minutes has a rate, too

    def usual_loads(self) -> dict[str, float]:
        """Mean seconds of a load by model; the models that were loaded last, the last one first."""
        return _latest(self.load_s)


def _latest(table: Lru[str, float]) -> dict[str, float]:
    return {model: float(f"{value:.3g}") for model, value in islice(reversed(table.items()), MOST_REPORTED)}
