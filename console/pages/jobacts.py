"""Acts on one job, from its page."""

from datetime import UTC, datetime, timedelta
from typing import Final

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_POST

from console import bounds
from console.jobs import acts
from console.jobs.acts import JobAct
from console.jobs.models import Job
from console.pages import flash
from console.web.middleware import actor_of
from signalbox.jobs.change import LONGEST_DEADLINE_S
from signalbox.program.errors import InvalidRequest
from signalbox.wire.names import PRIORITIES, Priority

_MOST_MINUTES: Final = round(LONGEST_DEADLINE_S / 60)


@require_POST
def cancel(request: HttpRequest, job_id: str) -> HttpResponse:
    """Ask for its end."""
    acts.cancel(actor_of(request), job_id, reason=request.POST.get("reason", ""))
    messages.success(request, "Cancellation is asked for.")
    return redirect("job", job_id=job_id)


@require_POST
def retry(request: HttpRequest, job_id: str) -> HttpResponse:
    """Run it again as a new job, whose page is next."""
    done = acts.retry(
        actor_of(request), job_id, after=request.POST.get("after", ""), reason=request.POST.get("reason", "")
    )
    if not done.is_done:
        messages.warning(request, f"It is to run again as job {done.job}, and waits for NATS. {done.reason}".rstrip())
        return redirect("job", job_id=job_id)
    messages.success(request, f"This job runs {job_id} again, with the same input.")
    return redirect("job", job_id=done.job)


@require_POST
def change(request: HttpRequest, job_id: str) -> HttpResponse:
    """Raise its priority, move its deadline, or both; an empty field leaves it as it is. A deadline can be undone."""
    before = Job.objects.filter(pk=job_id).values_list("deadline_at", flat=True).first()
    deadline_at = _deadline(request)
    done = acts.change(
        actor_of(request),
        job_id,
        priority=_priority(request.POST.get("priority", "")),
        deadline_at=deadline_at,
        reason=request.POST.get("reason", ""),
    )
    if done.is_done and deadline_at is not None and before is not None:
        fields = {"deadline_at": before.isoformat(), "reason": "Undo."}
        flash.done(request, "The job is changed.", undo=reverse("change-job", args=[job_id]), fields=fields)
    else:
        _say(request, done, "The job is changed.", "The change is asked for")
    return redirect("job", job_id=job_id)


@require_POST
def delete(request: HttpRequest, job_id: str) -> HttpResponse:
    """Delete it; its page is gone then."""
    done = acts.delete(actor_of(request), job_id, reason=request.POST.get("reason", ""))
    _say(
        request,
        done,
        f"Job {job_id} is deleted; its row goes in a moment.",
        f"The deletion of job {job_id} is asked for",
    )
    return redirect("jobs")


def _say(request: HttpRequest, done: JobAct, words: str, asked: str) -> None:
    if done.is_done:
        messages.success(request, words)
    else:
        messages.warning(request, f"{asked}, and waits for NATS. {done.reason}".rstrip())


def _priority(text: str) -> Priority | None:
    for one in PRIORITIES:
        if text == one:
            return one
    if text:
        raise InvalidRequest(f"A priority is one of {', '.join(PRIORITIES)}.")
    return None


def _deadline(request: HttpRequest) -> datetime | None:
    """The deadline that is asked for: so many minutes from now, or, where a deadline is put back, as an instant."""
    minutes, instant = request.POST.get("minutes", ""), request.POST.get("deadline_at", "")
    if instant:
        try:
            return datetime.fromisoformat(instant).astimezone(UTC)
        except (ValueError, OverflowError) as error:
            raise InvalidRequest("deadline_at: is an instant such as 2026-11-29T12:00:00+00:00.") from error
    if not minutes:
        return None
    number = bounds.number(minutes, "minutes")
    if not 1 <= number <= _MOST_MINUTES:
        raise InvalidRequest(f"A deadline is from 1 to {_MOST_MINUTES} minutes from now.")
    return timezone.now() + timedelta(minutes=number)
