"""Pages of jobs."""

from typing import Any
from urllib.parse import urlencode

from django.conf import settings
from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils import timezone
from django.views.decorators.http import require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.jobs import listing, query, retention, services, standing, timeline
from console.jobs.models import Job
from console.keys.models import Account, ApiKey
from console.outbox import services as outbox
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.jobs.cancel import CANCELLED, OPERATOR
from signalbox.program.errors import InvalidRequest


@sees(Act.JOBS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """The list: state tabs, filter, pages by keyset. The URL is the view."""
    text, state = request.GET.get("q", "").strip(), request.GET.get("state", "")
    context: dict[str, Any] = {"q": text, "state": state, "qualifiers": query.QUALIFIERS}
    context["old_rows"] = standing.why_rows_are_old()
    try:
        now, only = timezone.now(), actor_of(request).only_models
        counts = listing.counts(query.within(query.parse(text, now), only))
        tab = f"{text} state:{state}" if state in query.STATES else text
        page = listing.page(query.within(query.parse(tab, now), only), before=request.GET.get("before", ""))
    except InvalidRequest as error:
        context |= {"error": error.public_message, "tabs": _tabs(text, state, {})}
        return render(request, "jobs/index.html", context, status=400)
    context |= {
        "jobs": page.jobs,
        "tabs": _tabs(text, state, counts),
        "account_names": _names(Account, {job.account_id for job in page.jobs}),
        "key_names": _names(ApiKey, {job.key_id for job in page.jobs}),
        "searched_to": page.searched_to,
        "not_kept": ""
        if page.older
        else retention.in_words(days=settings.CONSOLE.jobs_kept_days, rows=settings.CONSOLE.jobs_kept_rows),
        "older": page.older and f"?{urlencode({'q': text, 'state': state, 'before': page.older})}",
        "newest": request.GET.get("before") and f"?{urlencode({'q': text, 'state': state})}",
    }
    return render(request, "jobs/index.html", context)


@sees(Act.JOBS_VIEW)
@require_safe
def detail(request: HttpRequest, job_id: str) -> HttpResponse:
    """One job: its story and where the time went."""
    job = services.find(job_id)
    account = Account.objects.filter(pk=job.account_id).first()
    context = {
        "job": job,
        "standing": standing.of(job),
        "old_rows": standing.why_rows_are_old() if job.is_open else "",
        "steps": timeline.steps(job, services.events(job), account.name if account is not None else ""),
        "lines": timeline.lines(standing.so_far(job)),
        "left_out": timeline.left_out(job),
        "account": account,
        "key": ApiKey.objects.filter(pk=job.key_id).first(),
        "cancel": outbox.latest_cancel(job_id),
        "asked": _asked_to_cancel(job),
        "history": AuditEntry.objects.filter(target_kind="job", target=job_id)[:20],
    }
    return render(request, "jobs/detail.html", context)


@require_POST
def cancel(request: HttpRequest, job_id: str) -> HttpResponse:
    """Ask for its end."""
    services.cancel(actor_of(request), job_id, reason=request.POST.get("reason", ""))
    messages.success(request, "Cancellation is asked for.")
    return redirect("job", job_id=job_id)


def _asked_to_cancel(job: Job) -> AuditEntry | None:
    """The operator's act that ended the job, where its record says that one did: its owner may have asked first."""
    if job.error_message != CANCELLED[OPERATOR]:
        return None
    acts = AuditEntry.objects.filter(
        target_kind="job", target=job.pk, act=Act.JOBS_CANCEL.value, result=AuditEntry.DONE
    )
    return acts.order_by("pk").first()


def _tabs(text: str, state: str, counts: dict[str, str]) -> list[dict[str, Any]]:
    tabs: list[dict[str, Any]] = [{"name": "all", "state": "", "count": counts.get("all", "")}]
    tabs += [{"name": name, "state": name, "count": counts.get(name, "")} for name in query.STATES]
    for tab in tabs:
        tab["href"] = "?" + urlencode({"q": text, "state": tab["state"]})
        tab["is_current"] = tab["state"] == state
    return tabs


def _names(kind: type[Account] | type[ApiKey], ids: set[str]) -> dict[str, str]:
    return dict(kind.objects.filter(pk__in=ids).values_list("pk", "name"))
