"""Deleting an ended job, for its owner or by an operator: its record becomes a tombstone, what it held is erased.

The tombstone overwrites record and inline result at once, by compare-and-set, and tells everybody: the worker that
reconciles erases the rest, the console's projector its rows. It stays as long as any record, so that neither an
idempotency entry nor a late message brings the job back. Messages are erased one by one (``MSG.DELETE`` overwrites
their bytes on the disk, as no purge does); docs/security.md says what stays there of what went before.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.jobs import joblog, life
from signalbox.jobs.deadletters import Letter
from signalbox.jobs.message import GONE
from signalbox.jobs.records import Found, Records
from signalbox.program.errors import NoLongerKept, NotFound, SignalboxError, StaleRevision, Unavailable
from signalbox.wire import names, outboundnames
from signalbox.wire.asks import ListedJob
from signalbox.wire.messages import Record, State
from signalbox.wire.names import Stream

LOOKED_AT_S: Final = 360.0
"""A tombstone as old was looked at twice (:mod:`workers.recovery.erasure`): it is written again for another look."""
_RACES: Final = 20


async def delete(records: Records, found: Found, *, clock: Callable[[], float]) -> Found:
    """Write the tombstone of the ended job that was found; returns it. Idempotent. clock: UTC seconds.

    Raises :class:`Conflict` for a job that has not ended, :class:`NotFound` where it has gone meanwhile, and as
    :meth:`Records.write`.
    """
    for _ in range(_RACES):
        if found.record.deleted_at:
            return found
        wanted = life.deleted(found.record, now=clock())
        try:
            revision = await records.write(wanted, expect=found.revision)
        except StaleRevision as error:
            again = await records.find(wanted.id)
            if again is None:
                raise NotFound("The job is no longer known.") from error
            found = again
            continue
        joblog.step("job.deleted", wanted)
        return Found(wanted, revision)
    raise Unavailable("The job changes too quickly to be deleted.", retry_after_s=1.0)


def of_letter(letter: Letter) -> Found | None:
    """An ended job of which only its dead letter is left; None where this version cannot read it."""
    if letter.job is None:
        return None
    return Found(replace(life.first_record(letter.job, State.FAILED), finished_at=letter.at), 0)


def of_listed(listed: ListedJob, account: str) -> Found | None:
    """An ended job of which only the console's row is left; None for one that is listed as open."""
    state = State(listed.state)
    if not state.is_terminal:
        return None
    record = Record(
        id=listed.id,
        model=listed.model,
        version=listed.version,
        signature="",
        account_id=account,
        state=state,
        created_at=listed.created_at,
        deadline_at=listed.deadline_at or listed.created_at,
        finished_at=listed.finished_at,
    )
    return Found(record, 0)


def refusal(record: Record) -> NoLongerKept:
    """What everybody who asks for a deleted job is told."""
    return NoLongerKept("The job was deleted.", job_id=record.id)


def places(record: Record) -> tuple[tuple[Stream, str], ...]:
    """Where messages of a job may lie, beside its record: stream and wildcard subject."""
    account, job_id = record.account_id, record.id
    return (
        (Stream.JOBS, names.job_anywhere(job_id)),
        (Stream.INPUTS, names.job_inputs(account, job_id)),
        (Stream.PAYLOADS, names.payload(account, job_id, "*")),
        (Stream.RESULTS, outboundnames.result(account, record.model, job_id)),
        (
            Stream.DELIVERIES,
            outboundnames.deliveries(job_id=job_id),
        ),  # answers of receivers, which may repeat what they got
        (Stream.DLQ, names.dead_letters(job_id=job_id)),
        (Stream.DLQ_PARTS, names.kept_inputs(account, job_id)),
        (Stream.DLQ_PARTS, names.redriven(job_id)),
    )


async def is_gone(bus: Bus, record: Record) -> bool:
    """Whether nothing is left of a deleted job but its tombstone. Raises as :meth:`Bus.request_json`."""
    return not any(await asyncio.gather(*(_subjects(bus, *place) for place in places(record))))


async def erase(bus: Bus, record: Record, *, most: int) -> int:
    """Erase what is left of a deleted job, at most so many messages; returns how many. Idempotent.

    The oldest first: once the last of a subject was deleted nats-server 2.15.1 may not find the one before it by
    ``last_by_subj``. Raises as :meth:`Bus.request_json`.
    """
    erased = 0
    for stream, wildcard in places(record):
        for subject in await _subjects(bus, stream, wildcard):
            seq = 0
            while erased < most and (found := await bus.leader_next(stream, seq + 1, subject)) is not None:
                seq = found.seq
                await _erase(bus, stream, seq)
                erased += 1
    return erased


async def _subjects(bus: Bus, stream: Stream, wildcard: str) -> dict[str, int]:
    """What is stored under a wildcard subject: messages by subject."""
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}", {"subjects_filter": wildcard})
    return info["state"].get("subjects") or {}


async def _erase(bus: Bus, stream: Stream, seq: int) -> None:
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": seq})
    except SignalboxError as error:
        if error.facts.get("err_code") not in GONE:
            raise
