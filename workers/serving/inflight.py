"""The jobs in flight at this worker: every delivered job, from its arrival to its acknowledgement.

A job is in flight while it waits, runs, commits and is being acknowledged. For all that time the queue must not
deliver it to another worker, so :meth:`InFlightJobs.touch` tells the server regularly.
"""

from collections import Counter
from collections.abc import Iterator
from typing import Final

from signalbox.bus.client import Delivery
from signalbox.jobs.attempts import Attempt, boottime
from signalbox.wire.messages import Job
from workers.host.presence import MAX_NAMED

MAX_MODELS: Final = 32
"""Models that the presence document counts waiting jobs of: those with the most."""


class InFlightJob(Attempt):
    """One job in flight. touched_s: when the server was last told that the job is worked on.

    cancelled_s: when this worker heard of its owner's cancel request, 0 = never.
    """

    __slots__ = ("arrived_s", "cancelled_s", "delivery", "touched_s")

    def __init__(self, delivery: Delivery, job: Job, *, now_s: float) -> None:
        super().__init__(job)
        self.delivery = delivery
        self.arrived_s = now_s
        self.touched_s = now_s
        self.cancelled_s = 0.0

    def delivered_again(self, delivery: Delivery, now_s: float) -> None:
        """Note a redelivery of the job while it is in flight: ``ack_wait`` has passed, or an operator asked for it."""
        self.delivery, self.touched_s, self.known_at = delivery, now_s, boottime()


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

    def drop(self, held: InFlightJob) -> bool:
        """Forget a job that this worker is done with. False where it is not in flight."""
        if self._held.get(held.job.id) is not held:
            return False
        del self._held[held.job.id]
        self.bytes -= len(held.delivery.data)
        return True

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
