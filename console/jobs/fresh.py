"""Reads a job that has no row yet from NATS: rows are up to a second late."""

import asyncio
from datetime import UTC, datetime
from typing import Final

import msgspec
from asgiref.sync import async_to_sync

from console.feed.running import running
from console.jobs import fold
from console.jobs.models import Job
from signalbox.bus.client import Bus
from signalbox.jobs import joblog
from signalbox.jobs.records import Found, Records
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire import messages
from signalbox.wire.jobids import JOB_ID
from signalbox.wire.messages import Record, decode
from signalbox.wire.names import Header, Stream, state

ASK_S: Final = 2.0


def find(job_id: str) -> Job | None:
    """The job as NATS knows it, not saved; None where it knows none, is away, or this process serves no pages."""
    bus = running.feed.bus if running.feed is not None else None
    if bus is None or not JOB_ID.match(job_id):
        return None
    try:
        # On the loop of the server, which this connection belongs to.
        row = async_to_sync(_ask)(bus, job_id)
    except (SignalboxError, TimeoutError, msgspec.MsgspecError) as error:
        log.warning("jobs.record_read_failed", **joblog.only_id(job_id), reason=str(error))
        return None
    return _unsaved(row) if row is not None else None


async def _ask(bus: Bus, job_id: str) -> fold.Row | None:
    async with asyncio.timeout(ASK_S):
        found = await bus.leader_get(Stream.STATE, state(job_id))
        if found is not None and Header.RECORD in found.headers:
            record = decode(Record, found.headers[Header.RECORD])
            if record.deleted_at:
                return None
            return fold.row_of_record(record, found.seq, found.time)
        queued = await Records(bus).queued(job_id)
    if queued is None or Header.JOB not in queued.headers:
        return None
    job = decode(messages.Job, queued.headers[Header.JOB])
    return fold.row_of_record(Found.unclaimed(job).record, 0, queued.time)


def _unsaved(row: fold.Row) -> Job:
    """The row as a job that the database does not hold."""
    instants = {name: row[name] for name in fold.INSTANTS & row.keys() if row[name] is not None}
    return Job(**{**row, **{name: datetime.fromtimestamp(at, UTC) for name, at in instants.items()}})
