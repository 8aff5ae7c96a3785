"""What the acts of a job's page need beside the job. Registered as built-ins: no page has to load them."""

from django import template

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.jobs import services as jobs
from console.jobs.models import Job
from console.selections import services
from console.selections.models import Selection
from signalbox.wire.names import PRIORITIES, Priority

register = template.Library()


@register.filter
def last_retry(job: Job) -> str:
    """The job that it was run again as, the last time; empty where it was not. Its row may come after the act's."""
    acts = AuditEntry.objects.filter(
        target_kind="job", target=job.pk, act=Act.JOBS_REDRIVE.value, result=AuditEntry.DONE
    )
    rows, newest = jobs.redrives(job), acts.first()
    asked = str(newest.after.get("redriven_as", "")) if newest is not None else ""
    return asked if asked and asked not in rows else next(iter(rows), "")


@register.filter
def higher_priorities(job: Job) -> list[Priority]:
    """The classes that it can be raised to."""
    own = [one for one in PRIORITIES if one == job.priority]
    return list(PRIORITIES[: PRIORITIES.index(own[0])]) if own and not job.attempt else []


@register.filter
def selections(job: Job) -> list[Selection]:
    """The selections that it was or is in, newest first."""
    return services.of_job(job.pk)
