"""Pages of accounts."""

from typing import Final

import msgspec
from django.contrib import messages
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.views.decorators.http import require_http_methods, require_safe

from console.accounts.acts import Act
from console.audit.models import AuditEntry
from console.jobs import usage
from console.keys import accounts
from console.pages import flash
from console.pages.forms import AccountForm, refusals_in
from console.pages.sudo import asks_password
from console.web.guards import sees
from console.web.middleware import actor_of

_SHOWN: Final = 1000
"""Accounts in the list, and keys of one account."""


@sees(Act.ACCOUNTS_VIEW)
@require_safe
def index(request: HttpRequest) -> HttpResponse:
    """All accounts, newest first."""
    return render(request, "keys/accounts.html", {"accounts": accounts.listed()[:_SHOWN]})


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
        "usage": usage.of_account(account.pk),
        "why_unpublished": accounts.unpublished(account),
        "history": AuditEntry.objects.filter(of_keys | Q(target_kind="account", target=account.pk))[:50],
    }
    return render(request, "keys/account_detail.html", context)
