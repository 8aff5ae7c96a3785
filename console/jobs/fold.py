"""Turns acceptances and records of jobs into rows. Pure.

Two rules make replays and disorder harmless: an event row is keyed by the record's sequence in ``STATE``, and a
job row takes a record only if that is higher than the one it shows. Acceptances and records come from two
streams and may pass one another; an acceptance never overwrites a record, and makes no event row.
A job's row tells its last record. Event rows keep what that does not: attempts that were given up, and a
cancellation that was asked for. A job that began and ended within a batch is one row.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from signalbox.wire import messages
from signalbox.wire.messages import EndedAttempt, ErrorInfo, Record, State

INSTANTS: Final = frozenset({"created_at", "deadline_at", "claimed_at", "finished_at", "updated_at", "at"})
"""Columns in unix seconds."""


class JobMessage(NamedTuple):
    """An acceptance or a record. revision: the record's sequence in STATE, 0 for an acceptance."""

    at: float
    revision: int
    job: messages.Job | None = None
    record: Record | None = None


class JobRow(NamedTuple):
    """Columns of :class:`console.jobs.models.Job`, in the order they are written; times in unix seconds.

    The defaults are those of a job that was not claimed yet.
    """

    id: str
    model: str
    version: int
    signature: str
    priority: str
    account_id: str
    key_id: str
    state: str
    created_at: float
    deadline_at: float
    updated_at: float
    trace: str
    redrive_of: str
    size_in: int
    phases: dict[str, float]
    parts: dict[str, float]
    ended_attempts: tuple[EndedAttempt, ...]
    attempt: int = 0
    strikes: int = 0
    failures: int = 0
    worker: str = ""
    gpu: str = ""
    token: int = 0
    batch: int = 0
    claimed_at: float | None = None
    finished_at: float | None = None
    error_code: str = ""
    error_message: str = ""
    size_out: int = 0
    is_cancel_asked: bool = False
    revision: int = 0


class EventRow(NamedTuple):
    """Columns of :class:`console.jobs.models.JobEvent`; ``at`` in unix seconds."""

    seq: int
    job_id: str
    at: float
    state: str
    attempt: int
    worker: str
    gpu: str
    token: int
    error_code: str
    error_message: str
    phases: dict[str, float]
    is_cancel_asked: bool


class Rows(NamedTuple):
    """What to write. accepted: jobs of which this batch holds no record. events: by sequence, at most once each."""

    recorded: dict[str, JobRow]
    accepted: dict[str, JobRow]
    events: list[EventRow]


def fold(received: Iterable[JobMessage]) -> Rows:
    """The rows that ``received`` makes; a job that comes to its end within a batch is written once."""
    recorded: dict[str, JobRow] = {}
    accepted: dict[str, JobRow] = {}
    events: dict[int, EventRow] = {}
    for one in received:
        if one.record is not None:
            before = recorded.get(one.record.id)
            if before is None or before.revision < one.revision:
                recorded[one.record.id] = row_of_record(one.record, one.revision, one.at)
            if not one.record.state.is_terminal:
                events[one.revision] = event_of_record(one.record, one.revision, one.at)
        elif one.job is not None:
            accepted[one.job.id] = row_of_job(one.job, one.at)
    for job_id in recorded.keys() & accepted.keys():
        del accepted[job_id]
    kept = [event for event in events.values() if not _is_reported(event, recorded[event.job_id])]
    return Rows(recorded, accepted, kept)


def _is_reported(event: EventRow, last: JobRow) -> bool:
    """Whether a later record of the same attempt tells this claim: its phases say when it was."""
    return (
        event.seq < last.revision
        and event.attempt == last.attempt
        and event.state == State.RUNNING
        and not event.is_cancel_asked
    )


def row_of_job(job: messages.Job, at: float) -> JobRow:
    """Row of a job that has not been claimed yet."""
    return JobRow(
        job.id,
        job.model,
        job.version,
        job.signature[:200],
        job.priority,
        job.account_id,
        job.key_id,
        State.QUEUED.value,
        job.created_at,
        job.deadline_at,
        at,
        job.trace[:200],
        job.redrive_of[:36],
        job.size_bytes,
        {},
        {},
        (),
    )


def row_of_record(record: Record, revision: int, at: float) -> JobRow:
    """A job as its record has it."""
    code, message = _error(record.error, 2000)
    return JobRow(
        record.id,
        record.model,
        record.version,
        record.signature[:200],
        record.priority,
        record.account_id,
        record.key_id,
        record.state.value,
        record.created_at,
        record.deadline_at,
        at,
        record.trace[:200],
        record.redrive_of[:36],
        record.input_bytes,
        record.phases,
        record.parts,
        record.attempts,
        record.attempt,
        record.strikes,
        record.failures,
        record.worker,
        record.gpu,
        record.token,
        record.batch,
        record.claimed_at,
        record.finished_at,
        code,
        message,
        record.size_bytes,
        record.cancel_requested,
        revision,
    )


def event_of_record(record: Record, revision: int, at: float) -> EventRow:
    """One transition."""
    code, message = _error(record.error, 500)
    return EventRow(
        revision,
        record.id,
        at,
        record.state.value,
        record.attempt,
        record.worker,
        record.gpu,
        record.token,
        code,
        message,
        record.phases,
        record.cancel_requested,
    )


def _error(error: ErrorInfo | None, size: int) -> tuple[str, str]:
    return (error.code[:40], error.message[:size]) if error is not None else ("", "")
