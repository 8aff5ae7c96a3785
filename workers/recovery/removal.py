"""Removes messages of ended jobs from ``JOBS``, about a second's at a time, and the inputs that were stored for them.

The records say what has ended; the reconciler reads them in order, each end once. A job's subject names its slot, the
1.024 s of its acceptance. One question tells which jobs of a slot are still in ``JOBS``, and one purge removes a slot
whose jobs have all ended, whatever models they are of: 20 ms of the server's time for 1 600 of them, where a purge by
class and sequence looks through the class (ADR 0210). In a slot where some jobs wait or run, a class of which none does
goes for itself, and after ten minutes each job; not many classes at once that have few (below). What comes into a slot
after the question is not touched.

Jobs that were cancelled before any worker claimed them are the exception: a worker that comes to the message of one
runs it for nothing, as a first delivery is run without a look at the record. These go singly at the next turn, whatever
else is in their slot and however many wait.

At a purge the server counts anew what each consumer has left, whatever goes, and accepts nothing meanwhile. That takes
about 0.1 µs for each message that is queued: where very many are, slots are longer (:mod:`signalbox.wire.jobids`), only
those go in which all have ended, of one with few messages these go singly, 0.4 ms each, which counts nothing, and as
long passes between two purges as the first took. Until what has ended in the other slots is a part of all, they are
left until all in them have ended. For each consumer it also takes up to 0.5 ms, as the server looks through a block of
messages for those of its class: where there are very many consumers, all messages go singly but those of a slot with
far more, where removal falls behind.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.jobs import inputs
from signalbox.jobs.message import remove
from signalbox.wire import jobids, names
from signalbox.wire.names import Stream
from workers.host import gauges
from workers.recovery.queued import is_deep

SETTLED_S: Final = 1.0
"""A slot is looked at when it ended so long ago: then nothing more is accepted into it, but for late repeats."""
SINGLY_S: Final = 600.0
"""What has ended in a slot as old goes even where jobs of its class wait or run."""
MOST_SLOTS: Final = 200
"""Slots looked at in one turn; of those that were looked at before, no more than :data:`AGAIN`."""
AGAIN: Final = 20
MANY: Final = 16
"""Messages of a class that are worth a purge of their own; of classes with fewer, :data:`SMALL` go at each check."""
SMALL: Final = 4
MOST_SINGLY: Final = 2000
"""Messages removed one by one in one turn: 2 to 4 s."""
MANY_CONSUMERS: Final = 300
"""With more of them a purge holds acceptances for more than 0.1 s: of 3 000 in a million messages, for up to 0.9 s."""
BEHIND: Final = 50_000
"""There messages go by a purge only where so many of ended jobs are left, as more end than can go singly; and only a
slot with twice as many as there are consumers: the others cost as much singly."""
BEHIND_PART: Final = 8
"""Where very many wait, where one of so many is of an ended job."""
PART: Final = 16
"""Where very many wait, one of so many must have ended before slots are looked through in which some have not."""
SINGLY_PART: Final = 4_000
"""There a purge costs as much as removing one of so many messages singly."""
PAUSE_S: Final = 2.0
"""Before a slot is looked at again in which something was left; then twice as long, and so on."""
_LONGEST_PAUSE_S: Final = 60.0
_IN_FLIGHT: Final = 16


class _Queue(NamedTuple):
    """``JOBS`` in one turn.

    slot_s: how long slots are. few: messages that go singly rather than by a purge. is_patient: whether slots wait in
    which some jobs have not ended. is_crowded: whether there are very many consumers.
    """

    last_seq: int
    slot_s: float
    few: int
    is_patient: bool
    is_crowded: bool

    @classmethod
    def of(cls, jobs: Mapping[str, Any], ended: int) -> "_Queue":
        """jobs: ``JOBS`` as the server has told of it. ended: jobs whose messages may be there."""
        messages = jobs["state"]["messages"]
        consumers = jobs["state"]["consumer_count"]
        few = messages // SINGLY_PART if is_deep(jobs) else 0
        if consumers > MANY_CONSUMERS:
            few = max(few, 2 * consumers) if ended > max(BEHIND, messages // BEHIND_PART) else messages + 1
        return cls(
            last_seq=jobs["state"]["last_seq"],
            slot_s=jobids.slot_s(messages),
            few=few,
            is_patient=is_deep(jobs) and ended < messages // PART,
            is_crowded=consumers > MANY_CONSUMERS,
        )


class _Slot:
    """Ended jobs whose messages may be in ``JOBS``, with the sequences of their records. due_at: of the next check.

    withdrawn: those of them that nobody had claimed, if there are any.
    most: jobs whose messages the last check left there; one that was raised to a higher class may have two.
    """

    __slots__ = ("began_at", "due_at", "ended", "most", "pause_s", "withdrawn")

    def __init__(self, began_at: float) -> None:
        self.ended: dict[str, int] = {}
        self.withdrawn: set[str] | None = None
        self.began_at = began_at
        self.due_at = self.pause_s = 0.0
        self.most = 0

    @property
    def is_fresh(self) -> bool:
        """Whether it has something that was not looked at before."""
        return not self.pause_s or bool(self.withdrawn)

    def add(self, job_id: str, seq: int, *, is_withdrawn: bool) -> None:
        """Note a job that has ended."""
        self.ended[job_id] = seq
        if is_withdrawn:
            self.withdrawn = self.withdrawn or set()
            self.withdrawn.add(job_id)

    def withdrawn_of(self, subjects: Iterable[str]) -> list[str]:
        """Those that are of withdrawn jobs."""
        withdrawn = self.withdrawn or ()
        return [subject for subject in subjects if names.job_of(subject) in withdrawn]

    def keep(self, left: set[str], open_jobs: int) -> None:
        """Note of which ended jobs a check left messages, and how many there were of others."""
        self.ended = {job_id: seq for job_id, seq in self.ended.items() if job_id in left}
        self.withdrawn = (self.withdrawn or set()) & left or None
        self.most = open_jobs + len(self.ended)

    def is_due(self, now: float, queue: _Queue) -> bool:
        """Whether to look at it."""
        if self.began_at + queue.slot_s + SETTLED_S > now:
            return False
        if self.withdrawn:
            return True
        if self.most and len(self.ended) >= self.most:
            return True  # whatever was there has ended
        return self.due_at <= now and not (queue.is_patient and self.most)


class JobRemoval:
    """The ended jobs whose messages may still be in ``JOBS``. clock: UTC seconds."""

    def __init__(self, bus: Bus, *, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._clock = clock
        self._slots: dict[str, _Slot] = {}
        self._inputs: dict[str, int] = {}
        self._has_more = False

    def begin(self) -> None:
        """Forget what was read: another did this meanwhile, or the streams are others now."""
        self._has_more = False
        self._slots.clear()
        self._inputs.clear()

    @property
    def has_more(self) -> bool:
        """Whether the last turn left messages that can go singly."""
        return self._has_more

    def __len__(self) -> int:
        return sum(len(slot.ended) for slot in self._slots.values()) + len(self._inputs)

    def has_ended(self, job_id: str) -> bool:
        """Whether a terminal record of the job was read, and its message may still be there."""
        slot = self._slots.get(jobids.slot_of(job_id))
        return slot is not None and job_id in slot.ended

    def ended(self, job_id: str, seq: int, stored_input: str = "", *, is_withdrawn: bool = False) -> None:
        """A terminal record was read, at ``seq``.

        stored_input: the subject of the job's input in ``INPUTS``. is_withdrawn: it was cancelled before any claim.
        """
        if stored_input:
            self._inputs[stored_input] = seq
        name = jobids.slot_of(job_id)
        slot = self._slots.get(name)
        if slot is None:
            slot = self._slots[name] = _Slot(jobids.time_of_slot(name))
        slot.add(job_id, seq, is_withdrawn=is_withdrawn)

    def lowest(self, otherwise: int) -> int:
        """The lowest sequence of a record whose message may still be there, or what is given where there is none."""
        slots = (seq for slot in self._slots.values() for seq in slot.ended.values())
        return min((otherwise, *slots, *self._inputs.values()))

    async def turn(self, jobs: Mapping[str, Any]) -> None:
        """Remove what can go now. jobs: ``JOBS`` as the server has told of it. Raises as :meth:`Bus.request_json`."""
        await self._remove_inputs()
        queue = _Queue.of(jobs, len(self))
        now = self._clock()
        due = [name for name, slot in self._slots.items() if slot.is_due(now, queue)]
        again = [name for name in due if not self._slots[name].is_fresh]
        fresh = [name for name in due if self._slots[name].is_fresh]
        singly = MOST_SINGLY
        for name in fresh[:MOST_SLOTS] + sorted(again, key=lambda name: self._slots[name].due_at)[:AGAIN]:
            singly -= await self._check(name, queue, now, singly)
        self._has_more = singly <= 0

    async def _check(self, name: str, queue: _Queue, now: float, most_singly: int) -> int:
        """Remove what has ended in a slot; returns how many messages went one by one."""
        slot = self._slots[name]
        info = await self._bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.JOBS}", {"subjects_filter": names.jobs_in_slot(name)}
        )
        # Whichever is lower: a server that crashed between the two questions may give its last numbers again.
        last_seq = min(queue.last_seq, info["state"]["last_seq"])
        there = info["state"].get("subjects") or {}
        ended = [subject for subject in there if names.job_of(subject) in slot.ended]
        if not ended:
            del self._slots[name]
            return 0
        is_whole = len(ended) == len(there)
        if is_whole and len(ended) >= queue.few:
            await self._purge({"filter": names.jobs_in_slot(name), "seq": last_seq + 1}, queue)
            del self._slots[name]
            return 0
        is_kept = queue.is_patient and not is_whole
        whole = set() if is_kept else _whole_classes(there, ended, queue)
        for model, priority in whole:
            await self._purge({"filter": names.jobs_in_slot(name, model, priority), "seq": last_seq + 1}, queue)
        left = [subject for subject in ended if names.class_of(subject) not in whole]
        is_old = now - jobids.time_of_slot(name) > SINGLY_S
        may_go = not is_kept and (is_whole or is_old or queue.is_crowded)
        gone = (left if may_go else slot.withdrawn_of(left))[:most_singly]
        await self._remove_singly(gone, last_seq)
        slot.keep(_jobs(set(left).difference(gone)), len(_jobs(there) - _jobs(ended)))
        if not is_kept:
            slot.pause_s = min(max(PAUSE_S, 2 * slot.pause_s), _LONGEST_PAUSE_S)
            slot.due_at = now + slot.pause_s
        if not slot.ended:
            del self._slots[name]
        return len(gone)

    async def _remove_singly(self, subjects: list[str], last_seq: int) -> None:
        """Remove the messages of single jobs."""
        left = iter(subjects)
        await asyncio.gather(*(self._remove_each(left, last_seq) for _ in range(_IN_FLIGHT)))

    async def _remove_each(self, subjects: Iterator[str], last_seq: int) -> None:
        for subject in subjects:
            found = await self._bus.leader_get(Stream.JOBS, subject)
            if found is not None and found.seq <= last_seq:
                await remove(self._bus, found.seq)
                gauges.JOBS_REMOVED.inc()

    async def _purge(self, which: dict[str, Any], queue: _Queue) -> None:
        began = time.monotonic()
        answer = await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}", which)
        gauges.JOBS_REMOVED.inc(answer.get("purged", 0))
        if queue.few:  # meanwhile nothing was accepted: as long again for that, before the next one
            await asyncio.sleep(time.monotonic() - began)

    async def _remove_inputs(self) -> None:
        for subjects in _groups(list(self._inputs)):
            await inputs.remove(self._bus, subjects)
            for subject in subjects:
                del self._inputs[subject]


def _jobs(subjects: Iterable[str]) -> set[str]:
    return set(map(names.job_of, subjects))


def _whole_classes(there: Iterable[str], ended: Iterable[str], queue: _Queue) -> set[tuple[str, str]]:
    """Classes of which all that is there has ended, and which are worth a purge of their own."""
    mixed = set(map(names.class_of, set(there).difference(ended)))
    counts = Counter(class_ for class_ in map(names.class_of, ended) if class_ not in mixed).most_common()
    small = 0 if queue.few else SMALL
    most = max(MANY, queue.few)
    return {class_ for place, (class_, number) in enumerate(counts) if number >= most or place < small}


def _groups(items: list[str]) -> Iterable[list[str]]:
    return (items[start : start + _IN_FLIGHT] for start in range(0, len(items), _IN_FLIGHT))
