"""What this worker has in hand: every delivered job from its arrival to its acknowledgement.

A job is in hand while it waits, runs, commits and is being acknowledged. For all that time the
queue must not give it to somebody else, so :meth:`Hand.touch` tells the server regularly.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from signalbox.bus.client import Delivery
from signalbox.jobs.attempts import Attempt, boottime
from signalbox.wire.messages import Job

MAX_NAMED: Final = 32
"""Ids of jobs in hand that the presence document names."""
MAX_MODELS: Final = 32
"""Models that the presence document counts waiting jobs of: those with the most."""


class Held(Attempt):
    """One job in hand. touched_s: when the server last knew that we work on it.

    cancelled_s: when its owner's wish to cancel was heard here, 0 = never.
    """

    __slots__ = ("arrived_s", "cancelled_s", "delivery", "touched_s")

    def __init__(self, delivery: Delivery, job: Job, *, now_s: float) -> None:
        super().__init__(job)
        self.delivery = delivery
        self.arrived_s = now_s
        self.touched_s = now_s
        self.cancelled_s = 0.0

    def delivered_again(self, delivery: Delivery, now_s: float) -> None:
        """The queue lost patience, or was told to, while it is in hand."""
        self.delivery, self.touched_s, self.known_at = delivery, now_s, boottime()


class Hand:
    """All jobs in hand, by id."""

    def __init__(self) -> None:
        self._held: dict[str, Held] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[Held]:
        return iter(list(self._held.values()))

    def get(self, job_id: str) -> Held | None:
        """The job, if it is in hand."""
        return self._held.get(job_id)

    def take(self, held: Held) -> None:
        """A job has arrived."""
        self._held[held.job.id] = held
        self.bytes += len(held.delivery.data)

    def drop(self, held: Held) -> None:
        """Nothing more is to be done for it here. Idempotent."""
        if self._held.get(held.job.id) is held:
            del self._held[held.job.id]
            self.bytes -= len(held.delivery.data)

    def touch(self, now_s: float, older_than_s: float) -> list[Held]:
        """Tell the server that we still work on what it last heard of before ``older_than_s``; returns those."""
        touched = [h for h in self._held.values() if now_s - h.touched_s >= older_than_s]
        for held in touched:
            held.delivery.in_progress()
            held.touched_s = now_s
        return touched

    def ids(self) -> tuple[str, ...]:
        """Ids for the presence document."""
        return tuple(list(self._held)[:MAX_NAMED])

    def waiting(self) -> dict[str, int]:
        """Jobs that have not begun, by model, for the presence document."""
        counts = Counter(h.job.model for h in self._held.values() if "started" not in h.phases)
        return dict(counts.most_common(MAX_MODELS))
