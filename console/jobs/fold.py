"""Turns acceptances and records of jobs into rows. Pure.

Two rules make replays and disorder harmless: an event row is keyed by the record's sequence in ``STATE``, and a
job row takes a record only if that is higher than the one it shows. Acceptances and records come from two
streams and may pass one another; an acceptance never overwrites a record, and makes no event row.
A job's row tells its last record. Event rows keep what that does not: attempts that were given up, and a
cancellation that was asked for. A job that began and ended within a batch is one row.
"""

from collections.abc import Iterable
from typing import Final, NamedTuple

from signalbox.jobs.records import Found
from signalbox.wire.messages import EndedAttempt, ErrorInfo, Job, Record, State

INSTANTS: Final = frozenset({"created_at", "deadline_at", "claimed_at", "finished_at", "updated_at", "at"})
"""Columns in unix seconds."""


class JobMessage(NamedTuple):
    """A record, or the one that an acceptance stands for. revision: its sequence in STATE, None for an acceptance."""

    at: float
    revision: int | None
    record: Record

    @classmethod
    def accepted(cls, job: Job, at: float) -> "JobMessage":
        """A job that has not been claimed yet."""
        return cls(at, None, Found.unclaimed(job).record)


class JobRow(NamedTuple):
    """Columns of :class:`console.jobs.models.Job`, in the order they are written; times in unix seconds."""

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
    attempt: int
    strikes: int
    failures: int
    worker: str
    gpu: str
    token: int
    batch: int
    claimed_at: float | None
    finished_at: float | None
    error_code: str
    error_message: str
    size_out: int
    is_cancel_asked: bool
    revision: int


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
        if one.revision is None:
            accepted[one.record.id] = row_of_record(one.record, 0, one.at)
            continue
        before = recorded.get(one.record.id)
        if before is None or before.revision < one.revision:
            recorded[one.record.id] = row_of_record(one.record, one.revision, one.at)
        if not one.record.state.is_terminal:
            events[one.revision] = event_of_record(one.record, one.revision, one.at)
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
