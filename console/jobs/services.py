"""Acts on jobs."""

from typing import Final

from console.accounts.acts import Act
from console.accounts.rights import Actor
from console.audit.acts import Target, act, check
from console.jobs import fresh
from console.jobs.fold import event_of_row
from console.jobs.models import IS_REDRIVE, Job, JobEvent
from console.outbox.models import OutboxEntry
from console.outbox.services import post
from signalbox.program.errors import Conflict, NotFound

_REDRIVES: Final = 5
_EVENTS: Final = 500
"""Most events of one job that are shown: a job has a few for each of its attempts."""


def find(job_id: str) -> Job:
    """The job as its row has it, or as NATS has it where there is no row yet. Raises :class:`NotFound`."""
    return _found(Job.objects.filter(pk=job_id).first() or fresh.find(job_id), job_id)


def newest(job_id: str, revision: int) -> Job:
    """The job as its row has it, or as NATS has it where the row is older than a revision. Raises :class:`NotFound`."""
    row = Job.objects.filter(pk=job_id).first()
    if row is None or row.revision < revision:
        row = fresh.find(job_id) or row
    return _found(row, job_id)


def redrives(job: Job) -> list[str]:
    """Ids of the jobs that are redrives of it, the newest first."""
    found = Job.objects.filter(IS_REDRIVE, redrive_of=job.pk).order_by("-created_at")
    return list(found.values_list("pk", flat=True)[:_REDRIVES])


def _found(job: Job | None, job_id: str) -> Job:
    if job is None:
        raise NotFound(f"There is no job {job_id!r}: neither the job list nor NATS knows it, or no longer.")
    return job


def events(job: Job) -> list[JobEvent]:
    """The job's story, oldest first: what was kept of it, and the record that its row shows."""
    kept = list(JobEvent.objects.filter(job_id=job.pk).order_by("seq")[:_EVENTS])
    is_claimed = job.state != "queued" or job.attempt
    if is_claimed and all(event.seq != job.revision for event in kept):
        kept.append(JobEvent(**event_of_row(vars(job))))
    return kept


def cancel(actor: Actor, job_id: str, *, reason: str = "") -> Job:
    """Ask for a job's end: a queued one never runs, the holder of a running one is asked to stop.

    Raises :class:`Conflict` if it has ended already.
    """
    target, asked = Target("job", job_id), {"cancel": "asked"}
    check(actor, Act.JOBS_CANCEL, target, asked=asked, reason=reason)
    # NATS may take two seconds to answer, and other writers must not wait for it.
    known = None if Job.objects.filter(pk=job_id).exists() else fresh.find(job_id)
    with act(actor, Act.JOBS_CANCEL, target, asked=asked, reason=reason) as change:
        job = _found(Job.objects.filter(pk=job_id).first() or known, job_id)
        if not job.is_open:
            raise Conflict(f"The job has already ended: {job.state}.")
        change.before = {"account": job.account_id, "state": job.state}
        change.after = {"account": job.account_id, "cancel": "asked"}
        post(OutboxEntry(kind=OutboxEntry.CANCEL, key=job_id))
    return job
