"""Jobs that may have been delivered before, and whose records are to be read before they run."""

from collections import Counter
from collections.abc import Iterable

from signalbox.wire.names import Priority
from workers.serving.inflight import InFlightJob


class UnexaminedJobs:
    """In order of arrival, and counted by class."""

    def __init__(self) -> None:
        self._jobs: list[InFlightJob] = []
        self._counts: Counter[tuple[str, Priority]] = Counter()

    def __bool__(self) -> bool:
        """Whether there is one."""
        return bool(self._jobs)

    def count(self, model: str, priority: Priority) -> int:
        """Jobs of one class."""
        return self._counts[model, priority]

    def add(self, jobs: Iterable[InFlightJob]) -> None:
        """Add jobs at the end."""
        for held in jobs:
            self._jobs.append(held)
            self._counts[held.job.model, held.job.priority] += 1

    def first(self, most: int) -> list[InFlightJob]:
        """The first jobs, which stay."""
        return self._jobs[:most]

    def drop(self, number: int) -> None:
        """Take the first jobs away, as many as there are."""
        for held in self._jobs[:number]:
            self._counts[held.job.model, held.job.priority] -= 1
        del self._jobs[:number]

    def clear(self) -> list[InFlightJob]:
        """Take all of them away."""
        jobs = self._jobs
        self._jobs = []
        self._counts.clear()
        return jobs
