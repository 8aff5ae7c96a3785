"""One model that is pulled: what its three consumers were asked for, and what came. No I/O but through its pullers."""

import math
from collections.abc import Mapping
from typing import Final

from signalbox.bus.client import ConsumerInfo, Delivery, Puller
from signalbox.wire.names import Priority
from workers.queue import prefetch
from workers.queue.readturns import ReadTurns

Received = tuple[Delivery, bool]
"""A delivery, and whether it may have been delivered before."""
TURN: Final = 8
"""Jobs that are asked for in one turn. For more the server may have to load more files on end, each in up to 55 ms; a
group of jobs that comes meanwhile is stored one by one between them."""


class AwakeModel:
    """What is known of one model that is awake. generation: of the consumers. used_s: when its last job came.

    by_hints: hints tell when to ask, and no request is parked. hinted: classes of which a job may have come since they
    were asked, and how often to ask for it: the server may tell of a job before its consumer has it. asked_s: when one
    was. parked_until_s: until then a parked request may be there. is_refused: the queue is opened anew, and until
    then nothing is asked for: what the new consumer gave to a request that is then taken back would be lost.
    """

    def __init__(
        self, generation: int, infos: Mapping[Priority, ConsumerInfo], now_s: float, *, by_hints: bool
    ) -> None:
        self.generation = generation
        self.infos = infos
        self.used_s = now_s
        self.by_hints = by_hints
        self.hinted = dict.fromkeys(infos, 1)
        self.asked_s = now_s
        self.parked_until_s = -math.inf
        self.is_refused = False
        self.pullers: dict[Priority, Puller] = {}
        self._hinted_seq: dict[Priority, int] = {}
        """Of the last job that was announced."""
        self._unseen: dict[Priority, int] = {}
        """Of what was announced and asked for, and did not come yet: how often to ask again."""
        self.left = {priority: info.num_pending for priority, info in infos.items()}
        """Jobs that the consumers had left to deliver when last asked."""
        self._highest_seq = {priority: info.examined_to for priority, info in infos.items()}
        self._held: dict[Priority, list[Received]] = {}
        """What came in a turn that is not over: together it makes a batch."""

    @property
    def is_open(self) -> bool:
        """Whether jobs can be asked for: not where a request was refused, from the refusal on."""
        return bool(self.pullers) and not (self.is_refused or any(p.last_refusal for p in self.pullers.values()))

    @property
    def may_hold(self) -> bool:
        """Whether there may be jobs that were not asked for."""
        return not self.by_hints or bool(self.hinted) or any(self.left.values())

    @property
    def outstanding(self) -> int:
        """Jobs that were asked for and have not come."""
        return sum(puller.outstanding for puller in self.pullers.values())

    def ask(
        self,
        wanted: int,
        waiting: Mapping[Priority, int],
        turns: ReadTurns[Puller],
        *,
        now_s: float,
        expires_s: float,
        is_one_shot: bool,
        is_held: bool,
    ) -> int:
        """Ask for as many jobs as are missing from ``wanted``, as :meth:`Puller.ask`; none if ``is_held``.

        expires_s: if a request does not wait at the server, each class waits for its turn. Returns how many were asked
        for and have not come, of the class with the most.
        """
        outstanding = {p: puller.outstanding + turns.waiting(puller) for p, puller in self.pullers.items()}
        if not is_held:
            for priority, number in prefetch.missing_credits(wanted, waiting, outstanding).items():
                puller = self.pullers[priority]
                if not expires_s:
                    number = self._in_turn(priority, number, waiting[priority], outstanding[priority])  # noqa: PLW2901
                elif self.by_hints and not self.left[priority] and priority not in self.hinted:
                    number = 0  # noqa: PLW2901
                if not number:
                    continue
                outstanding[priority] += number
                self._unseen[priority] = self.hinted.pop(priority, 1) - 1
                self.asked_s = now_s
                if (self.left[priority] or not expires_s) and not turns.take(puller, priority, number, now_s):
                    continue
                puller.ask(number, expires_s=expires_s, is_one_shot=is_one_shot)
                if expires_s and not is_one_shot:
                    self.parked_until_s = now_s + expires_s
        return max(outstanding.values())

    def _in_turn(self, priority: Priority, number: int, waiting: int, outstanding: int) -> int:
        """How many jobs of a class to ask for in one turn, of those that are missing."""
        if outstanding:
            return 0
        if left := self.left[priority]:
            return min(number, left, TURN)
        return 1 if priority in self.hinted and not waiting else 0  # it tells how many are left

    def delivered_before(self, priority: Priority, seq: int) -> None:
        """Take what comes up to ``seq`` for what may have been delivered before: the consumer is made anew."""
        if seq > self._highest_seq.get(priority, seq):
            self._highest_seq[priority] = seq

    def hint(self, priority: Priority, seq: int) -> None:
        """Take a job for one that is stored at ``seq``."""
        self._hinted_seq[priority] = max(seq, self._hinted_seq.get(priority, 0))

    def is_behind(self, priority: Priority) -> bool:
        """Whether a later job was announced than came. If none is left: others have it, or its consumer does not know
        of it yet.
        """
        return self.by_hints and self._highest_seq[priority] < self._hinted_seq.get(priority, 0)

    def missed(self, priority: Priority) -> int:
        """Note that what was asked for did not come. Returns how often to ask for it again."""
        self.left[priority] = 0
        return self._unseen.pop(priority, 0)

    def receive(self, priority: Priority, delivered: Delivery, now_s: float) -> bool:
        """Note a delivery. Returns whether it may have been delivered before."""
        self.used_s = now_s
        self.left[priority] = delivered.left
        self._unseen.pop(priority, None)
        # A sequence that is not above the last one: somebody has made the consumer anew meanwhile.
        is_known = delivered.seq <= self._highest_seq[priority]
        if not is_known:
            self._highest_seq[priority] = delivered.seq
        return is_known

    def hold(self, priority: Priority, given: Received) -> None:
        """Keep a delivery until :meth:`release`."""
        self._held.setdefault(priority, []).append(given)

    def release(self, priority: Priority) -> list[Received]:
        """What was kept of a class, in order."""
        return self._held.pop(priority, [])
