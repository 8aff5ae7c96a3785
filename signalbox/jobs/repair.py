"""Repairs what crashes left: jobs whose record and message disagree, and jobs that no worker ends.

The reconcilers of workers and console find such jobs; this module decides and writes what becomes of each. Every write
is a compare-and-set from the record that was judged: a worker that ends the job meanwhile wins, and two reconcilers
harm no job.
"""

from enum import Enum
from typing import Final, NamedTuple

import msgspec

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import Stored, header_fields
from signalbox.jobs import delayed, joblog, life
from signalbox.jobs.message import submit
from signalbox.jobs.records import Found, Records
from signalbox.program import log
from signalbox.program.errors import InputLost, NotFound, StaleRevision
from signalbox.wire.messages import ErrorInfo, Job, Record, State, decode, header
from signalbox.wire.names import Header

GRACE_S: Final = 5.0
"""Seconds after a deadline until it counts as passed, since clocks differ."""
NOBODY_LEFT: Final = "The job's deadline passed and no worker was left to finish it."
"""The message for a job that had begun."""
_LOST: Final = ErrorInfo(
    code=InputLost.code, message="The queue lost this job and its input was not kept elsewhere; send it again."
)
_VANISHED: Final = ErrorInfo(
    code=InputLost.code, message="The queue no longer holds this job. Nothing ran to its end; submit it again."
)
_FORGOTTEN: Final = ErrorInfo(
    code="internal",
    message="The console was away for longer than NATS keeps records; it no longer knows how this job ended.",
)
_LOST_ONCE: Final = ErrorInfo(code="unavailable", message="The queue had lost this job.")


class Fate(Enum):
    """open: nothing to do yet. moved: another write came first. ended, requeued: done here."""

    OPEN = "open"
    MOVED = "moved"
    ENDED = "ended"
    REQUEUED = "requeued"


class Repair(NamedTuple):
    """The outcome for an open job. record: as it was to be written. seq: of its message in ``JOBS``, 0 = none."""

    fate: Fate
    record: Record
    seq: int = 0


async def repair(bus: Bus, records: Records, record: Record, revision: int, *, now: float) -> Repair:
    """Judge an open record that no worker attends to, and do what its job needs. now: UTC seconds.

    A job that waits in ``JOBS`` is left to the queue until its deadline, and then ended. One that the queue has lost is
    queued again where its input is stored, and fails where it is not: records hold no inputs. A delayed job has no
    message there before its time.
    """
    queued = await records.queued(record.id)
    is_over = record.cancel_requested or record.deadline_at + GRACE_S < now
    if queued is None:
        if delayed.is_delayed(record) and record.not_before > now and not is_over:
            return Repair(Fate.OPEN, record)
        found = await records.read(record.id)
        if found is None or found[1] != revision:
            return Repair(Fate.MOVED, record)  # it was claimed, ended and acknowledged between two reads
        log.error("reconciler.vanished", **joblog.ids(record), model=record.model, attempt=record.attempt)
        if not is_over and record.input is not None:
            return await _queue_again(bus, records, record, revision, now)
        ended = _end_of(record, now) if is_over else life.failed(record, _LOST, now=now)
    elif record.deadline_at + GRACE_S >= now:
        return Repair(Fate.OPEN, record)  # the queue offers it to a worker
    else:
        ended = _end_of(record, now)
    is_done = await _end(bus, records, ended, revision, _job_in(queued)) is not None
    return Repair(Fate.ENDED if is_done else Fate.MOVED, ended, queued.seq if queued is not None else 0)


async def release(bus: Bus, records: Records, record: Record, revision: int, *, now: float) -> Repair:
    """Queue a delayed job whose time has come; one whose deadline passed meanwhile ends. now: UTC seconds.

    MOVED: its message was there already, or another write came first. Raises as
    :func:`signalbox.jobs.message.submit`.
    """
    if record.deadline_at + GRACE_S >= now:
        return await _queue_again(bus, records, record, revision, now)
    ended = life.expired(record, now=now)
    is_done = await _end(bus, records, ended, revision, None) is not None
    return Repair(Fate.ENDED if is_done else Fate.MOVED, ended)


async def expire(bus: Bus, records: Records, found: Found, *, now: float, job: Job | None = None) -> Found | None:
    """End a queued job whose deadline has passed; None = another write came first. job: names the waiting caller."""
    return await _end(bus, records, life.expired(found.record, now=now), found.revision, job)


async def fail_removed(bus: Bus, records: Records, found: Found, *, now: float, job: Job) -> Found | None:
    """End a queued job whose model is not in the catalog any more; None = another write came first."""
    error = ErrorInfo(
        code=NotFound.code,
        message=f"The model {job.model} is not in the catalog any more: it was deleted after the job was accepted.",
    )
    return await _end(bus, records, life.failed(found.record, error, now=now), found.revision, job)


async def fail_vanished(bus: Bus, records: Records, record: Record, *, now: float) -> Found | None:
    """End a job that is neither in ``STATE`` nor in ``JOBS``; None = a record came first.

    record: as the caller remembers the job.
    """
    return await _end(bus, records, life.failed(record, _VANISHED, now=now), 0, None)


async def move_up(records: Records, record: Record, revision: int) -> int | None:
    """Write an open record again as it is, so that it moves to the end of ``STATE``: no older one then lies below it.

    It changes nothing that any program depends on. A claim or an end that was prepared from the old revision is tried
    again from the new one. Returns the new revision; None = another write came first.
    """
    try:
        return await records.write(record, expect=revision)
    except StaleRevision:
        return None


def forgotten(record: Record, *, now: float) -> Record:
    """What to show of an open job whose record may have ended and been removed since. It is not written."""
    return life.failed(record, _FORGOTTEN, now=now)


def _end_of(record: Record, now: float) -> Record:
    """The end of a job that no worker runs, and whose deadline has passed or whose caller wants no result."""
    if record.cancel_requested:
        return life.cancelled(record, now=now)
    if record.state is State.RUNNING:
        return life.failed(record, ErrorInfo(code="deadline_exceeded", message=NOBODY_LEFT), now=now)
    return life.expired(record, now=now)


async def _queue_again(bus: Bus, records: Records, record: Record, revision: int, now: float) -> Repair:
    if record.state is State.RUNNING:
        record = life.requeued(record, _LOST_ONCE, now=now)
        try:
            await records.write(record, expect=revision)
        except StaleRevision:
            return Repair(Fate.MOVED, record)
    accepted = await submit(bus, life.queued_again(record))
    # Not new: its old message's sequence counts as long as the subject is not purged.
    return Repair(Fate.REQUEUED if accepted.is_new else Fate.MOVED, record)


async def _end(bus: Bus, records: Records, ended: Record, expect: int, job: Job | None) -> Found | None:
    """Write an end, log it, and tell the caller that waits for it; None = another write came first."""
    try:
        revision = await records.write(ended, expect=expect)
    except StaleRevision:
        return None
    if job is not None and job.reply:
        bus.send(job.reply, b"", header_fields({Header.RECORD: header(ended)}), b"")
    joblog.ended(ended)
    return Found(ended, revision)


def _job_in(queued: Stored | None) -> Job | None:
    if queued is None:
        return None
    try:
        return decode(Job, queued.headers[Header.JOB])
    except (KeyError, msgspec.MsgspecError):
        return None
