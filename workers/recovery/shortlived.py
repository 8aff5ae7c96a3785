"""Removes the records of synchronous calls, which are short-lived: their callers were answered when they ended.

They lie among records that stay for a day, so they cannot be removed by sequence. Each record's subject holds the
second of its acceptance, its slot (:func:`signalbox.wire.jobids.slot_of`), and one purge removes a whole slot: the
server looks at some hundred subjects for it, not at all. A slot goes when its newest record is old enough, all its
jobs have ended and none of them has been in ``JOBS`` for a while (:mod:`workers.recovery.endedmessages`). The knowledge
of slots comes from the reconciler's reading of ``STATE``; the next reconciler reads on where the oldest slot began.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final

from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.wire import jobids, names
from signalbox.wire.names import Stream
from workers.host import gauges
from workers.recovery.endedmessages import EndedMessages
from workers.recovery.heldends import Held, HeldEnds

MAX_PURGED: Final = 200
"""Slots removed in one turn; each holds up other writes for some milliseconds."""


class _Slot:
    """first_seq, last_seq: of its records that were read. last_at: when the newest of them was stored."""

    __slots__ = ("first_seq", "last_at", "last_seq")

    def __init__(self, seq: int) -> None:
        self.first_seq = self.last_seq = seq
        self.last_at = 0.0


class ShortLivedRecords:
    """What the reconciler has read of short-lived records.

    kept_s: how long they stay. outlives_s: see :class:`EndedMessages`. ends: is told what goes unsent. clock: UTC
    seconds.
    """

    def __init__(
        self, bus: Bus, *, kept_s: float, outlives_s: float, ends: HeldEnds, clock: Callable[[], float]
    ) -> None:
        self._bus = bus
        self._kept_s = kept_s
        self._outlives_s = outlives_s
        self._ends = ends
        self._clock = clock
        self.begin()

    def begin(self) -> None:
        """Forget what was read: another did this meanwhile, or the streams are others now."""
        self._slots: dict[str, _Slot] = {}
        self._left = EndedMessages(self._bus, outlives_s=self._outlives_s, fits=jobids.is_short_lived)

    def saw(self, subject: str, seq: int, at: float) -> None:
        """A record was read, stored at ``at``; in order."""
        name = names.slot_of_record(subject)
        if not name:
            return
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = _Slot(seq)
        slot.last_seq, slot.last_at = seq, at

    def lowest(self, otherwise: int) -> int:
        """The first sequence of the slots that are left, or what is given where there is none."""
        return min((slot.first_seq for slot in self._slots.values()), default=otherwise)

    async def turn(self, open_jobs: Iterable[str], foreign: Sequence[int], first_seq: int, waits: Held) -> bool:
        """Remove slots that are due. Returns whether more are. Raises as :meth:`Bus.request_json`.

        open_jobs: jobs that have not ended, among all whose records were read. foreign: sequences of records that this
        version cannot read. first_seq: of ``STATE``; what was below it is gone. waits: what is to stay all the same.
        """
        for name in [name for name, slot in self._slots.items() if slot.last_seq < first_seq]:
            del self._slots[name]
        until = self._clock() - self._kept_s
        if all(slot.last_at >= until for slot in self._slots.values()):
            return False
        until = await self._left.remove(until)
        held = {jobids.slot_of(job_id) for job_id in open_jobs if jobids.is_short_lived(job_id)}
        due = [
            (name, slot.last_seq)
            for name, slot in self._slots.items()
            if slot.last_at < until
            and name not in held
            and not any(slot.first_seq <= seq <= slot.last_seq for seq in foreign)
            and not waits.holds(slot.last_seq, slot.last_at)
        ]
        for name, last_seq in due[:MAX_PURGED]:
            purged = await self._purge(name, last_seq)
            if waits.loses(last_seq):
                self._ends.lost(purged)
            del self._slots[name]
        return len(due) > MAX_PURGED

    async def _purge(self, name: str, last_seq: int) -> int:
        """Remove a slot; returns how many records went.

        What was not read when this was decided, a job of the slot that ended just now, stays for its own time.
        """
        which = {"filter": names.slot(name), "seq": last_seq + 1}
        answer = await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.STATE}", which)
        gauges.SHORT_LIVED_REMOVED.inc(answer.get("purged", 0))
        log.debug("reconciler.slot_removed", slot=name, records=answer.get("purged", 0))
        return int(answer.get("purged", 0))
