"""Estimates the length of one class of a model's queue between two measurements. Pure: counts and instants in."""

import math
from collections import Counter, deque
from typing import Final, NamedTuple

_RATE_OVER_S: Final = 0.1


class QueueCounts(NamedTuple):
    """What the server knows of a class: jobs that wait, and those that its consumer has given since it was made."""

    waiting: int
    delivered: int


class QueueEstimate:
    """The last measurement of a class, what was let in since, and how many of the waiting jobs are each account's.

    A class is served in order, so the jobs that wait are the last that came. Between two measurements the workers are
    assumed to go on as fast as they did. Instants are of one clock, in seconds.

    rate: jobs taken a second. waiting: as last measured. since: let in after that was asked. total: let in ever.
    """

    def __init__(self) -> None:
        self._accounts: deque[str] = deque()
        self._counts: Counter[str] = Counter()
        self._asked = 0
        self._taken = 0
        self._delivered = math.inf
        self._taken_from = self._measured_at = float("-inf")
        self.rate = 0.0
        self.waiting = 0
        self.since = 0
        self.total = 0

    @property
    def most(self) -> int:
        """Jobs that wait if none was taken since the last measurement."""
        return self.waiting + self.since

    def enter(self, account: str) -> None:
        """Count one more job of an account in."""
        self._accounts.append(account)
        self._counts[account] += 1
        self.since += 1
        self.total += 1

    def ask(self) -> None:
        """Note that the server is being asked: jobs let in from now on are not in its answer."""
        self._asked = self.since

    def measured(self, reported: QueueCounts, now: float) -> None:
        """Store the answer to the last :meth:`ask`.

        nats-server counts what waits some time after it has acknowledged it, a busy one after seconds. So what was let
        in and not given to a worker waits, whatever it counts.
        """
        waiting, given = reported.waiting, reported.delivered - self._delivered
        self._delivered = reported.delivered
        if given >= 0:  # by the same consumer
            waiting = max(waiting, self._asked - max(0, int(given) - self.waiting))
            self._taken += max(0, min(int(given), self.waiting + self._asked - waiting))
        if now - self._taken_from >= _RATE_OVER_S:
            self.rate = self._taken / (now - self._taken_from)
            self._taken, self._taken_from = 0, now
        self.waiting, self._measured_at = waiting, now
        self.since -= self._asked
        self._asked = 0
        while len(self._accounts) > self.most:
            gone = self._accounts.popleft()
            self._counts[gone] -= 1
            if not self._counts[gone]:
                del self._counts[gone]

    def length(self, now: float) -> int:
        """Jobs that wait, as far as can be known."""
        most = self.waiting + self.since
        if not self.rate or not most:
            return most
        return max(0, round(most - self.rate * (now - self._measured_at)))

    def of(self, account: str, length: int) -> int:
        """How many of the waiting jobs are this account's, as far as can be known. length: of :meth:`length`."""
        own = self._counts.get(account, 0)
        return round(own * length / self.most) if own and self.rate else own
