"""What this worker has in hand: every delivered job from its arrival to its acknowledgement.

A job is in hand while it waits, runs, commits and is being acknowledged. For all that time the
queue must not give it to somebody else, so :meth:`Hand.touch` tells the server regularly.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from signalbox.bus.client import Delivery
from signalbox.wire.messages import Job, Record

MAX_NAMED: Final = 32
"""Ids of jobs in hand that the presence document names."""
MAX_MODELS: Final = 32
"""Models that the presence document counts waiting jobs of: those with the most."""


def boottime() -> float:
    """CLOCK_BOOTTIME in seconds: it counts what a machine slept too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Held:
    """One job in hand.

    record, revision: what its subject in ``STATE`` holds as far as we know (None, 0: nothing).
    written_at: when we last wrote it, UTC seconds, 0 = never.
    claim: turns a record into one that is claimed, for a claim that was not written by itself.
    known_at: when, on :func:`boottime`, the job was last known not to have ended and been forgotten.
    phases: milliseconds since acceptance. touched_s: when the server last knew that we work on it.
    cancelled_s: when its owner's wish to cancel was heard here, 0 = never.
    """

    __slots__ = (
        "arrived_s",
        "cancelled_s",
        "claim",
        "delivery",
        "is_alone",
        "is_cancelled",
        "job",
        "known_at",
        "phases",
        "record",
        "revision",
        "touched_s",
        "written_at",
    )

    def __init__(self, delivery: Delivery, job: Job, *, now_s: float) -> None:
        self.delivery = delivery
        self.job = job
        self.arrived_s = now_s
        self.touched_s = now_s
        self.known_at = boottime()
        self.cancelled_s = 0.0
        self.phases: dict[str, float] = {}
        self.record: Record | None = None
        self.revision = 0
        self.written_at = 0.0
        self.claim: Callable[[Record], Record] | None = None
        self.is_alone = False
        self.is_cancelled = False

    def delivered_again(self, delivery: Delivery, now_s: float) -> None:
        """The queue lost patience, or was told to, while it is in hand."""
        self.delivery, self.touched_s, self.known_at = delivery, now_s, boottime()

    def ms(self, now: float) -> float:
        """Milliseconds from acceptance to ``now`` (UTC), never negative: clocks differ."""
        return round(max(0.0, now - self.job.created_at) * 1000, 2)


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
