"""Finds a job's input or output in NATS. Nothing is kept longer for it: where it is gone, the answer says since when.

An input lies in the job's message or in ``INPUTS`` until the job has ended, and then only in its dead letter, if it has
one. An output lies in the job's record or in ``PAYLOADS``.
"""

from datetime import UTC, datetime
from enum import StrEnum
from typing import Final, NamedTuple

import msgspec
from django.conf import settings

from console.jobs.models import Job as Row
from console.payloads.request import Request
from signalbox.bus.client import Bus
from signalbox.jobs import deadletters, payloads
from signalbox.jobs.records import Records
from signalbox.program.errors import InputLost, NewerVersion, NotFound, TooLarge
from signalbox.wire.jobids import JOB_ID, is_short_lived
from signalbox.wire.messages import Job, PayloadRef, Record, State

MOST_BYTES: Final = 64 * 1024 * 1024
"""Most that is read of one payload: what models take by default."""
_MIB: Final = 1024 * 1024


class Part(StrEnum):
    """What is read of a job."""

    INPUT = "input"
    OUTPUT = "output"


class Stored(NamedTuple):
    """One part of a job. frame: None where there is none, and ``why`` says so. where: it lies, in words."""

    request: Request
    frame: bytes | None
    why: str = ""
    where: str = ""


async def read(bus: Bus, job_id: str, part: Part, row: Row | None) -> Stored:
    """The input or output of a job. row: what the database has of it.

    Raises :class:`NotFound` for a job that neither knows, :class:`TooLarge` above :data:`MOST_BYTES`, and
    :class:`NewerVersion`.
    """
    if not JOB_ID.match(job_id):
        raise NotFound(f"There is no job {job_id!r}.")
    found = await Records(bus).read(job_id)
    if found is not None and found[0].deleted_at:
        why = f"The job was deleted, {_at(found[0].deleted_at)}."
        return Stored(Request.of(row or found[0]), None, why)
    if part is Part.OUTPUT:
        return await _output(bus, job_id, found, row)
    return await _input(bus, job_id, found[0] if found is not None else None, row)


async def _output(bus: Bus, job_id: str, found: tuple[Record, int, bytes] | None, row: Row | None) -> Stored:
    if found is None:
        if row is not None:
            why = _why_no_output(row.state, _ended_at(row), is_kept_short=is_short_lived(job_id))
            return Stored(Request.of(row), None, why)
        job = await _queued(bus, job_id)
        request = _known(Request.of(job[0]) if job is not None else None, job_id)
        return Stored(request, None, _why_no_output("queued", None))
    record, _, body = found
    request = Request.of(record)
    if record.state is not State.SUCCEEDED:
        return Stored(request, None, _why_no_output(record.state.value, None))
    if record.ref is None:
        return Stored(request, body, where="in the job's record")
    try:
        return Stored(request, await _fetch(bus, record.ref), where="beside the job's record")
    except NotFound:
        why = _why_no_output(record.state.value, record.finished_at, is_kept_short=is_short_lived(job_id))
        return Stored(request, None, why)


async def _input(bus: Bus, job_id: str, record: Record | None, row: Row | None) -> Stored:
    job = await _queued(bus, job_id)
    if job is not None and job[0].ref is None:
        return Stored(Request.of(job[0]), job[1], where="in the queue, with the job's message")
    refs = [job[0].ref] if job is not None else []
    if record is not None and not record.state.is_terminal:
        refs.append(record.input)
    told = record or row or (job[0] if job is not None else None)
    request = Request.of(told) if told is not None else None
    for ref in filter(None, refs):
        try:
            return Stored(_known(request, job_id), await _fetch(bus, ref), where="beside the queue")
        except NotFound:
            continue
    try:
        letter = await deadletters.find(bus, job_id)
    except NotFound:
        state = record.state.value if record is not None else row.state if row is not None else ""
        ended_at = record.finished_at if record is not None else _ended_at(row)
        return Stored(_known(request, job_id), None, _why_no_input(state, ended_at))
    request = request or (Request.of(letter.job) if letter.job else Request(job_id, letter.model, 0, "", "mid", ""))
    _require_small(letter.size_bytes)
    try:
        return Stored(request, await deadletters.input_of(bus, letter), where="with its dead letter")
    except InputLost as error:
        return Stored(request, None, error.public_message)


async def _queued(bus: Bus, job_id: str) -> tuple[Job, bytes] | None:
    queued = await Records(bus).queued(job_id)
    if queued is None:
        return None
    try:
        return queued.job, queued.data
    except (KeyError, msgspec.MsgspecError) as error:
        raise NewerVersion(job_id=job_id) from error


async def _fetch(bus: Bus, ref: PayloadRef) -> bytes:
    _require_small(ref.size)
    return await payloads.fetch(bus, ref)


def _require_small(size: int) -> None:
    if size > MOST_BYTES:
        raise TooLarge(
            f"It has {size / _MIB:.0f} MiB, and the console reads at most {MOST_BYTES // _MIB} MiB of a job. The job's "
            "owner gets an output from the API; the input of a dead letter is saved by `signalbox dead show --save`."
        )


def _known(request: Request | None, job_id: str) -> Request:
    if request is None:
        raise NotFound(f"There is no job {job_id!r}: neither the job list nor NATS knows it, or no longer.")
    return request


def _ended_at(row: Row | None) -> float | None:
    return row.finished_at.timestamp() if row is not None and row.finished_at is not None else None


def _why_no_input(state: str, ended_at: float | None) -> str:
    if state in {"", "queued", "running"}:
        return "NATS does not hold the input of this job now. If it does not start, its input is lost."
    since = f", {_at(ended_at)}" if ended_at is not None else ""
    return (
        f"The input went when the job ended{since}: it is stored while a job waits or runs, and afterwards only"
        " of dead letters."
    )


def _why_no_output(state: str, ended_at: float | None, *, is_kept_short: bool = False) -> str:
    if state in {"queued", "running"}:
        return f"There is no output yet: the job is {state}."
    if state != State.SUCCEEDED.value:
        return f"There is no output: the job ended as {state}."
    kept_s = settings.CONSOLE.sync_results_kept_s if is_kept_short else settings.CONSOLE.records_kept_s
    until = f", so this one until {_at(ended_at + kept_s)} at most" if ended_at is not None else ""
    kept = f"{kept_s / 3600:.3g} h" if kept_s >= 3600 else f"{kept_s / 60:.3g} min"
    return f"The output is gone: it is stored for {kept} after the end of a job, less where room is short{until}."


def _at(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S} UTC"
