"""Jobs as they are found. Acts on them are in :mod:`console.jobs.acts`."""

from typing import Final

from console.jobs import fresh
from console.jobs.fold import event_of_row
from console.jobs.models import Job, JobEvent
from signalbox.program.errors import NotFound

_EVENTS: Final = 500
"""Most events of one job that are shown: a job has a few for each of its attempts."""


def find(job_id: str) -> Job:
    """The job as its row has it, or as NATS has it where there is no row yet. Raises :class:`NotFound`."""
    job = Job.objects.filter(pk=job_id).first() or fresh.find(job_id)
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
