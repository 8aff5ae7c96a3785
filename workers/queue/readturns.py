"""Which queues are read at the same time, of those that are known to hold jobs. Pure.

To give a job of one queue the server reads past those of all others that lie before it, and stores no new job
meanwhile: a thousand queues that are asked at once keep it from accepting any for seconds. So few are asked at a time,
those of higher priority first, then in the order in which they were to be asked.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from signalbox.wire.names import PRIORITIES, Priority

AT_ONCE: Final = 2
"""More bring no job sooner: the server reads with all its processors as it is."""
Q = TypeVar("Q", bound=Hashable)


class ReadTurns(Generic[Q]):
    """The turns of one session's queues."""

    def __init__(self) -> None:
        self._reading: set[Q] = set()
        self._waiting: dict[Priority, dict[Q, int]] = {priority: {} for priority in PRIORITIES}

    def take(self, queue: Q, priority: Priority, number: int) -> bool:
        """Whether so many jobs of a queue may be asked for now. Otherwise they are remembered for :meth:`next`."""
        is_crowded = queue not in self._reading and len(self._reading) >= AT_ONCE
        if is_crowded or any(self._waiting.values()):
            waiting = self._waiting[priority]
            waiting[queue] = waiting.get(queue, 0) + number
            return False
        self._reading.add(queue)
        return True

    def waiting(self, queue: Q) -> int:
        """Jobs of a queue that are remembered."""
        return sum(waiting.get(queue, 0) for waiting in self._waiting.values())

    def is_reading(self, queue: Q) -> bool:
        """Whether a queue has a turn."""
        return queue in self._reading

    def end(self, queue: Q) -> None:
        """A queue has given what it was asked for, or has no more."""
        self._reading.discard(queue)

    def forget(self, queue: Q) -> None:
        """A queue is read no more."""
        self.end(queue)
        self.withdraw(queue)

    def withdraw(self, queue: Q) -> None:
        """Ask of a queue no more than it was asked already."""
        for waiting in self._waiting.values():
            waiting.pop(queue, None)

    def next(self) -> tuple[Q, int] | None:
        """The queue whose turn has come, and how many jobs to ask of it."""
        if len(self._reading) >= AT_ONCE:
            return None
        for waiting in self._waiting.values():
            if waiting:
                queue = next(iter(waiting))
                self._reading.add(queue)
                return queue, waiting.pop(queue)
        return None
