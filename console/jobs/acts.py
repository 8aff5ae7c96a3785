"""Acts of operators on one job. Each is posted to the outbox, whose publisher does it on NATS.

The row is up to a second late, so NATS has the last word: what it refuses is told as far as it is known in time.
"""

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

import msgspec
from django.utils import timezone

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act, check, preparing
from console.jobs import deadletters, fresh
from console.jobs.models import Job
from console.outbox import services as outbox
from console.outbox.jobacts import JobChange
from console.outbox.models import OutboxEntry
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.jobs.refusals import why_no_input
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.wire.jobids import JOB_ID
from signalbox.wire.messages import Record, State, encode
from signalbox.wire.names import PRIORITIES, Priority

_REPORT_WITHIN_S: Final = 2.0
"""How long an answer waits to say whether the act is done."""


@dataclass(frozen=True)
class JobAct:
    """An act on a job. is_done: NATS has it; otherwise the outbox keeps it, see reason."""

    job: str
    is_done: bool
    reason: str = ""


def cancel(actor: Actor, job_id: str, *, reason: str = "") -> Job:
    """Ask for a job's end: a queued one never runs, the holder of a running one is asked to stop.

    Raises :class:`Conflict` if it has ended already.
    """
    target, asked = Target("job", job_id), {"cancel": "asked"}
    check(actor, Act.JOBS_CANCEL, target, asked=asked, reason=reason)
    # NATS may take two seconds to answer, and other writers must not wait for it.
    known = _known(job_id)
    with act(actor, Act.JOBS_CANCEL, target, asked=asked, reason=reason) as change:
        job = _row(job_id, known)
        if not job.is_open:
            raise Conflict(f"The job has already ended: {job.state}.")
        change.before = {"account": job.account_id, "state": job.state}
        change.after = {"account": job.account_id, "cancel": "asked"}
        outbox.post(OutboxEntry(kind=OutboxEntry.CANCEL, key=job_id))
    return job


def retry(actor: Actor, job_id: str, *, after: str = "", reason: str = "") -> deadletters.LetterAct:
    """Run a job that was given up again, as a new one, which the answer names. after: see :func:`deadletters.redrive`.

    Raises :class:`Conflict` with the reason where it cannot be run again.
    """
    target = Target("job", job_id)
    check(actor, Act.JOBS_RETRY, target, reason=reason)
    job = _ended(job_id)
    with preparing(actor, Act.JOBS_RETRY, target, reason=reason):
        if job is None and not JOB_ID.match(job_id):
            raise NotFound(f"There is no job {job_id!r}.")
        if job is not None and job.is_open:
            raise Conflict(f"The job has not ended, it is {job.state}: nothing is to be run again.")
    try:
        return deadletters.redrive(actor, job_id, after=after, reason=reason)
    except NotFound as error:
        if job is None:
            raise
        finished_at = job.finished_at.timestamp() if job.finished_at is not None else None
        why = why_no_input(State(job.state), job.error_code, finished_at)
        raise Conflict(f"{why} Its owner has to submit it again.") from error


def change(
    actor: Actor,
    job_id: str,
    *,
    priority: Priority | None = None,
    deadline_at: datetime | None = None,
    reason: str = "",
) -> JobAct:
    """Raise the priority of a waiting job, or move its deadline; None: as it is.

    Raises :class:`Conflict` once a worker has had it or it has ended, and for a lower priority, and
    :class:`InvalidRequest` for a deadline that is past or too far away.
    """
    target = Target("job", job_id)
    asked: dict[str, str] = {"priority": priority} if priority is not None else {}
    asked |= {"deadline_at": deadline_at.isoformat()} if deadline_at is not None else {}
    check(actor, Act.JOBS_CHANGE, target, asked=asked, reason=reason)
    known = _known(job_id)
    with act(actor, Act.JOBS_CHANGE, target, asked=asked, reason=reason) as changed:
        job = _row(job_id, known)
        if not asked:
            raise InvalidRequest("Say what is to be changed: a priority, a deadline, or both.")
        _require_change(job, priority, deadline_at)
        before = {"priority": job.priority, "deadline_at": job.deadline_at.isoformat() if job.deadline_at else None}
        changed.before = {"account": job.account_id, **{name: before[name] for name in asked}}
        changed.after = {"account": job.account_id, **asked}
        wanted = JobChange(priority, deadline_at.timestamp() if deadline_at is not None else None)
        body = msgspec.json.encode(wanted).decode()
        entry = outbox.post(OutboxEntry(kind=OutboxEntry.CHANGE, key=job_id, body=body))
    return _reported(entry)


def delete(actor: Actor, job_id: str, *, reason: str = "") -> JobAct:
    """Delete an ended job for good: its result, its dead letter, its row. Raises :class:`Conflict` for an open one."""
    target = Target("job", job_id)
    check(actor, Act.JOBS_DELETE, target, reason=reason)
    known = _ended(job_id)
    with act(actor, Act.JOBS_DELETE, target, reason=reason) as changed:
        job = known or _row(job_id, None)
        if job.is_open:
            raise Conflict(f"The job has not ended, it is {job.state}: cancel it first.")
        changed.before = {"account": job.account_id, "state": job.state}
        changed.after = {"account": job.account_id, "deleted": True}
        entry = outbox.post(OutboxEntry(kind=OutboxEntry.DELETE, key=job_id, body=encode(record_of(job)).decode()))
    return _reported(entry)


def record_of(job: Job) -> Record:
    """An ended job as its row has it, for where NATS has nothing of it any more."""
    created_at = job.created_at.timestamp()
    return Record(
        id=job.pk,
        model=job.model,
        version=job.version,
        signature="",
        account_id=job.account_id,
        state=State(job.state),
        created_at=created_at,
        deadline_at=job.deadline_at.timestamp() if job.deadline_at is not None else created_at,
        finished_at=job.finished_at.timestamp() if job.finished_at is not None else None,
    )


def _require_change(job: Job, priority: Priority | None, deadline_at: datetime | None) -> None:
    if not job.is_open:
        raise Conflict(f"The job has already ended: {job.state}.")
    if job.state != "queued":
        raise Conflict(f"A worker has the job already, it is {job.state}: only a waiting job can be changed.")
    if priority is not None and PRIORITIES.index(priority) > PRIORITIES.index(job.priority):
        raise Conflict(
            f'The job\'s priority is "{job.priority}"; it can be raised, not lowered to "{priority}". Cancel it '
            "and have it submitted again."
        )
    if priority is not None and priority != job.priority and job.attempt:
        raise Conflict("A worker has had the job already, which waits for another attempt: it cannot be raised.")
    if deadline_at is None:
        return
    latest = job.created_at + timedelta(seconds=LONGEST_DEADLINE_S)
    if deadline_at <= max(timezone.now(), job.not_before or timezone.now()):
        raise InvalidRequest("The deadline is past, or before the job is to run: give a later one, or cancel the job.")
    if deadline_at > latest:
        raise InvalidRequest(
            f"A deadline is at most {LONGEST_DEADLINE_S / 86_400:.0f} days after the job was accepted:"
            f" until {latest:%Y-%m-%d %H:%M} UTC."
        )


def _known(job_id: str) -> Job | None:
    """The job as NATS has it, where there is no row yet."""
    return None if Job.objects.filter(pk=job_id).exists() else fresh.find(job_id)


def _ended(job_id: str) -> Job | None:
    """The job, for an act on ended ones: as NATS has it where its row, which is up to a second late, has no end."""
    row = Job.objects.filter(pk=job_id).first()
    return row if row is not None and not row.is_open else fresh.find(job_id) or row


def _row(job_id: str, known: Job | None) -> Job:
    job = Job.objects.filter(pk=job_id).first() or known
    if job is None:
        raise NotFound(f"There is no job {job_id!r}: neither the job list nor NATS knows it, or no longer.")
    return job


def _reported(entry: OutboxEntry) -> JobAct:
    settled = outbox.wait_settled(entry.pk, timeout_s=_REPORT_WITHIN_S)
    if settled.published_at is not None and settled.last_error:
        raise Conflict(settled.last_error)
    return JobAct(entry.key, is_done=settled.published_at is not None, reason=settled.last_error)
