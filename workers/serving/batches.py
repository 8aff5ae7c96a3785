"""The batch queue: jobs of one model that are in flight and have not started, and how they form batches. No I/O.

Jobs leave in order of priority, then of arrival. A batch is the first waiting job and those that
may run with it: same version, signature, outputs and ``batch_key``. It leaves when it is full or
when its first job has waited ``max_delay_ms``; a job without a ``batch_key`` leaves at once, alone.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from signalbox.wire.messages import Batching, Job
from signalbox.wire.names import PRIORITIES, Priority

MAX_BATCH_BYTES: Final = 64 * 1024 * 1024
"""Bytes of inputs a batch may hold in memory; one job alone may be larger."""


class Waiting(Protocol):
    """What a batch queue needs to know of a job."""

    @property
    def job(self) -> Job:
        """The job itself."""

    @property
    def arrived_s(self) -> float:
        """When it was delivered to this worker, on the monotonic clock."""

    @property
    def is_alone(self) -> bool:
        """Whether it must run alone."""


H = TypeVar("H", bound=Waiting)
Compatibility = tuple[int, str, str, tuple[str, ...]]


def compatibility(job: Job) -> Compatibility:
    """The batch compatibility key of a job: jobs with equal keys may run as one batch."""
    return (job.version, job.signature, job.batch_key, job.outputs)


class BatchQueue(Generic[H]):
    """The jobs of one model that are in flight and have not started, in order of priority, then of arrival."""

    def __init__(
        self, batching: Batching, *, max_bytes: int = MAX_BATCH_BYTES, row_limit: Callable[[Job], int] = lambda _: 0
    ) -> None:
        """row_limit: rows like a job's that fit into the device's memory together, 0 = not known."""
        self.batching = batching
        self._row_limit = row_limit
        self._max_bytes = max_bytes
        self._queues: dict[Priority, deque[H]] = {priority: deque() for priority in PRIORITIES}
        self._rows: dict[Compatibility, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def counts(self) -> dict[Priority, int]:
        """Waiting jobs by priority."""
        return {priority: len(queue) for priority, queue in self._queues.items()}

    def add(self, held: H) -> None:
        """Add a job, behind those of its priority that arrived before."""
        job = held.job
        self._queues[job.priority].append(held)
        key = compatibility(job)
        self._rows[key] = self._rows.get(key, 0) + job.rows

    @property
    def head(self) -> H | None:
        """The job that leaves next."""
        for queue in self._queues.values():
            if queue:
                return queue[0]
        return None

    def due_s(self, now_s: float) -> float | None:
        """Seconds until a batch may leave (0 = now), or None when nothing waits."""
        head = self.head
        return self._due_s(head, self._most(head), now_s) if head is not None else None

    def take(self, now_s: float) -> list[H]:
        """The batch that is due, at least one job of it whatever its rows; empty when none is."""
        head = self.head
        if head is None:
            return []
        most = self._most(head)
        return self._gather(head, most) if self._due_s(head, most, now_s) == 0.0 else []

    def remove(self, job_id: str) -> H | None:
        """Remove one job, if it is there."""
        for queue in self._queues.values():
            for held in queue:
                if held.job.id == job_id:
                    queue.remove(held)
                    self._forget(held)
                    return held
        return None

    def clear(self) -> list[H]:
        """Remove all jobs; returns them in the order in which they would have left."""
        everything = [held for queue in self._queues.values() for held in queue]
        for queue in self._queues.values():
            queue.clear()
        self._rows.clear()
        return everything

    def _most(self, held: H) -> int:
        """Rows that may run together with this job; 1: it runs alone."""
        if not held.job.batch_key or held.is_alone:
            return 1
        row_limit = self._row_limit(held.job)
        return min(self.batching.max_size, row_limit) if row_limit else self.batching.max_size

    def _due_s(self, head: H, most: int, now_s: float) -> float:
        if most <= 1 or self._rows[compatibility(head.job)] >= most:
            return 0.0
        return max(0.0, head.arrived_s + self.batching.max_delay_ms / 1000 - now_s)

    def _gather(self, head: H, most: int) -> list[H]:
        if most <= 1:
            self._queues[head.job.priority].popleft()
            self._forget(head)
            return [head]
        key = compatibility(head.job)
        batch: list[H] = []
        rows = size = 0
        for queue in self._queues.values():
            passed: list[H] = []
            while queue and rows < most:
                held = queue.popleft()
                job = held.job
                if held.is_alone or compatibility(job) != key:
                    passed.append(held)
                    continue
                is_full = rows + job.rows > most
                if batch and (is_full or size + job.size_bytes > self._max_bytes):
                    queue.appendleft(held)
                    rows = most  # order of arrival: no smaller job overtakes this one
                    break
                batch.append(held)
                rows += job.rows
                size += job.size_bytes
                self._forget(held)
            queue.extendleft(reversed(passed))
        return batch

    def _forget(self, held: H) -> None:
        key = compatibility(held.job)
        rows = self._rows[key] - held.job.rows
        if rows > 0:
            self._rows[key] = rows
        else:
            del self._rows[key]
