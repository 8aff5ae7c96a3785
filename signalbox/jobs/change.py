"""Changing a job that waits: a higher class, a moved deadline. Both are one compare-and-set on its ``queued`` record.

A class is part of a message's subject, so a raised job gets a second message, in the higher class, which says so. The
worker that gets that reads the job's record first and removes the message below, which would else come to a worker for
the first time when the job has long ended. Whichever message a worker gets first, the claim arbitrates: the job has one
attempt at a time and one end, and a worker that gets the other message beside that computes for nothing at most. After
the end all go, as everything looks for a job's messages by its id. A deadline needs no message: committing and
reconciler judge by the record's.
"""

from collections.abc import Awaitable, Callable
from typing import Final

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.jobs import joblog, life
from signalbox.jobs.attempts import boottime
from signalbox.jobs.message import submit
from signalbox.jobs.records import Found, Records
from signalbox.program.errors import NewerVersion, NotFound, StaleRevision, Unavailable
from signalbox.wire.messages import Job, Record, decode
from signalbox.wire.names import Header, Priority

LONGEST_DEADLINE_S: Final = 7 * 86_400.0
"""From a job's acceptance to its deadline."""
TRUSTED_S: Final = 10.0
"""So long after a job was seen to wait its second message may be written; a record outlives its job's messages by much
more (:mod:`workers.recovery.endedmessages`)."""
_RACES: Final = 20


async def change(
    bus: Bus,
    records: Records,
    found: Found,
    *,
    priority: Priority | None,
    deadline_at: float | None,
    admit: Callable[[Record], Awaitable[None]],
) -> Found:
    """Change the waiting job that was just found; returns it as it then stands. None: as it is.

    admit: called before a job is raised, with its record as it will be; what it raises refuses that. Repeating it all
    harms nothing, and writes the second message where an earlier call could not. Raises :class:`Conflict` once a worker
    has the job or it has ended, :class:`NotFound` where it has gone meanwhile, and as :func:`submit`, with the record
    written.
    """
    is_admitted = False
    for _ in range(_RACES):
        record = found.record
        wanted = life.changed(
            record,
            priority=priority or record.priority,
            deadline_at=record.deadline_at if deadline_at is None else deadline_at,
        )
        if wanted.priority != record.priority and not is_admitted:
            await admit(wanted)
            is_admitted = True
        revision = found.revision
        seen_s = boottime()
        if wanted != record:
            try:
                revision = await records.write(wanted, expect=found.revision)
            except StaleRevision as error:
                again = await records.find(record.id)
                if again is None:
                    raise NotFound("The job is no longer known.") from error
                found = again
                continue
            joblog.step("job.changed", wanted, priority=wanted.priority, deadline_at=wanted.deadline_at)
        seq = await _raise(bus, records, wanted, seen_s) if priority is not None and not wanted.attempt else None
        return Found(wanted, revision, seq=seq or found.seq)
    raise Unavailable("The job changes too quickly to be changed.", retry_after_s=1.0)


async def _raise(bus: Bus, records: Records, record: Record, seen_s: float) -> int | None:
    """Have a message in the record's class; returns its sequence. None: the job has no message now.

    seen_s: when the job was last known to wait, on :func:`boottime`.
    """
    queued = await records.queued(record.id)
    if queued is None:
        return None  # it ended just now, or is to be queued later, in the class that its record tells
    try:
        job = decode(Job, queued.headers[Header.JOB])
    except (KeyError, msgspec.MsgspecError) as error:
        raise NewerVersion(job_id=record.id) from error
    if job.priority == record.priority:
        return queued.seq
    if boottime() - seen_s > TRUSTED_S:  # this process slept: the job may have ended, and been forgotten
        raise Unavailable("The job was changed, but not moved up yet; ask again.", retry_after_s=1.0)
    raised = replace(job, priority=record.priority, deadline_at=record.deadline_at, is_raised=True)
    return (await submit(bus, raised, queued.data)).seq
