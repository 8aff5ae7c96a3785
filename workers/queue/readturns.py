"""Which queues are read at the same time, of those that are known to hold jobs. Pure: times are told.

To give a job of one queue the server reads past those of all others that lie before it, and stores no new job
meanwhile: a thousand queues that are asked at once keep it from accepting any for seconds. So few are asked at a time,
those of higher priority first, then in the order in which they were to be asked. Where the worker has very many queues
it is one at a time. There a turn takes long where the server loads what it reads past from its disk: then none begins
for as long again, in which it stores what has come.
"""

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

from signalbox.wire.names import PRIORITIES, Priority

AT_ONCE: Final = 2
"""More bring no job sooner: the server reads with all its processors as it is."""
LONG_TURN_S: Final = 0.05
LONGEST_REST_S: Final = 0.5
"""After a turn that took longer still the server was not reading, but did not answer."""
Q = TypeVar("Q", bound=Hashable)


class ReadTurns(Generic[Q]):
    """The turns of one session's queues. is_crowded: there are very many. rests_until_s: until then no turn begins."""

    def __init__(self) -> None:
        self.is_crowded = False
        self._reading: dict[Q, float] = {}
        self._waiting: dict[Priority, dict[Q, int]] = {priority: {} for priority in PRIORITIES}
        self.rests_until_s = 0.0

    def take(self, queue: Q, priority: Priority, number: int, now_s: float) -> bool:
        """Whether so many jobs of a queue may be asked for now. Otherwise they are remembered for :meth:`next`."""
        if (queue not in self._reading and self._is_full) or now_s < self.rests_until_s or any(self._waiting.values()):
            waiting = self._waiting[priority]
            waiting[queue] = waiting.get(queue, 0) + number
            return False
        self._reading[queue] = now_s
        return True

    def waiting(self, queue: Q) -> int:
        """Jobs of a queue that are remembered."""
        return sum(waiting.get(queue, 0) for waiting in self._waiting.values())

    def is_reading(self, queue: Q) -> bool:
        """Whether a queue has a turn."""
        return queue in self._reading

    def end(self, queue: Q, now_s: float) -> None:
        """A queue has given what it was asked for, or has no more."""
        began_s = self._reading.pop(queue, now_s)
        took_s = now_s - began_s
        if self.is_crowded and took_s > LONG_TURN_S:  # elsewhere a request waits for jobs, and its turn as long
            self.rests_until_s = now_s + min(took_s, LONGEST_REST_S)

    def forget(self, queue: Q) -> None:
        """A queue is read no more."""
        self._reading.pop(queue, None)
        self.withdraw(queue)

    def withdraw(self, queue: Q) -> bool:
        """Ask of a queue no more than it was asked already. Returns whether more was remembered."""
        return sum(waiting.pop(queue, 0) for waiting in self._waiting.values()) > 0

    def next(self, now_s: float) -> tuple[Q, int] | None:
        """The queue whose turn has come, and how many jobs to ask of it."""
        if self._is_full or now_s < self.rests_until_s:
            return None
        for waiting in self._waiting.values():
            if waiting:
                queue = next(iter(waiting))
                self._reading[queue] = now_s
                return queue, waiting.pop(queue)
        return None

    @property
    def _is_full(self) -> bool:
        return len(self._reading) >= (1 if self.is_crowded else AT_ONCE)
