"""Decides which accounts' jobs get the class they asked for, and which go to ``lo``. Pure: counts in, a class out.

A class has some room; of it an account may have as many jobs waiting as are places left. That alone holds places
for newcomers and gives equal shares to all who keep their share full: the dynamic thresholds of A. K. Choudhury and
E. L. Hahne, "Dynamic queue length thresholds for shared-memory packet switches" (1998), with a factor of one. What is
above goes to ``lo``, which is served when nothing waits before it: so an account that is alone loses nothing.
"""

import math
from collections.abc import Mapping
from typing import Final

from gateway_plugin.admission.estimate import QueueCounts, QueueEstimate
from signalbox.wire.names import PRIORITIES, Priority

LEAST: Final = PRIORITIES[-1]
_ROOM_S: Final = 0.5
"""The room of a quick model is what its workers take in this time: it answers many callers with one batch."""


class Shares:
    """The classes of one model. room: places in each class above ``lo``, at least; 0 = as asked for.

    since: jobs let in after the last measurement.
    """

    def __init__(self, room: int) -> None:
        self._room = room
        self.estimates: dict[Priority, QueueEstimate] = {priority: QueueEstimate() for priority in PRIORITIES}
        self._waiting = self.since = 0
        self._rate = 0.0
        self._sent_back: dict[tuple[str, Priority], int] = {}

    @property
    def most(self) -> int:
        """Jobs that wait if none was taken since the last measurement."""
        return self._waiting + self.since

    def measured(self, reported: Mapping[Priority, QueueCounts], now: float) -> None:
        """Store what the server tells of each class; see :meth:`QueueEstimate.measured`."""
        for priority, estimate in self.estimates.items():
            estimate.measured(reported[priority], now)
        estimates = self.estimates.values()
        self._waiting = sum(estimate.waiting for estimate in estimates)
        self.since = sum(estimate.since for estimate in estimates)
        self._rate = sum(estimate.rate for estimate in estimates)
        gone = self._gone(now)
        self._sent_back = {who: at for who, at in self._sent_back.items() if at > gone}

    def place(self, account: str, asked: Priority, now: float, *, most: float = math.inf) -> Priority:
        """The class for one more job of an account. An account none of whose jobs wait gets what it asked for.

        most: jobs of the model that may wait: there is no more room than that.
        """
        if not self._room or asked == LEAST:
            return asked
        estimate = self.estimates[asked]
        length = estimate.length(now)
        own = estimate.of(account, length)
        usual = max(self._room, _ROOM_S * self._rate)
        room = min(usual, most)
        if own and own >= room - length:
            return LEAST
        return LEAST if self._goes_on(account, asked, own, now) else asked

    def enter(self, account: str, asked: Priority, given: Priority) -> None:
        """Count a job that was let in."""
        self.estimates[given].enter(account)
        self.since += 1
        if given != asked:
            self._sent_back[account, asked] = self.estimates[LEAST].total

    def _gone(self, now: float) -> int:
        """Which of the jobs let into ``lo``, counted from one, is the last that waits no more."""
        return self.estimates[LEAST].total - self.estimates[LEAST].length(now)

    def _goes_on(self, account: str, asked: Priority, own: int, now: float) -> bool:
        """Whether an account with jobs sent back stays in ``lo``: in its own order, past others only one for one."""
        sent_back = self._sent_back.get((account, asked))
        if sent_back is None or sent_back <= self._gone(now):
            return False
        others = 0
        for priority, estimate in self.estimates.items():
            if priority != LEAST:
                length = estimate.length(now)
                others += length - estimate.of(account, length)
        return own >= others
