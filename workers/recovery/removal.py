"""Removes messages of ended jobs from ``JOBS``, about a second's at a time, and the inputs that were stored for them.

The records say what has ended; the reconciler reads them in order, each end once. A job's subject names its slot, the
1.024 s of its acceptance. One question tells which jobs of a slot are still in ``JOBS``, and one purge removes a slot
whose jobs have all ended, whatever models they are of: 20 ms of the server's time for 1 600 of them, where a purge by
class and sequence looks through the class (ADR 0210). In a slot where some jobs wait or run, a class of which none does
goes for itself, and after ten minutes each job; not many classes at once that have few, since at every purge the server
counts for each consumer what it has left: 10 ms where a thousand models are called. What comes into a slot after the
question is not touched.

Where very many wait a purge by subject is dear: the server goes through all subjects to find its messages, and again to
count what each consumer has left. There what has ended is left until it is a part of all, and then goes by sequence, up
to the first job that has not ended; by slots only where such a job is in the way, or where they are older than all that
is there: what has ended in them is gone already.

Ids of older gateways and of redriven jobs name no time; their messages are looked for and removed one by one.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.jobs import delivery, inputs
from signalbox.jobs.message import remove
from signalbox.jobs.records import Records
from signalbox.wire import names
from signalbox.wire.names import Stream
from workers.host import gauges
from workers.recovery.head import QueueHead

SETTLED_S: Final = 2.0
"""A slot is looked at when it began so long ago: then nothing more is accepted into it, but for late repeats."""
SINGLY_S: Final = 600.0
"""What has ended in a slot as old goes even where jobs of its class wait or run."""
MOST_SLOTS: Final = 200
"""Slots looked at in one turn; of those that were looked at before, no more than :data:`AGAIN`."""
AGAIN: Final = 20
MANY: Final = 16
"""Messages of a class that are worth a purge of their own; of classes with fewer, :data:`SMALL` go at each look."""
SMALL: Final = 4
MOST_SINGLY: Final = 500
"""Messages removed one by one in one turn."""
PART: Final = 16
"""Where very many wait, one of so many must have ended before messages are removed. A purge by sequence takes the
server 0.2 s for a million, however many go: it counts all subjects and writes down its state."""
_LONGEST_PAUSE_S: Final = 60.0
_IN_FLIGHT: Final = 16


class _Slot:
    """Ended jobs whose messages may be in ``JOBS``, with the sequences of their records. due_at: of the next look."""

    __slots__ = ("due_at", "ended", "pause_s")

    def __init__(self) -> None:
        self.ended: dict[str, int] = {}
        self.due_at = self.pause_s = 0.0


class JobRemoval:
    """The ended jobs whose messages may still be in ``JOBS``. clock: UTC seconds."""

    def __init__(self, bus: Bus, records: Records, *, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._records = records
        self._clock = clock
        self._slots: dict[str, _Slot] = {}
        self._timeless: dict[str, int] = {}
        self._inputs: dict[str, int] = {}
        self._head = QueueHead(bus)

    def begin(self) -> None:
        """Forget what was read: another did this meanwhile, or the streams are others now."""
        self._slots.clear()
        self._timeless.clear()
        self._inputs.clear()
        self._head.begin()

    def __len__(self) -> int:
        return sum(len(slot.ended) for slot in self._slots.values()) + len(self._timeless) + len(self._inputs)

    @property
    def floor(self) -> int:
        """All messages below this sequence are of jobs that have ended; 0 where that is not known."""
        return self._head.floor

    def has_ended(self, job_id: str) -> bool:
        """Whether a terminal record of the job was read, and its message may still be there."""
        slot = self._slots.get(names.slot_of(job_id))
        return (slot is not None and job_id in slot.ended) or job_id in self._timeless

    def ended(self, job_id: str, seq: int, stored_input: str = "") -> None:
        """A terminal record was read, at ``seq``. stored_input: the subject of the job's input in ``INPUTS``."""
        if stored_input:
            self._inputs[stored_input] = seq
        if not names.tells_time(job_id):
            self._timeless[job_id] = seq
            return
        name = names.slot_of(job_id)
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = _Slot()
            slot.due_at = names.time_of_slot(name) + SETTLED_S
        slot.ended[job_id] = seq

    def lowest(self, otherwise: int) -> int:
        """The lowest sequence of a record whose message may still be there, or what is given where there is none."""
        slots = (seq for slot in self._slots.values() for seq in slot.ended.values())
        return min((otherwise, *slots, *self._timeless.values(), *self._inputs.values()))

    async def turn(self, jobs: Mapping[str, Any]) -> None:
        """Remove what can go now. jobs: ``JOBS`` as the server has told of it. Raises as :meth:`Bus.request_json`."""
        await self._remove_inputs()
        await self._remove_timeless()
        state = jobs["state"]
        if state["messages"] < delivery.DEEP:
            await self._remove_slots(state["last_seq"])
            return
        await self._head.read_on(jobs, self.has_ended)
        # A record that was read again may be of a job whose message is long gone: it lies behind none.
        await self._remove_slots(state["last_seq"], before_s=unix_time(state["first_ts"]) - SETTLED_S)
        part = state["messages"] // PART
        if len(self._head.ended) >= part:
            await self._purge({"seq": self._head.floor})
            for job_id in self._head.take():
                self._forget(job_id)
        elif len(self) - len(self._head.ended) >= part:  # so many lie behind a job that has not ended
            await self._remove_slots(state["last_seq"])

    def _forget(self, job_id: str) -> None:
        name = names.slot_of(job_id)
        if (slot := self._slots.get(name)) is not None:
            slot.ended.pop(job_id, None)
            if not slot.ended:
                del self._slots[name]
        self._timeless.pop(job_id, None)

    async def _remove_slots(self, last_seq: int, *, before_s: float = math.inf) -> None:
        """Look at slots that are due. before_s: that began before this time."""
        now = self._clock()
        due = [n for n, slot in self._slots.items() if slot.due_at <= now and names.time_of_slot(n) < before_s]
        again = [name for name in due if self._slots[name].pause_s]
        fresh = [name for name in due if not self._slots[name].pause_s]
        singly = MOST_SINGLY
        for name in fresh[:MOST_SLOTS] + sorted(again, key=lambda name: self._slots[name].due_at)[:AGAIN]:
            singly -= await self._look(name, last_seq, now, singly)

    async def _look(self, name: str, last_seq: int, now: float, most_singly: int) -> int:
        """Remove what has ended in a slot; returns how many messages went one by one."""
        slot = self._slots[name]
        info = await self._bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.JOBS}", {"subjects_filter": names.jobs_in_slot(name)}
        )
        # Whichever is lower: a server that crashed between the two questions may give its last numbers again.
        last_seq = min(last_seq, info["state"]["last_seq"])
        there = info["state"].get("subjects") or {}
        ended = [subject for subject in there if names.job_of(subject) in slot.ended]
        if not ended:
            del self._slots[name]
            return 0
        if len(ended) == len(there):
            await self._purge({"filter": names.jobs_in_slot(name), "seq": last_seq + 1})
            del self._slots[name]
            return 0
        mixed = {names.class_of(subject) for subject in there if names.job_of(subject) not in slot.ended}
        counts = Counter(class_ for class_ in map(names.class_of, ended) if class_ not in mixed).most_common()
        whole = {class_ for place, (class_, number) in enumerate(counts) if number >= MANY or place < SMALL}
        for model, priority in whole:
            await self._purge({"filter": names.jobs_in_slot(name, model, priority), "seq": last_seq + 1})
        left = [subject for subject in ended if names.class_of(subject) not in whole]
        gone = left[:most_singly] if now - names.time_of_slot(name) > SINGLY_S else []
        for subjects in _groups(gone):
            await asyncio.gather(*(self._remove_one(subject, last_seq) for subject in subjects))
        slot.ended = {job_id: slot.ended[job_id] for job_id in map(names.job_of, left[len(gone) :])}
        slot.pause_s = min(max(SETTLED_S, 2 * slot.pause_s), _LONGEST_PAUSE_S)
        slot.due_at = now + slot.pause_s
        if not slot.ended:
            del self._slots[name]
        return len(gone)

    async def _remove_one(self, subject: str, last_seq: int) -> None:
        """Remove the message of one job. Alone it costs the server less than a purge: no consumer is counted anew."""
        found = await self._bus.leader_get(Stream.JOBS, subject)
        if found is not None and found.seq <= last_seq:
            await remove(self._bus, found.seq)
            gauges.JOBS_REMOVED.inc()

    async def _purge(self, which: dict[str, Any]) -> None:
        answer = await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}", which)
        gauges.JOBS_REMOVED.inc(answer.get("purged", 0))

    async def _remove_timeless(self) -> None:
        for job_ids in _groups(list(self._timeless)[:MOST_SINGLY]):
            await asyncio.gather(*(self._take_out(job_id) for job_id in job_ids))
            for job_id in job_ids:
                del self._timeless[job_id]

    async def _take_out(self, job_id: str) -> None:
        found = await self._records.queued(job_id)
        if found is not None:
            await remove(self._bus, found.seq)
            gauges.JOBS_REMOVED.inc()

    async def _remove_inputs(self) -> None:
        for subjects in _groups(list(self._inputs)):
            await inputs.remove(self._bus, subjects)
            for subject in subjects:
                del self._inputs[subject]


def _groups(items: list[str]) -> Iterable[list[str]]:
    return (items[start : start + _IN_FLIGHT] for start in range(0, len(items), _IN_FLIGHT))
