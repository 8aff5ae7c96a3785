"""Jobs of one model that wait in this worker's hands, and how they form batches. No I/O, no clock.

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
    """What a line needs to know of a job."""

    @property
    def job(self) -> Job:
        """The job itself."""

    @property
    def arrived_s(self) -> float:
        """When it came into this worker's hands, monotonic."""

    @property
    def is_alone(self) -> bool:
        """It must not share a batch."""


H = TypeVar("H", bound=Waiting)
Company = tuple[int, str, str, tuple[str, ...]]


def company(job: Job) -> Company:
    """Jobs with equal company may run as one batch."""
    return (job.version, job.signature, job.batch_key, job.outputs)


class Line(Generic[H]):
    """The jobs of one model that are in hand and have not started."""

    def __init__(
        self, batching: Batching, *, max_bytes: int = MAX_BATCH_BYTES, row_limit: Callable[[Job], int] = lambda _: 0
    ) -> None:
        """row_limit: rows like a job's that fit into the device's memory together, 0 = not known."""
        self.batching = batching
        self._row_limit = row_limit
        self._max_bytes = max_bytes
        self._lines: dict[Priority, deque[H]] = {priority: deque() for priority in PRIORITIES}
        self._rows: dict[Company, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._lines.values()))

    def count(self, priority: Priority) -> int:
        """Waiting jobs of one priority."""
        return len(self._lines[priority])

    def add(self, held: H) -> None:
        """A job has arrived. Its place is behind those of its priority that arrived before."""
        job = held.job
        self._lines[job.priority].append(held)
        key = company(job)
        self._rows[key] = self._rows.get(key, 0) + job.rows

    @property
    def head(self) -> H | None:
        """The job that leaves next."""
        for line in self._lines.values():
            if line:
                return line[0]
        return None

    def due_s(self, now_s: float) -> float | None:
        """Seconds until a batch may leave (0 = now), or None when nothing waits."""
        head = self.head
        if head is None:
            return None
        if not self._wants_company(head) or self._rows[company(head.job)] >= self._most(head):
            return 0.0
        return max(0.0, head.arrived_s + self.batching.max_delay_ms / 1000 - now_s)

    def take(self, now_s: float) -> list[H]:
        """The batch that is due, at least one job of it whatever its rows; empty when none is."""
        if self.due_s(now_s) != 0.0:
            return []
        head = self.head
        assert head is not None, "a line with something due has a head"
        return self._gather(head)

    def remove(self, job_id: str) -> H | None:
        """Take one job out of the line, if it is there."""
        for line in self._lines.values():
            for held in line:
                if held.job.id == job_id:
                    line.remove(held)
                    self._forget(held)
                    return held
        return None

    def clear(self) -> list[H]:
        """Take all jobs out, in the order in which they would have left."""
        everything = [held for line in self._lines.values() for held in line]
        for line in self._lines.values():
            line.clear()
        self._rows.clear()
        return everything

    def _wants_company(self, held: H) -> bool:
        return bool(held.job.batch_key) and not held.is_alone and self._most(held) > 1

    def _most(self, held: H) -> int:
        """Rows that may run together with this job."""
        row_limit = self._row_limit(held.job)
        return min(self.batching.max_size, row_limit) if row_limit else self.batching.max_size

    def _gather(self, head: H) -> list[H]:
        if not self._wants_company(head):
            self._lines[head.job.priority].popleft()
            self._forget(head)
            return [head]
        key = company(head.job)
        batch: list[H] = []
        rows = size = 0
        most = self._most(head)
        for line in self._lines.values():
            passed: list[H] = []
            while line and rows < most:
                held = line.popleft()
                job = held.job
                if held.is_alone or company(job) != key:
                    passed.append(held)
                    continue
                is_full = rows + job.rows > most
                if batch and (is_full or size + job.size_bytes > self._max_bytes):
                    line.appendleft(held)
                    rows = most  # order of arrival: nobody smaller slips past
                    break
                batch.append(held)
                rows += job.rows
                size += job.size_bytes
                self._forget(held)
            line.extendleft(reversed(passed))
        return batch

    def _forget(self, held: H) -> None:
        key = company(held.job)
        rows = self._rows[key] - held.job.rows
        if rows > 0:
            self._rows[key] = rows
        else:
            del self._rows[key]
