"""The batch queue: jobs of one model that are in flight and have not started, and how they form batches. No I/O.

Jobs leave in order of priority, then of arrival. A batch is the first waiting job and those that
may run with it: same version, signature, outputs and ``batch_key``. It leaves when it is full or
when its first job has waited ``max_delay_ms``; a job without a ``batch_key`` leaves at once, alone, and so does each
job of a version whose requests may not be joined.
"""

from collections import deque
from collections.abc import Callable
from typing import Final, Generic, Protocol, TypeVar

from signalbox.wire.messages import Job
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import PRIORITIES, Priority
from workers.statistics.batchlimits import Key

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
"""Jobs of a model that are equal in this may run as one batch."""


class BatchQueue(Generic[H]):
    """The jobs of one model that are in flight and have not started, in order of priority, then of arrival."""

    def __init__(
        self,
        model: Model,
        may_join: Callable[[Model, int, str], bool],
        *,
        max_bytes: int = MAX_BATCH_BYTES,
        row_limit: Callable[[Key], int] = lambda _: 0,
    ) -> None:
        """may_join: see :meth:`workers.statistics.joinings.Joinings.may_join`.

        row_limit: rows of jobs that share a key that fit into the device's memory together, 0 = not known.
        """
        self.model = model
        self._may_join = may_join
        self._row_limit = row_limit
        self._max_bytes = max_bytes
        self._queues: dict[Priority, deque[tuple[Compatibility, H]]] = {priority: deque() for priority in PRIORITIES}
        self._rows: dict[Compatibility, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._queues.values()))

    def counts(self) -> dict[Priority, int]:
        """Waiting jobs by priority."""
        return {priority: len(queue) for priority, queue in self._queues.items()}

    def add(self, held: H) -> None:
        """Add a job, behind those of its priority that arrived before."""
        job = held.job
        key = (job.version, job.signature, job.batch_key, job.outputs)
        self._queues[job.priority].append((key, held))
        self._rows[key] = self._rows.get(key, 0) + job.rows

    def first(self) -> H | None:
        """The job that leaves next; None when none waits."""
        return next((queue[0][1] for queue in self._queues.values() if queue), None)

    def head(self, now_s: float) -> tuple[H, float] | None:
        """The job that leaves next, and in how many seconds its batch may leave (0 = now); None when none waits."""
        for queue in self._queues.values():
            if queue:
                key, head = queue[0]
                most = self._most(head)
                if most <= 1 or self._rows.get(key, 0) >= most:
                    return head, 0.0
                return head, max(0.0, head.arrived_s + self.model.batching.max_delay_ms / 1000 - now_s)
        return None

    def of(self, version: int) -> list[H]:
        """The jobs of one version, in the order in which they would leave."""
        return [held for queue in self._queues.values() for key, held in queue if key[0] == version]

    def take(self) -> list[H]:
        """The batch of the head, at least one job of it whatever its rows; empty when none waits."""
        batch: list[H] = []
        key: Compatibility | None = None
        room = 1
        rows = size = 0
        for queue in self._queues.values():
            passed: list[tuple[Compatibility, H]] = []
            while queue and room > 0:
                waiting = queue.popleft()
                held = waiting[1]
                job = held.job
                if key is None:
                    key, most = waiting[0], self._most(held)
                    room = most - job.rows if most > 1 else 0
                elif held.is_alone or waiting[0] != key:
                    passed.append(waiting)
                    continue
                elif job.rows > room or size + job.size_bytes > self._max_bytes:
                    queue.appendleft(waiting)
                    room = 0  # order of arrival: no smaller job overtakes this one
                    break
                else:
                    room -= job.rows
                batch.append(held)
                rows += job.rows
                size += job.size_bytes
            queue.extendleft(reversed(passed))
        if key is not None:
            self._forget(key, rows)
        return batch

    def remove(self, job_id: str) -> H | None:
        """Remove one job, if it is there."""
        for queue in self._queues.values():
            for waiting in queue:
                key, held = waiting
                if held.job.id == job_id:
                    queue.remove(waiting)
                    self._forget(key, held.job.rows)
                    return held
        return None

    def clear(self) -> list[H]:
        """Remove all jobs; returns them in the order in which they would have left."""
        everything = [held for queue in self._queues.values() for _, held in queue]
        for queue in self._queues.values():
            queue.clear()
        self._rows.clear()
        return everything

    def _most(self, held: H) -> int:
        """Rows that may run together with this job; 1: it runs alone."""
        job = held.job
        if not job.batch_key or held.is_alone or not self._may_join(self.model, job.version, job.signature):
            return 1
        most = self.model.batching.max_size
        row_limit = self._row_limit((job.model, job.version, job.batch_key))
        return min(most, row_limit) if row_limit else most

    def _forget(self, key: Compatibility, rows: int) -> None:
        left = self._rows.pop(key, 0) - rows
        if left > 0:
            self._rows[key] = left
