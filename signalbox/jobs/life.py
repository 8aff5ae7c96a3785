"""A job's life as pure transitions: ``(job or record, facts, now) -> record``. No clock, no NATS.

``queued -> running -> succeeded | failed | cancelled | expired``; ``running -> queued`` on a retry.
The first terminal record wins, for ever: writers carry the revision they read (compare-and-set).
"""

from typing import Final

from msgspec.structs import replace

from signalbox.jobs import times
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.times import Spent, Stages
from signalbox.program.errors import Conflict
from signalbox.wire.messages import EndedAttempt, ErrorInfo, Job, PayloadRef, Record, State
from signalbox.wire.names import PRIORITIES, Priority

MOST_ATTEMPTS: Final = 20
"""Ended attempts that a record keeps: the newest."""
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
        account_id=job.account_id,
        key_id=job.key_id,
        style=job.style,
        state=state,
        created_at=job.created_at,
        deadline_at=job.deadline_at,
        trace=job.trace,
        input=job.ref,
        outputs=job.outputs if job.ref is not None else (),
        batch_key=job.batch_key if job.ref is not None else "",
        rows=job.rows if job.ref is not None else 1,
        input_bytes=job.size_bytes,
        redrive_of=job.redrive_of,
        tags=job.tags,
        not_before=job.not_before,
        webhook=job.webhook,
    )


def claimed(
    job: Job, record: Record | None, *, worker: str, gpu: str, token: int, now: float, stages: Stages = ()
) -> Record:
    """``running`` under the next attempt. Raises :class:`Conflict` if the job has already ended.

    A record that still says ``running`` is of an attempt that ended without writing its end: no strike, but counted.
    stages: of the new attempt so far.
    """
    before = record or first_record(job, State.QUEUED)
    _must_be_open(before)
    vanished = before.vanished
    if before.state is State.RUNNING:
        vanished += 1
        lost = times.unknown(before, times.pulled_at(stages, now))
        before = replace(before, attempts=_with(before, lost))
    parts, phases, claimed_ms = times.spent(before, stages, now)
    return replace(
        before,
        state=State.RUNNING,
        attempt=before.attempt + 1,
        worker=worker,
        gpu=gpu,
        token=token,
        claimed_at=now,
        phases={**phases, "claimed": claimed_ms},
        parts=parts,
        error=None,
        retry_at=0.0,
        vanished=vanished,
    )


def succeeded(
    record: Record, *, now: float, stages: Stages = (), batch: int, size_bytes: int, ref: PayloadRef | None = None
) -> Record:
    """The result is in the body (or behind ``ref``)."""
    parts, phases, done_ms = _spent(_must_be_open(record), stages, now)
    return replace(
        record,
        state=State.SUCCEEDED,
        finished_at=now,
        batch=batch,
        ref=ref,
        size_bytes=size_bytes,
        phases={**phases, "done": done_ms},
        parts=parts,
    )


def failed(
    record: Record, error: ErrorInfo, *, now: float, stages: Stages = (), penalty: Penalty = Penalty.NONE
) -> Record:
    """Ended without a result; ``error`` says why. stages: of the attempt, as its worker knows them."""
    return penalized(_ended(record, State.FAILED, now, error, stages), penalty)


def cancelled(record: Record, *, now: float, stages: Stages = (), by: str = OWNER) -> Record:
    """Ended because of a cancellation, by whom the record names, else by ``by``. stages: as in :func:`failed`."""
    who = record.cancelled_by or by
    error = ErrorInfo(code="cancelled", message=CANCELLED.get(who, "Cancelled."))
    return replace(_ended(record, State.CANCELLED, now, error, stages), cancelled_by=who)


def expired(record: Record, *, now: float, stages: Stages = ()) -> Record:
    """Ended because its deadline passed before it could run. stages: as in :func:`failed`."""
    error = ErrorInfo(code="expired", message="The job's deadline passed before it ran.")
    return _ended(record, State.EXPIRED, now, error, stages)


def requeued(
    record: Record,
    error: ErrorInfo,
    *,
    now: float,
    stages: Stages = (),
    penalty: Penalty = Penalty.NONE,
    retry_at: float = 0.0,
) -> Record:
    """Back to ``queued`` after an attempt that failed. stages: as in :func:`failed`."""
    spent = _spent(_must_be_open(record), stages, now)
    retry_ms = ms(record, retry_at) if retry_at else 0.0
    return replace(
        penalized(record, penalty),
        state=State.QUEUED,
        error=error,
        retry_at=retry_at,
        phases=spent.phases,
        parts={},
        attempts=_with(record, spent, code=error.code, counts=penalty.value, retry_ms=retry_ms),
    )


def penalized(record: Record, penalty: Penalty) -> Record:
    """The record with one attempt more counted as ``penalty`` says."""
    if penalty is Penalty.STRIKE:
        return replace(record, strikes=record.strikes + 1)
    if penalty is Penalty.FAILURE:
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
        account_id=record.account_id,
        key_id=record.key_id,
        style=record.style,
        batch_key=record.batch_key,
        rows=record.rows,
        outputs=record.outputs,
        created_at=record.created_at,
        deadline_at=record.deadline_at,
        ref=record.input,
        size_bytes=record.input_bytes,
        trace=record.trace,
        redrive_of=record.redrive_of,
        tags=record.tags,
        not_before=record.not_before,
        webhook=record.webhook,
    )


def redriven(job: Job, job_id: str, *, now: float, deadline_s: float, ref: PayloadRef | None) -> Job:
    """A new job that repeats one that became a dead letter. ref: of its own copy of the input; None = inline."""
    return replace(
        job,
        id=job_id,
        created_at=now,
        deadline_at=now + deadline_s,
        ref=ref,
        reply="",
        trace="",
        redrive_of=job.id,
        not_before=0.0,
        is_raised=False,
    )


def changed(record: Record, *, priority: Priority, deadline_at: float) -> Record:
    """The record of a waiting job in a higher class, or with another deadline.

    Raises :class:`Conflict` once a worker has it, and for a lower class: the message in the higher one stays. One that
    waits for another attempt is not raised: it stays with the worker that had it, and is no sooner its turn.
    """
    if _must_be_open(record).state is not State.QUEUED:
        raise Conflict(
            f"A worker has the job already, it is {record.state}: only a waiting job can be changed.",
            state=record.state.value,
        )
    if PRIORITIES.index(priority) > PRIORITIES.index(record.priority):
        raise Conflict(
            f'The job\'s priority is "{record.priority}"; it can be raised, not lowered to "{priority}". Cancel it '
            "and submit it again.",
            state=record.state.value,
        )
    if priority != record.priority and record.attempt:
        raise Conflict(
            "A worker has had the job already, which waits for another attempt: it cannot be raised any more.",
            state=record.state.value,
        )
    return replace(record, priority=priority, deadline_at=deadline_at)


def is_overdue(record: Record, job: Job, began_at: float) -> bool:
    """Whether an attempt that nobody has claimed began after a deadline that its owner has drawn closer.

    job: as its message has it, by which the attempt was let begin. began_at: UTC seconds.
    """
    return record.deadline_at < job.deadline_at and record.deadline_at < began_at and record.state is State.QUEUED


def deleted(record: Record, *, now: float) -> Record:
    """The tombstone of an ended job: whose it was and how it ended, and nothing of what it held.

    Raises :class:`Conflict` for a job that has not ended.
    """
    if not record.state.is_terminal:
        raise Conflict(f"The job has not ended, it is {record.state}: cancel it first.", state=record.state.value)
    return Record(
        id=record.id,
        model=record.model,
        version=record.version,
        signature="",
        priority=record.priority,
        account_id=record.account_id,
        state=record.state,
        created_at=record.created_at,
        deadline_at=record.deadline_at,
        finished_at=record.finished_at,
        deleted_at=now,
    )


def cancel_asked(record: Record, *, by: str = OWNER) -> Record:
    """The record of a running job whose holder is asked to stop it. The first to ask is remembered."""
    who = record.cancelled_by or by
    return replace(_must_be_open(record), cancel_requested=True, cancelled_by=who)


def ms(record: Record, now: float) -> float:
    """Milliseconds from acceptance to ``now``, never negative (clocks differ)."""
    return round(max(0.0, now - record.created_at) * 1000, 2)


def _ended(record: Record, state: State, now: float, error: ErrorInfo, stages: Stages) -> Record:
    record = _without_lost(record, stages)
    parts, phases, done_ms = _spent(record, stages, now)
    return replace(record, state=state, finished_at=now, error=error, phases={**phases, "done": done_ms}, parts=parts)


def _without_lost(record: Record, stages: Stages) -> Record:
    """The open record; its attempt is among the ended ones where the stages are of a later one, never claimed."""
    _must_be_open(record)
    claimed_at = record.claimed_at or 0.0
    pulled_at = times.pulled_at(stages, claimed_at)
    if record.state is not State.RUNNING or pulled_at <= claimed_at:
        return record
    attempts = _with(record, times.unknown(record, pulled_at))
    return replace(record, state=State.QUEUED, attempts=attempts, phases={}, parts={}, vanished=record.vanished + 1)


def _spent(record: Record, stages: Stages, now: float) -> Spent:
    """The time of the present attempt; of one that its worker does not end, what the claim says and no more."""
    is_claimed = record.state is State.RUNNING
    spent = times.unknown(record, now) if is_claimed and not stages else times.spent(record, stages, now)
    return spent._replace(phases={**record.phases, **spent.phases}) if is_claimed else spent


def _with(
    record: Record, spent: Spent, *, code: str = "", counts: str = "", retry_ms: float = 0.0
) -> tuple[EndedAttempt, ...]:
    """The ended attempts of a record and its present one."""
    ended = EndedAttempt(
        number=record.attempt,
        worker=record.worker,
        gpu=record.gpu,
        ended_ms=spent.end_ms,
        parts=spent.parts,
        code=code,
        counts=counts,
        retry_ms=retry_ms,
    )
    return (*record.attempts, ended)[-MOST_ATTEMPTS:]


def _must_be_open(record: Record) -> Record:
    if record.state.is_terminal:
        raise Conflict(f"The job has already ended: {record.state}.", state=record.state.value)
    return record
