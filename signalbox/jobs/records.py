"""Records of jobs in ``STATE``: read from the leader, written by compare-and-set."""

import asyncio
from collections.abc import Sequence
from enum import Enum
from typing import Final, NamedTuple

import msgspec

from signalbox.bus.client import Bus, Stored
from signalbox.bus.jetstream import unix_time
from signalbox.jobs import life
from signalbox.program.errors import Ambiguous, NewerVersion, QueueFull, StaleRevision, Unavailable
from signalbox.wire.messages import Job, Newer, Record, State, decode, header
from signalbox.wire.names import Header, Stream, job_anywhere, job_of, state

NO_ROOM: Final = "There is no room for records of jobs now; try again."
_PAUSE_S: Final = 0.1
_PATIENCE_S: Final = 15.0
"""How long the outcome of an unanswered write is asked for: longer than NATS takes to elect a leader."""


class Found(NamedTuple):
    """A job as it stands. revision: of its record; 0 = it has none, and ``record`` is made from its message.

    body: of the record. seq: of the job's message in ``JOBS``, None where it was not read.
    """

    record: Record
    revision: int
    body: bytes = b""
    seq: int | None = None

    @classmethod
    def unclaimed(cls, job: Job, seq: int | None = None) -> "Found":
        """A job that no worker has claimed."""
        return cls(life.first_record(job, State.QUEUED), 0, seq=seq)


class Settled(Enum):
    """The outcome of a write whose answer was lost, or that was refused.

    written: it is stored. unchanged: nothing was written since, so it may be repeated. overtaken: another write is.
    """

    WRITTEN = "written"
    UNCHANGED = "unchanged"
    OVERTAKEN = "overtaken"


class Records:
    """Reads and writes records. patience_s: how long :meth:`write` tries to learn the outcome of a lost answer."""

    def __init__(self, bus: Bus, *, patience_s: float = _PATIENCE_S) -> None:
        self._bus = bus
        self._writer = bus.grouped(Stream.STATE)
        self._patience_s = patience_s
        self._loop = asyncio.get_running_loop()

    async def read(self, job_id: str) -> tuple[Record, int, bytes] | None:
        """``(record, revision, body)`` as the leader knows it; None = never claimed, or aged out.

        Raises :class:`NewerVersion` for a record that only a newer program understands.
        """
        found = await self._bus.leader_get(Stream.STATE, state(job_id))
        if found is None or Header.RECORD not in found.headers:
            return None
        try:
            return decode(Record, found.headers[Header.RECORD]), found.seq, found.data
        except Newer as error:
            raise NewerVersion(job_id=job_id) from error

    async def read_many(self, job_ids: Sequence[str]) -> dict[str, tuple[Record, int] | None]:
        """``(record, revision)`` of many jobs, as any replica knows them: each may be one write behind.

        A job without a record is missing from the answer; None stands for what only a newer program understands.
        """
        found: dict[str, tuple[Record, int] | None] = {}
        for stored in await self._bus.list_latest(Stream.STATE, [state(job_id) for job_id in job_ids]):
            try:
                found[job_of(stored.subject)] = decode(Record, stored.headers[Header.RECORD]), stored.seq
            except (KeyError, msgspec.MsgspecError):
                found[job_of(stored.subject)] = None
        return found

    async def find(self, job_id: str) -> Found | None:
        """The job as its record tells, or as its message where no worker has claimed it; None = neither is there.

        Raises :class:`NewerVersion` for a record or a message that only a newer program understands.
        """
        read = await self.read(job_id)
        if read is None:
            queued = await self.queued(job_id)
            if queued is not None:
                try:
                    job = decode(Job, queued.headers[Header.JOB])
                except (KeyError, msgspec.MsgspecError) as error:
                    raise NewerVersion(job_id=job_id) from error
                return Found.unclaimed(job, queued.seq)
            # Claimed, committed and acknowledged between the two reads.
            read = await self.read(job_id)
        if read is None:
            return None
        seq: int | None = None
        if read[0].state is State.QUEUED and not read[0].attempt:  # a waiting job that was changed
            queued = await self.queued(job_id)
            seq = queued.seq if queued is not None else None
        return Found(*read, seq)

    async def write(self, record: Record, body: bytes = b"", *, expect: int) -> int:
        """Write from revision ``expect`` (0 = there is no record yet); returns the new revision.

        Where the answer is lost the record is read back and, if need be, written again from the same revision.
        Raises :class:`StaleRevision` when another write came first, :class:`Unavailable` (certainly not written) and,
        when the outcome stays unknown for ``patience_s``, :class:`Ambiguous`.
        """
        headers: dict[str, str] = {Header.RECORD: header(record)}
        try:
            return await self._writer.write(state(record.id), body, headers=headers, expect=expect)
        except QueueFull as error:
            raise Unavailable(NO_ROOM, retry_after_s=5.0) from error
        except Ambiguous as error:
            return await self._settle(record, body, expect, error)

    async def may_have_gone(self, since: float, *, now: float, kept_s: float, is_short_lived: bool = False) -> bool:
        """Whether a record written after ``since`` may have been removed, as its job ended. kept_s: the least it stays.

        Records go the oldest first: one that is older than ``since`` and still there says that none after it has gone,
        but for short-lived ones.
        """
        if now - since < kept_s:
            return False
        if is_short_lived:
            return True
        state = (await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}"))["state"]
        return not state["messages"] or unix_time(state["first_ts"]) > since

    async def queued(self, job_id: str) -> Stored | None:
        """The job's message in ``JOBS``, until it is acknowledged; header ``Sb-Job``, body the inputs."""
        return await self._bus.leader_get(Stream.JOBS, job_anywhere(job_id))

    async def _settle(self, record: Record, body: bytes, expect: int, cause: Ambiguous) -> int:
        """Learn the outcome of a lost write, and repeat it: the same compare-and-set can win at most once."""
        deadline = self._loop.time() + self._patience_s
        while self._loop.time() < deadline:
            try:
                found = await self.read(record.id)
                revision = found[1] if found is not None else 0
                what = settled(found[0] if found is not None else None, revision, record, expect)
                if what is Settled.WRITTEN:
                    return revision
                if what is Settled.OVERTAKEN:
                    raise StaleRevision(revision) from cause
                return await self._writer.write(
                    state(record.id), body, headers={Header.RECORD: header(record)}, expect=expect
                )
            except StaleRevision as error:
                if error.__cause__ is cause:
                    raise
                # The first write may have arrived between our read and our repeat: look once more.
            except (Unavailable, QueueFull):
                await asyncio.sleep(_PAUSE_S)
        raise cause


def settled(found: Record | None, revision: int, mine: Record, expect: int) -> Settled:
    """The outcome of writing ``mine`` from revision ``expect``, judged by what is stored now."""
    if found is not None and revision > expect and _is_same_write(found, mine):
        return Settled.WRITTEN
    return Settled.UNCHANGED if revision == expect else Settled.OVERTAKEN


def _is_same_write(found: Record, mine: Record) -> bool:
    """Whether a record read back is the one we wrote: no two attempts, changes or deletions share these."""
    return _marks(found) == _marks(mine)


def _marks(record: Record) -> tuple[object, ...]:
    attempt = (record.state, record.attempt, record.worker, record.token, record.cancel_requested)
    return (*attempt, record.priority, record.deadline_at, record.deleted_at)
