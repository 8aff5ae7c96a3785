"""The jobs in flight at this worker: every delivered job, from its arrival until its end is durable or it is let go."""

import math
from collections import Counter
from collections.abc import Iterator
from itertools import islice
from typing import Final

from signalbox.bus.client import Delivery
from signalbox.jobs.attempts import Attempt
from signalbox.wire.messages import Job
from workers.host.presence import MAX_NAMED

MAX_MODELS: Final = 32
"""Models that the presence document counts jobs of: those with the most."""


class InFlightJob(Attempt):
    """One job in flight. looked_s: when its record was last known, or looked at for a cancel request.

    cancelled_s: when its owner's cancel request came to this worker, 0 = never. is_begun: its run has begun, and it is
    not to run again in this attempt. seen_s: when its waits were last noted, at first its arrival, and readings of the
    occupancy then.
    """

    __slots__ = ("arrived_s", "cancelled_s", "checked_s", "delivery", "is_begun", "seen_s")

    def __init__(self, delivery: Delivery, job: Job, *, now_s: float) -> None:
        super().__init__(job)
        self.delivery = delivery
        self.arrived_s = now_s
        self.checked_s = now_s
        self.cancelled_s = 0.0
        self.is_begun = False
        self.seen_s = (now_s, 0.0, 0.0)

    def begin_anew(self, now_s: float) -> None:
        """Note that the job waits for another attempt, from now on."""
        self.arrived_s = self.checked_s = now_s
        self.stages = []
        self.is_begun = False


class InFlightJobs(dict[str, InFlightJob]):
    """All jobs in flight, by id. bytes: of their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0
        self._reported: frozenset[str] = frozenset()

    def take(self, held: InFlightJob) -> None:
        """Add a job that has been delivered."""
        self[held.job.id] = held
        self.bytes += len(held.delivery.data)

    def drop(self, held: InFlightJob) -> bool:
        """Forget a job that this worker is done with. False where it is not in flight."""
        if self.get(held.job.id) is not held:
            return False
        del self[held.job.id]
        self.bytes -= len(held.delivery.data)
        return True

    def unchecked(self, now_s: float, older_than_s: float) -> list[InFlightJob]:
        """Claimed jobs whose records nobody has looked at for so long; they count as looked at from now on."""
        found = [h for h in self.values() if h.record is not None and now_s - h.checked_s >= older_than_s]
        for held in found:
            held.checked_s = now_s
        return found

    def ids(self) -> tuple[str, ...]:
        """Ids for the presence document."""
        return tuple(islice(self, MAX_NAMED))

    def by_model(self) -> dict[str, int]:
        """Jobs by model, for the presence document."""
        return dict(Counter(h.job.model for h in self.values()).most_common(MAX_MODELS))

    def waiting(self) -> dict[str, int]:
        """Jobs that have not begun, by model, for the presence document; :meth:`has_unreported` is about later ones."""
        counts = Counter(held.job.model for held in self._unbegun())
        self._reported = frozenset(counts)
        return dict(counts.most_common(MAX_MODELS))

    def oldest(self) -> dict[str, float]:
        """Since when the first of those waits, by model: it was accepted then, or was delayed until then."""
        first: dict[str, float] = {}
        for held in self._unbegun():
            waits_since = max(held.job.created_at, held.job.not_before)
            first[held.job.model] = min(waits_since, first.get(held.job.model, math.inf))
        return {model: first[model] for model in self.waiting()}

    def has_unreported(self) -> bool:
        """Whether a job has not begun of a model of which :meth:`waiting` had none when it was last asked."""
        return any(held.job.model not in self._reported for held in self._unbegun())

    def _unbegun(self) -> Iterator[InFlightJob]:
        return (held for held in self.values() if not held.is_begun)
