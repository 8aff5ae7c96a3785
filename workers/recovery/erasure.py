"""Erases what the jobs held that their owners have deleted (:mod:`signalbox.jobs.deletion`).

A part of the reconciler's turn, which has read their tombstones. Each is looked at at once, and again later: an attempt
that had lost the job may have stored a result or a letter meanwhile.
"""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from signalbox.bus.client import Bus
from signalbox.jobs import deletion, joblog
from signalbox.program import log
from signalbox.wire.messages import Record
from workers.host import gauges

LONGEST_S: Final = 2.0
"""Of one turn: messages are erased one by one, a large result's at about 30 MB/s, and the duty is kept by turns."""
MOST: Final = 20_000
"""Jobs remembered until their second look: with more the oldest are looked at sooner, so that reading goes on."""
_AT_ONCE: Final = 16
_MESSAGES: Final = 8
"""Erased of one job before it is another's turn."""
AGAIN_S: Final = 300.0
"""From the first look to the second."""


class _Deleted:
    """A tombstone that was read. due_at: of the next look, UTC seconds. is_again: whether it is the second."""

    __slots__ = ("due_at", "is_again", "record", "seq")

    def __init__(self, record: Record, seq: int) -> None:
        self.record = record
        self.seq = seq
        self.due_at = 0.0
        self.is_again = False


class Erasure:
    """The deleted jobs of which something may be left. clock: UTC seconds."""

    def __init__(self, bus: Bus, *, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._clock = clock
        self._deleted: dict[str, _Deleted] = {}
        self.has_more = False
        """Whether the last turn left something that is due."""

    def __len__(self) -> int:
        return len(self._deleted)

    def begin(self) -> None:
        """Forget what was read: another did this meanwhile, or the streams are others now."""
        self._deleted.clear()

    def deleted(self, record: Record, seq: int) -> None:
        """A tombstone was read, at ``seq``."""
        self._deleted[record.id] = _Deleted(record, seq)

    def lowest(self, otherwise: int) -> int:
        """The lowest sequence of a tombstone that is to be looked at, or what is given where there is none."""
        return min((otherwise, *(one.seq for one in self._deleted.values())))

    async def turn(self) -> None:
        """Erase what is due now. Raises as :func:`deletion.erase`; what is left is the next turn's."""
        now = self._clock()
        early = len(self._deleted) - MOST
        due = deque(one for place, one in enumerate(self._deleted.values()) if one.due_at <= now or place < early)
        while due and self._clock() < now + LONGEST_S:
            group = [due.popleft() for _ in range(min(_AT_ONCE, len(due)))]
            looked = await asyncio.gather(*(self._look(one, now) for one in group))
            due.extend(one for one, is_done in zip(group, looked, strict=True) if not is_done)
        self.has_more = bool(due)

    async def _look(self, one: _Deleted, now: float) -> bool:
        """Erase some of what is left; returns whether that was all."""
        if erased := await deletion.erase(self._bus, one.record, most=_MESSAGES):
            gauges.ERASED.inc(erased)
            log.info("reconciler.erased", **joblog.ids(one.record), messages=erased)
        if erased >= _MESSAGES:
            return False
        if one.is_again:
            del self._deleted[one.record.id]
        one.due_at, one.is_again = now + AGAIN_S, True
        return True
