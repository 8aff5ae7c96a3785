"""Queues delayed jobs when their time has come (``not_before``): the due list of the worker that reconciles.

The list is in memory. The reconciler's reading of ``STATE`` fills it, and what gateways tell of jobs that are due soon.
Before a job is queued its record is read anew, so an entry that is out of date harms nothing; its message is written
only where there is none, so two reconcilers queue a job once. An entry goes once the job was queued: from then on its
record is an open one like others, whose message may be lost.

No worker writes these records while they wait. So the old ones are written again as they are: no record below them is
kept for their sake, and the next reconciler, which reads ``STATE`` from the oldest of them on, has little to read.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable, Iterable
from typing import Final, NamedTuple

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.jobs import repair
from signalbox.jobs.delayed import is_delayed
from signalbox.jobs.records import Records
from signalbox.jobs.repair import Repair
from signalbox.program.errors import NewerVersion, SignalboxError
from signalbox.wire import jobids, names
from signalbox.wire.messages import Record
from workers.host import gauges

RENEWED_S: Final = 3600.0
"""A record is written again when it is as old."""
MOST_RENEWED: Final = 2_000
"""Records written again in one turn."""
MOST_TOLD: Final = 10_000
"""Jobs that gateways told of, remembered until the next release; of the others reading ``STATE`` tells."""
_IN_FLIGHT: Final = 32


class _Delayed(NamedTuple):
    """due_at: UTC seconds. seq, at: of its record, and when that was stored."""

    due_at: float
    seq: int
    at: float


class Released(NamedTuple):
    """A job whose time has come, what was done about it, and its record's revision."""

    done: Repair
    revision: int


class DelayedJobs:
    """The delayed jobs that were read of. clock: UTC seconds."""

    def __init__(self, bus: Bus, records: Records, *, clock: Callable[[], float]) -> None:
        self._bus = bus
        self._records = records
        self._clock = clock
        self._jobs: dict[str, _Delayed] = {}
        self._next_at = math.inf
        """Nothing is due before."""
        self._told: set[str] = set()
        self._received: Subscription | None = None

    def __len__(self) -> int:
        return len(self._jobs)

    async def listen(self) -> None:
        """Receive what gateways tell. Idempotent."""
        if self._received is None:
            self._received = await self._bus.subscribe(names.delayed(), self._receive)

    async def rest(self) -> None:
        """Forget all and receive nothing, for another worker does it now. Idempotent."""
        received, self._received = self._received, None
        self._jobs.clear()
        self._told.clear()
        self._next_at = math.inf
        gauges.DELAYED.set(0)
        if received is not None:
            await received.close()

    def saw(self, record: Record, seq: int, at: float) -> bool:
        """An open record was read, stored at ``at``. Returns whether it is of a delayed job, and thus remembered."""
        if not is_delayed(record):
            self.forget(record.id)
            return False
        self._jobs[record.id] = _Delayed(record.not_before, seq, at)
        self._next_at = min(self._next_at, record.not_before)
        return True

    def forget(self, job_id: str) -> None:
        """A record was read that says that a worker has had the job, or that it has ended."""
        self._jobs.pop(job_id, None)

    def lowest(self, otherwise: int) -> int:
        """The lowest sequence of a delayed job's record, or what is given where there is none lower."""
        return min((otherwise, *(one.seq for one in self._jobs.values())))

    # ------------------------------------------------------------------------------ release

    async def release(self, released: Callable[[Released], None]) -> None:
        """Queue the jobs that are due; one whose deadline has passed ends. Raises as :func:`repair.release`.

        released: told of each at once. What failed, or was not come to, is tried again with the next call.
        """
        now = self._clock()
        told, self._told = self._told - self._jobs.keys(), set()
        due = sorted((one.due_at, job_id) for job_id, one in self._jobs.items() if one.due_at <= now)

        async def look(job_id: str) -> None:
            if (done := await self._released(job_id, now)) is not None:
                released(done)

        try:
            await _each([*told, *(job_id for _, job_id in due)], look)
        finally:
            self._next_at = min((one.due_at for one in self._jobs.values()), default=math.inf)

    @property
    def next_at(self) -> float:
        """When the first is due, UTC seconds; infinite where there is none."""
        return self._next_at

    @property
    def is_due(self) -> bool:
        """Whether a job may be due, or was told of."""
        return bool(self._told) or self._next_at <= self._clock()

    async def _released(self, job_id: str, now: float) -> Released | None:
        found = await self._read(job_id)
        if found is None:
            return None
        record, revision = found
        self.saw(record, revision, now)
        if record.not_before > now:
            return None
        done = await repair.release(self._bus, self._records, record, revision, now=now)
        known = self._jobs.get(job_id)
        if known is not None and known.seq <= revision:  # else it was changed meanwhile, and is looked at again
            del self._jobs[job_id]
        return Released(done, revision)

    async def _read(self, job_id: str) -> tuple[Record, int] | None:
        """The record of a job that is still delayed; what is not is forgotten."""
        try:
            found = await self._records.read(job_id)
        except NewerVersion:
            found = None
        if found is None or not is_delayed(found[0]):
            self.forget(job_id)
            return None
        return found[0], found[1]

    # ------------------------------------------------------------------------------ their records

    async def renew(self, crowded_below: int) -> None:
        """Write the oldest records again, and those below this sequence, as they keep what is above them."""
        before = self._clock() - RENEWED_S
        old = [(one.seq, job_id) for job_id, one in self._jobs.items() if one.at <= before or one.seq < crowded_below]
        gauges.DELAYED.set(len(self._jobs))
        await _each([job_id for _, job_id in sorted(old)[:MOST_RENEWED]], self._renew)

    async def _renew(self, job_id: str) -> None:
        if (found := await self._read(job_id)) is None:
            return
        written = await repair.move_up(self._records, *found)
        if written is not None and job_id in self._jobs:
            self._jobs[job_id] = self._jobs[job_id]._replace(seq=written, at=self._clock())

    def _receive(self, message: Message) -> None:
        job_id = message.subject.rpartition(".")[2]
        if not message.data and jobids.JOB_ID.match(job_id) and len(self._told) < MOST_TOLD:
            self._told.add(job_id)


async def _each(job_ids: Iterable[str], act: Callable[[str], Awaitable[None]]) -> None:
    """Act on all, some at a time. Raises the first error once none is in flight; those after it were not begun."""
    left = iter(list(job_ids))
    failed: list[SignalboxError] = []

    async def some() -> None:
        for job_id in left:
            if failed:
                return
            try:
                await act(job_id)
            except SignalboxError as error:
                failed.append(error)

    await asyncio.gather(*(some() for _ in range(_IN_FLIGHT)))
    if failed:
        raise failed[0]
