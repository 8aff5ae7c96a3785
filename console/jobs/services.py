"""Acts on jobs."""

from console.accounts.rights import Act, Actor
from console.audit.acts import Target, act
from console.jobs.models import Job
from console.outbox.services import post_cancel
from signalbox.errors import Conflict, NotFound


def find(job_id: str) -> Job:
    """The job as last heard of. Raises :class:`NotFound`."""
    job = Job.objects.filter(pk=job_id).first()
    if job is None:
        raise NotFound(
            f"There is no job {job_id!r} here; it may be newer than the last event read."
        )
    return job


def cancel(actor: Actor, job_id: str, *, reason: str = "") -> Job:
    """Ask for a job's end: a queued one never runs, the holder of a running one is asked to stop.

    Raises :class:`Conflict` if it has ended already.
    """
    with act(actor, Act.JOBS_CANCEL, Target("job", job_id), reason=reason) as change:
        job = find(job_id)
        if not job.is_open:
            raise Conflict(f"The job has already ended: {job.state}.")
        change.before = {"state": job.state}
        change.after = {"cancel": "asked"}
        post_cancel(job_id)
    return job
