"""Pages of jobs."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final
from urllib.parse import urlencode

from django.conf import settings
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils import timezone
from django.views.decorators.http import require_safe

from console import bounds
from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.jobs import deadletters, groups, hints, listing, query, retention, services, standing, timeline
from console.jobs.models import Job
from console.keys.models import Account, ApiKey
from console.outbox import services as outbox
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.jobs.cancel import CANCELLED, OPERATOR
from signalbox.program.errors import InvalidRequest

_HAVE_ERRORS: Final = ("failed", "cancelled", "expired")
"""States of jobs that are grouped by error, where the list shows one of them; else those that failed."""


@sees(Act.JOBS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """The list: state tabs, filter, order, pages by keyset; or its failures by error. The URL is the view."""
    view = _View.of(request)
    context: dict[str, Any] = {"q": view.q, "state": view.state, "sort": view.sort, "group": view.group}
    context |= {"qualifiers": query.QUALIFIERS, "old_rows": standing.why_rows_are_old(), "view": view}
    template = "jobs/groups.html" if view.group else "jobs/index.html"
    try:
        now, only = timezone.now(), actor_of(request).only_models
        context["tabs"] = _tabs(view, listing.counts(query.within(query.parse(view.q, now), only)))
        if view.group:
            context["found"] = found = groups.by_error(query.within(query.parse(view.words, now), only))
            context["rows"] = [(group, view.of_group(group)) for group in found.groups]
        else:
            context |= _page(view, request.GET.get("before", ""), now, only)
    except InvalidRequest as error:
        context |= {"error": error.public_message, "tabs": _tabs(view, {})}
        return render(request, template, context, status=400)
    return render(request, template, context)


@dataclass(frozen=True)
class _View:
    """What the list shows, as its URL says it. sort: ``oldest``, or empty. group: ``error``, or empty."""

    q: str
    state: str
    sort: str
    group: str

    @classmethod
    def of(cls, request: HttpRequest) -> "_View":
        """What a request asks for; what no list has counts as nothing."""
        asked = {name: request.GET.get(name, "").strip() for name in ("q", "state", "sort", "group")}
        group = "error" if asked["group"] == "error" else ""
        state = asked["state"] if asked["state"] in (_HAVE_ERRORS if group else query.STATES) else ""
        return cls(asked["q"], state, "oldest" if asked["sort"] == "oldest" else "", group)

    @property
    def words(self) -> str:
        """The filter with the state that the tab asks for."""
        if self.group and not self.state and "state:" not in self.q:
            return f"{self.q} state:failed"
        return f"{self.q} state:{self.state}" if self.state else self.q

    def href(self, **changes: str) -> str:
        """The URL of another view, from this one."""
        asked = {**vars(self), **changes}
        return "?" + urlencode({name: value for name, value in asked.items() if value})

    @property
    def by_created(self) -> str:
        """In the other order."""
        return self.href(sort="" if self.sort else "oldest")

    @property
    def by_wait(self) -> str:
        """What has not begun, the longest wait first."""
        return self.href(state="queued", sort="oldest")

    @property
    def is_by_wait(self) -> bool:
        """Whether it is that."""
        return self.sort == "oldest" and self.state == "queued"

    @property
    def by_error(self) -> str:
        """Its failures by error."""
        return self.href(group="error", sort="")

    def of_group(self, group: groups.Group) -> str:
        """The jobs of one of them."""
        return self.href(q=f"{self.q} {group.words}".strip(), group="", state=self.state or "failed")

    @property
    def as_list(self) -> str:
        """Job by job."""
        return self.href(group="", state=self.state or "failed")


def _page(view: _View, before: str, now: datetime, only: Sequence[str]) -> dict[str, Any]:
    is_oldest_first = view.sort == "oldest"
    page = listing.page(
        query.within(query.parse(view.words, now), only), before=before, is_oldest_first=is_oldest_first
    )
    is_empty = not page.jobs and not page.searched_to
    return {
        "jobs": page.jobs,
        "account_names": _names(Account, {job.account_id for job in page.jobs}),
        "key_names": _names(ApiKey, {job.key_id for job in page.jobs}),
        "searched_to": page.searched_to,
        "hints": hints.of(view.q, view.state, now, only) if is_empty else [],
        "not_kept": ""
        if page.older
        else retention.in_words(days=settings.CONSOLE.jobs_kept_days, rows=settings.CONSOLE.jobs_kept_rows),
        "older": page.older and view.href(before=page.older),
        "newest": before and view.href(),
    }


@sees(Act.JOBS_VIEW)
@require_safe
def longest_waiting(request: HttpRequest, model: str) -> HttpResponse:
    """To the job of a model that has waited the longest: its page says why."""
    asked = query.parse(f"{query.quoted('model', model)} state:queued", timezone.now())
    asked = query.within(asked, actor_of(request).only_models)
    found = listing.page(asked, size=1, columns=("created_at",), is_oldest_first=True).jobs
    if found:
        return redirect("job", job_id=found[0].pk)
    return redirect(f"{reverse('jobs')}?{urlencode({'q': query.quoted('model', model), 'state': 'queued'})}")


@sees(Act.JOBS_VIEW)
@require_safe
def detail(request: HttpRequest, job_id: str) -> HttpResponse:
    """One job: how it stands, its story and where the time went. An open one is followed by a script."""
    job = services.find(job_id)
    context = _shown(job) | {
        "old_rows": standing.why_rows_are_old() if job.is_open else "",
        "key": ApiKey.objects.filter(pk=job.key_id).first(),
        "redrives": services.redrives(job),
        "similar": _similar(job),
        "history": AuditEntry.objects.filter(target_kind="job", target=job_id)[:20],
    }
    return render(request, "jobs/detail.html", context)


@sees(Act.JOBS_VIEW)
@require_safe
def live(request: HttpRequest, job_id: str) -> HttpResponse:
    """The parts of a job's page that change, as of a revision of its record that the page has been told of."""
    text = request.GET.get("revision", "")
    job = services.newest(job_id, bounds.number(text, "revision") if text else 0)
    return render(request, "jobs/live.html", _shown(job))


def _shown(job: Job) -> dict[str, Any]:
    """What changes while the page is open, and what that needs."""
    account = Account.objects.filter(pk=job.account_id).first()
    return {
        "job": job,
        "standing": standing.with_place(job),
        "spent": standing.spent(job),
        "steps": timeline.steps(job, services.events(job), account.name if account is not None else ""),
        "lines": timeline.lines(standing.so_far(job)),
        "left_out": timeline.left_out(job),
        "account": account,
        "is_dead_letter": deadletters.is_one(job),
        "cancel": outbox.latest_cancel(job.pk),
        "asked": _asked_to_cancel(job),
    }


def _similar(job: Job) -> str:
    """The list of the model's jobs with the same error; empty where it has none."""
    if not job.error_group:
        return ""
    words = f"{query.quoted('model', job.model)} {query.quoted('group', job.error_group)}"
    return f"{reverse('jobs')}?{urlencode({'q': words})}"


def _asked_to_cancel(job: Job) -> AuditEntry | None:
    """The operator's act that ended the job, where its record says that one did: its owner may have asked first."""
    if job.error_message != CANCELLED[OPERATOR]:
        return None
    acts = AuditEntry.objects.filter(
        target_kind="job", target=job.pk, act=Act.JOBS_CANCEL.value, result=AuditEntry.DONE
    )
    return acts.order_by("pk").first()


def _tabs(view: _View, counts: dict[str, str]) -> list[dict[str, Any]]:
    states = _HAVE_ERRORS if view.group else ("", *query.STATES)
    shown = view.state or (_HAVE_ERRORS[0] if view.group else "")
    return [
        {
            "name": state or "all",
            "count": counts.get(state or "all", ""),
            "href": view.href(state=state),
            "is_current": state == shown,
        }
        for state in states
    ]


def _names(kind: type[Account] | type[ApiKey], ids: set[str]) -> dict[str, str]:
    return dict(kind.objects.filter(pk__in=ids).values_list("pk", "name"))
