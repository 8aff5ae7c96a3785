"""Pages of accounts."""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import msgspec
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_POST, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.jobs.usage import of_account
from console.keys import accounts, endings, figures
from console.keys.figures import Sums
from console.pages import flash, usage
from console.pages.forms import AccountForm, refusals_in
from console.pages.sudo import asks_password
from console.queues import reading
from console.web.guards import sees
from console.web.middleware import actor_of

_SHOWN: Final = 1000
"""Accounts in the list, and keys of one account."""


class _Sort(NamedTuple):
    label: str
    key: Callable[[tuple[Any, Sums]], Any]
    """Of an account, as :func:`console.keys.accounts.listed` has it, and its use."""
    is_number: bool = True


_SORTS: Final = {
    "name": _Sort("Name", lambda row: row[0].name.lower(), is_number=False),
    "device": _Sort("Device time", lambda row: (-row[1].device_s, -row[1].calls, row[0].name.lower())),
    "jobs": _Sort("Jobs ended", lambda row: -row[1].jobs),
    "calls": _Sort("Calls", lambda row: -row[1].calls),
    "refused": _Sort("Refused", lambda row: -row[1].refused),
    "inputs": _Sort("Inputs", lambda row: -row[1].bytes_in),
    "results": _Sort("Results", lambda row: -row[1].bytes_out),
    "used": _Sort(
        "Last used", lambda row: -row[0].last_used_at.timestamp() if row[0].last_used_at else 0.0, is_number=False
    ),
}
"""Columns of the list, each the order that it is sorted in."""


@sees(Act.ACCOUNTS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All accounts with their use over a time, sorted by it: those that took a device the longest first."""
    span = usage.asked_span(request)
    sort = request.GET.get("sort", "")
    sort = sort if sort in _SORTS else "device"
    used = figures.by_account(span, time.time())
    rows = [(account, used.get(account.pk, Sums())) for account in accounts.listed()[:_SHOWN]]
    context = {
        "rows": sorted(rows, key=_SORTS[sort].key),
        "columns": [(name, one.label, one.is_number) for name, one in _SORTS.items()],
        "sort": sort,
        "span": span,
        "spans": figures.SPANS.values(),
    }
    return render(request, "keys/accounts.html", context)


@require_http_methods(["GET", "POST"])
@sees(Act.ACCOUNTS_MANAGE)
@asks_password
def create(request: HttpRequest) -> HttpResponse:
    """The form; then the account's page, where its first key is made."""
    form = AccountForm(request.POST or None)
    if form.is_valid():
        with refusals_in(form):
            account = accounts.create(actor_of(request), accounts.Terms(**form.cleaned_data))
            messages.success(request, f"{account.name} is created. It has no key yet.")
            return redirect("account", account_id=account.pk)
    status = 400 if form.is_bound else 200
    return render(request, "keys/account_create.html", {"form": form}, status=status)


@require_http_methods(["GET", "POST"])
@sees(Act.ACCOUNTS_MANAGE)
@asks_password
def edit(request: HttpRequest, account_id: str) -> HttpResponse:
    """Its name, and what it may use and hold."""
    account = accounts.find(account_id)
    terms = msgspec.to_builtins(accounts.terms_of(account))
    form = AccountForm(request.POST or None, initial=terms)
    if form.is_valid():
        changes = {field: form.cleaned_data[field] for field in form.changed_data}
        with refusals_in(form):
            if changes:
                accounts.change(actor_of(request), account_id, changes)
                flash.say(request, "Saved", accounts.why_unpublished(account))
            else:
                messages.success(request, "Nothing changed.")
            return redirect("account", account_id=account_id)
    context = {"form": form, "account": account}
    return render(request, "keys/account_edit.html", context, status=400 if form.is_bound else 200)


@sees(Act.ACCOUNTS_VIEW)
@require_safe
def detail(request: HttpRequest, account_id: str) -> HttpResponse:
    """One account: what it may use and hold, what it does, its keys and its history."""
    account = accounts.shown(account_id)
    keys = list(account.keys.all()[:_SHOWN])
    of_keys = Q(target_kind="key", target__in=[key.pk for key in keys])
    context = {
        "account": account,
        "rows": [(key, key.state()) for key in keys],
        "usage": of_account(account.pk),
        "queued_bytes": reading.bytes_of(account.pk),
        "use": usage.of_account(request, account.pk),
        "why_unpublished": accounts.unpublished(account),
        "history": AuditEntry.objects.filter(of_keys | Q(target_kind="account", target=account.pk))[:50],
    }
    return render(request, "keys/account_detail.html", context)


@require_POST
def disable(request: HttpRequest, account_id: str) -> HttpResponse:
    """Refuse its keys until it is enabled."""
    account = endings.disable(actor_of(request), account_id, reason=request.POST.get("reason", ""))
    flash.say(request, f"{account.name} is disabled", accounts.why_unpublished(account))
    return redirect("account", account_id=account_id)


@require_POST
@sees(Act.ACCOUNTS_DELETE)
@asks_password
def enable(request: HttpRequest, account_id: str) -> HttpResponse:
    """Take its keys again."""
    account = endings.enable(actor_of(request), account_id, reason=request.POST.get("reason", ""))
    flash.say(request, f"{account.name} is enabled", accounts.why_unpublished(account))
    return redirect("account", account_id=account_id)


@require_POST
@sees(Act.ACCOUNTS_DELETE)
@asks_password
def delete(request: HttpRequest, account_id: str) -> HttpResponse:
    """End its keys for good, and its open jobs if that is wished."""
    jobs, reason = request.POST.get("jobs", ""), request.POST.get("reason", "")
    account = endings.delete(actor_of(request), account_id, jobs=jobs, reason=reason)
    flash.say(request, f"{account.name} is deleted", accounts.why_unpublished(account), endings.JOBS[jobs])
    return redirect("account", account_id=account_id)
