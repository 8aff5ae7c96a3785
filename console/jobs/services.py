"""Jobs as they are found. Acts on them are in :mod:`console.jobs.acts`."""

from typing import Final

from console.jobs import fresh
from console.jobs.fold import event_of_row
from console.jobs.models import IS_REDRIVE, Job, JobEvent
from signalbox.program.errors import NotFound

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
