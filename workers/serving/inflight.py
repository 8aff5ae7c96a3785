"""The jobs in flight at this worker: every delivered job, from its arrival to its acknowledgement.

A job is in flight while it waits, runs, commits and is being acknowledged. For all that time the queue must not
deliver it to another worker, so :meth:`InFlightJobs.touch` tells the server regularly.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from signalbox.bus.client import Delivery
from signalbox.wire.messages import Job, Record

MAX_NAMED: Final = 32
"""Ids of jobs in flight that the presence document names."""
MAX_MODELS: Final = 32
"""Models that the presence document counts waiting jobs of: those with the most."""


def boottime() -> float:
    """CLOCK_BOOTTIME in seconds: it counts the time that a machine slept, too."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class InFlightJob:
    """One job in flight.

    record, revision: what its subject in ``STATE`` holds as far as this worker knows (None, 0: nothing).
    written_at: when this worker last wrote it, UTC seconds, 0 = never.
    claim: turns a record into one that is claimed, for a claim that was not written by itself.
    known_at: when, on :func:`boottime`, the job was last known not to have ended and been forgotten.
    phases: milliseconds since acceptance. touched_s: when the server was last told that the job is worked on.
    cancelled_s: when this worker heard of its owner's cancel request, 0 = never.
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
        """Note a redelivery of the job while it is in flight: ``ack_wait`` has passed, or an operator asked for it."""
        self.delivery, self.touched_s, self.known_at = delivery, now_s, boottime()

    def ms(self, now: float) -> float:
        """Milliseconds from acceptance to ``now`` (UTC), never negative: clocks differ."""
        return round(max(0.0, now - self.job.created_at) * 1000, 2)


class InFlightJobs:
    """All jobs in flight, by id."""

    def __init__(self) -> None:
        self._held: dict[str, InFlightJob] = {}
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._held)

    def __iter__(self) -> Iterator[InFlightJob]:
        return iter(list(self._held.values()))

    def get(self, job_id: str) -> InFlightJob | None:
        """The job, if it is in flight."""
        return self._held.get(job_id)

    def take(self, held: InFlightJob) -> None:
        """Add a job that has been delivered."""
        self._held[held.job.id] = held
        self.bytes += len(held.delivery.data)

    def drop(self, held: InFlightJob) -> None:
        """Forget a job that this worker is done with. Idempotent."""
        if self._held.get(held.job.id) is held:
            del self._held[held.job.id]
            self.bytes -= len(held.delivery.data)

    def touch(self, now_s: float, older_than_s: float) -> list[InFlightJob]:
        """Tell the server of jobs that it has not heard of for ``older_than_s``: they are worked on. Returns them."""
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
