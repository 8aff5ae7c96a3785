"""A job's life as pure transitions: ``(job or record, facts, now) -> record``. No clock, no NATS.

``queued -> running -> succeeded | failed | cancelled | expired``; ``running -> queued`` on a retry.
The first terminal record wins, for ever: writers carry the revision they read (compare-and-set).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from msgspec.structs import replace

from signalbox.jobs.blame import Blame
from signalbox.program.errors import Conflict
from signalbox.wire.messages import ErrorInfo, Job, PayloadRef, Record, State

_NONE: Final[Mapping[str, float]] = MappingProxyType({})
OWNER: Final = "owner"
OPERATOR: Final = "operator"
CANCELLED: Final = {OWNER: "Cancelled by its owner.", OPERATOR: "Cancelled by an operator."}


def first_record(job: Job, state: State) -> Record:
    """The record of a job that no worker has claimed yet."""
    return Record(
        id=job.id,
        model=job.model,
        version=job.version,
        signature=job.signature,
        priority=job.priority,
        key_id=job.key_id,
        style=job.style,
        state=state,
        created_at=job.created_at,
        deadline_at=job.deadline_at,
        trace=job.trace,
        input=job.ref,
        outputs=job.outputs if job.ref is not None else (),
        input_bytes=job.size_bytes or (job.ref.size if job.ref is not None else 0),
        redrive_of=job.redrive_of,
    )


def claimed(job: Job, record: Record | None, *, worker: str, gpu: str, token: int, now: float) -> Record:
    """``running`` under the next attempt. Raises :class:`Conflict` if the job has already ended.

    A record that still says ``running`` is of an attempt that ended without writing its end: no strike, but counted.
    """
    before = record or first_record(job, State.QUEUED)
    _must_be_open(before)
    return replace(
        before,
        state=State.RUNNING,
        attempt=before.attempt + 1,
        worker=worker,
        gpu=gpu,
        token=token,
        claimed_at=now,
        phases={"claimed": ms(before, now)},
        error=None,
        retry_at=0.0,
        vanished=before.vanished + (before.state is State.RUNNING),
    )


def succeeded(
    record: Record, *, now: float, phases: dict[str, float], batch: int, size_bytes: int, ref: PayloadRef | None = None
) -> Record:
    """The result is in the body (or behind ``ref``)."""
    return replace(
        _must_be_open(record),
        state=State.SUCCEEDED,
        finished_at=now,
        batch=batch,
        ref=ref,
        size_bytes=size_bytes,
        phases=record.phases | phases | {"done": ms(record, now)},
    )


def failed(
    record: Record, error: ErrorInfo, *, now: float, phases: Mapping[str, float] = _NONE, blame: Blame = Blame.NONE
) -> Record:
    """Ended without a result; ``error`` says why. phases: of the attempt, where one was made."""
    return blamed(_ended(record, State.FAILED, now, error, phases), blame)


def cancelled(record: Record, *, now: float, phases: Mapping[str, float] = _NONE, by: str = OWNER) -> Record:
    """Ended because of a cancellation, by whom the record names, else by ``by``. phases: as in :func:`failed`."""
    who = record.cancelled_by or by
    error = ErrorInfo(code="cancelled", message=CANCELLED.get(who, "Cancelled."))
    return replace(_ended(record, State.CANCELLED, now, error, phases), cancelled_by=who)


def expired(record: Record, *, now: float, phases: Mapping[str, float] = _NONE) -> Record:
    """Ended because its deadline passed before it could run."""
    error = ErrorInfo(code="expired", message="The job's deadline passed before it ran.")
    return _ended(record, State.EXPIRED, now, error, phases)


def requeued(record: Record, error: ErrorInfo, *, blame: Blame = Blame.NONE, retry_at: float = 0.0) -> Record:
    """Back to ``queued`` after an attempt that failed."""
    return replace(blamed(_must_be_open(record), blame), state=State.QUEUED, error=error, retry_at=retry_at)


def blamed(record: Record, blame: Blame) -> Record:
    """The record with one attempt more counted as ``blame`` says."""
    if blame is Blame.STRIKE:
        return replace(record, strikes=record.strikes + 1)
    if blame is Blame.FAILURE:
        return replace(record, failures=record.failures + 1)
    return record


def queued_again(record: Record) -> Job:
    """The job that queues a record's work again. Its input must have been claim-checked: records hold no inputs."""
    if record.input is None:
        raise Conflict("The job's input is not stored.")
    return Job(
        id=record.id,
        model=record.model,
        version=record.version,
        signature=record.signature,
        priority=record.priority,
        key_id=record.key_id,
        style=record.style,
        outputs=record.outputs,
        created_at=record.created_at,
        deadline_at=record.deadline_at,
        ref=record.input,
        size_bytes=record.input.size,
        trace=record.trace,
        redrive_of=record.redrive_of,
    )


def redriven(job: Job, job_id: str, *, now: float, deadline_s: float, ref: PayloadRef | None) -> Job:
    """A new job that repeats one that became a dead letter. ref: of its own copy of the input; None = inline."""
    return replace(
        job, id=job_id, created_at=now, deadline_at=now + deadline_s, ref=ref, reply="", trace="", redrive_of=job.id
    )


def cancel_asked(record: Record, *, by: str = OWNER) -> Record:
    """The record of a running job whose holder is asked to stop it. The first to ask is remembered."""
    who = record.cancelled_by or by
    return replace(_must_be_open(record), cancel_requested=True, cancelled_by=who)


def ms(record: Record, now: float) -> float:
    """Milliseconds from acceptance to ``now``, never negative (clocks differ)."""
    return round(max(0.0, now - record.created_at) * 1000, 2)


def _ended(record: Record, state: State, now: float, error: ErrorInfo, phases: Mapping[str, float]) -> Record:
    return replace(
        _must_be_open(record),
        state=state,
        finished_at=now,
        error=error,
        phases={**record.phases, **phases, "done": ms(record, now)},
    )


def _must_be_open(record: Record) -> Record:
    if record.state.is_terminal:
        raise Conflict(f"The job has already ended: {record.state}.", state=record.state.value)
    return record
