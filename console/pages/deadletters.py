"""Pages of dead letters: those that NATS holds now, by what they ended with, and no other failed jobs."""

from typing import Any, Final
from urllib.parse import urlencode

from django.contrib import messages
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect as go_to
from django.shortcuts import render
from django.urls import reverse
from django.views.decorators.http import require_POST, require_safe

from console.accounts.acts import Act
from console.bounds import number
from console.jobs import deadgroups, deadletters
from console.jobs.deadgroups import Read, Which
from console.keys.models import Account
from console.selections import letters
from console.web.guards import sees
from console.web.middleware import actor_of
from signalbox.program.errors import Misconfigured, Unavailable
from signalbox.program.words import counted

_SHOWN: Final = 200
"""Letters of a group that its page lists."""


@sees(Act.JOBS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """Them by error, the most frequent first; without NATS it says that they are not known."""
    which = Which(model=request.GET.get("model", "")[:100])
    found, why_unknown = Read([], is_cut=False, kept_s=0.0), ""
    try:
        found = deadgroups.read(which, actor_of(request).only_models)
    except (Unavailable, Misconfigured) as error:
        why_unknown = error.public_message
    groups = [(group, query_of(group.which)) for group in deadgroups.groups(found)]
    context = {
        "found": found,
        "groups": groups,
        "which": which._replace(until=found.until),
        "may_many": not actor_of(request).only_models,  # selections are closed to who is limited to some models
        "waiting": sum(group.waiting for group, _ in groups),
        "kept": _kept(found.kept_s),
        "why_unknown": why_unknown,
    }
    return render(request, "deadletters/index.html", context)


@sees(Act.JOBS_VIEW)
@require_safe
def group(request: HttpRequest) -> HttpResponse:
    """The letters of one group, the oldest first."""
    which = _which(request.GET)
    found = deadgroups.read(which._replace(until=0), actor_of(request).only_models)
    only = next(iter(deadgroups.groups(found)), None)
    shown = found.letters[:_SHOWN]
    others = [one for one in deadletters.versions(which.model) if one != which.version] if only is not None else []
    names = Account.objects.filter(pk__in={one.account_id for one in shown})
    context = {
        "group": only,
        "which": only.which if only is not None else which,
        "letters": shown,
        "may_many": not actor_of(request).only_models,
        "left_out": len(found.letters) - len(shown),
        "is_cut": found.is_cut,
        "account_names": dict(names.values_list("pk", "name")),
        "versions": others,
    }
    return render(request, "deadletters/group.html", context)


@sees(Act.JOBS_VIEW)
@require_safe
def detail(request: HttpRequest, job_id: str) -> HttpResponse:
    """One letter: why it was given up, its input, how long it is kept, and what can be done."""
    found = deadletters.detail(job_id)
    context = {
        "letter": found.facts,
        "at": found.at,
        "kept_until": found.kept_until,
        "versions": [one for one in found.versions if one != found.facts["version"]],
        "account": Account.objects.filter(pk=found.facts["account_id"]).first(),
    }
    return render(request, "deadletters/detail.html", context)


@require_POST
def redrive(request: HttpRequest, job_id: str) -> HttpResponse:
    """Run one again."""
    after, version = request.POST.get("after", "")[:36], _number(request.POST, "with_version")
    reason = request.POST.get("reason", "")
    done = deadletters.redrive(actor_of(request), job_id, after=after, with_version=version, reason=reason)
    if not done.is_done:
        messages.warning(request, f"It is queued again as soon as NATS takes it. {done.reason}".strip())
        return go_to("dead-letter", job_id=job_id)
    messages.success(request, f"Queued again, as job {done.job[:13]}.")
    return go_to("job", job_id=done.job)


@require_POST
def discard(request: HttpRequest, job_id: str) -> HttpResponse:
    """Remove one for good."""
    done = deadletters.discard(actor_of(request), job_id, reason=request.POST.get("reason", ""))
    if done.is_done:
        messages.success(request, "The dead letter and its input are discarded.")
    else:
        messages.warning(request, f"It is discarded as soon as NATS takes it. {done.reason}".strip())
    return go_to("dead-letters")


@require_POST
def redrive_many(request: HttpRequest) -> HttpResponse:
    """Run a group again, or all."""
    version = _number(request.POST, "with_version")
    reason = request.POST.get("reason", "")
    chosen = letters.redrive(actor_of(request), _which(request.POST), with_version=version, reason=reason)
    return go_to("selection", selection_id=chosen.pk)


@require_POST
def discard_many(request: HttpRequest) -> HttpResponse:
    """Remove a group for good, or all."""
    chosen = letters.discard(actor_of(request), _which(request.POST), reason=request.POST.get("reason", ""))
    return go_to("selection", selection_id=chosen.pk)


def query_of(which: Which) -> str:
    """The address of a group's page."""
    asked = which._asdict()
    del asked["until"]
    return f"{reverse('dead-letter-group')}?{urlencode(asked)}"


def _kept(seconds: float) -> str:
    days = seconds / 86_400
    return counted(round(days), "day") if days >= 1 else f"{seconds / 3600:.3g} h" if seconds else ""


def _which(sent: Any) -> Which:
    texts = {name: sent.get(name, "")[:100] for name in ("model", "error", "group")}
    return Which(**texts, version=_number(sent, "version"), until=_number(sent, "until"))


def _number(sent: Any, name: str) -> int:
    return number(sent.get(name) or "0", name)
