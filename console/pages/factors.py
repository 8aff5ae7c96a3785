"""The second factor: its code at a login, adding it, its recovery codes once, and removing it."""

import time
from typing import Any, Final

from django import forms
from django.contrib import messages
from django.contrib.auth import login, update_session_auth_hash
from django.contrib.auth.decorators import login_not_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.crypto import constant_time_compare
from django.utils.safestring import mark_safe
from django.views.decorators.http import require_GET, require_http_methods, require_POST

from console.accounts.models import User
from console.accounts.rights import Actor
from console.operators import factors
from console.pages import once
from console.pages.forms import refusals_in
from console.pages.sudo import asks_password, signs_on
from console.web.middleware import actor_of, address_of, request_id_of
from signalbox.program.errors import InvalidRequest

_PENDING: Final = "login_without_code"
_PENDING_S: Final = 300
"""How long a right password waits for its code."""
_CODES: Final = "recovery codes"
_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"


class CodeForm(forms.Form):
    """A code of the app, or a recovery code."""

    code = forms.CharField(
        max_length=40,
        help_text="Six digits of your authenticator app, or one of your recovery codes.",
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "autofocus": True, "spellcheck": "false"}),
    )


class NewFactorForm(forms.Form):
    """The first code of a secret that was just scanned."""

    sealed = forms.CharField(max_length=1000, widget=forms.HiddenInput)
    code = forms.CharField(
        label="Code that the app shows",
        max_length=20,
        widget=forms.TextInput(attrs={"autocomplete": "one-time-code", "inputmode": "numeric", "spellcheck": "false"}),
    )


def wait_for_code(request: HttpRequest, user: User, page: str) -> HttpResponse:
    """A password was right: ask for the code, or have the app added, before anything is logged in."""
    request.session.cycle_key()
    request.session[_PENDING] = {
        "user": user.pk,
        "hash": user.get_session_auth_hash(),
        "until": time.time() + _PENDING_S,
        "next": page,
    }
    return redirect("enrol" if factors.is_wanted(user) else "login-code")


@require_http_methods(["GET", "POST"])
@login_not_required
def code(request: HttpRequest) -> HttpResponse:
    """The second step of a login."""
    user = _pending(request)
    if user is None or factors.is_wanted(user):
        return redirect("login")
    form = CodeForm(request.POST or None)
    if form.is_valid():
        with refusals_in(form):
            factors.check(_actor(request, user), form.cleaned_data["code"])
            return _log_in(request, user)
    return render(request, "registration/code.html", {"form": form}, status=400 if form.is_bound else 200)


@require_http_methods(["GET", "POST"])
@login_not_required
def enrol(request: HttpRequest) -> HttpResponse:
    """The second step of a login where everybody needs a second factor and this operator has none yet."""
    user = _pending(request)
    if user is None or not factors.is_wanted(user):
        return redirect("login")

    def done(codes: list[str]) -> HttpResponse:
        user.refresh_from_db()
        _log_in(request, user)
        return _codes_page(request, codes)

    return _adding(request, _actor(request, user), done, "registration/enrol.html")


@require_http_methods(["GET", "POST"])
@asks_password
def add(request: HttpRequest) -> HttpResponse:
    """Add a second factor to one's own login."""
    me = User.objects.get(username=request.user.get_username())
    if signs_on(request):
        return redirect("settings")

    def done(codes: list[str]) -> HttpResponse:
        me.refresh_from_db()
        update_session_auth_hash(request, me)
        return _codes_page(request, codes)

    return _adding(request, actor_of(request), done, "accounts/second_factor.html")


@require_GET
def recovery_codes(request: HttpRequest) -> HttpResponse:
    """The recovery codes, once."""
    text = once.take(request, _CODES)
    if not text:
        return redirect("settings")
    response = render(request, "accounts/recovery_codes.html", {"codes": text.split(), "text": text})
    once.shown(response)
    return response


@require_POST
@asks_password
def remove(request: HttpRequest) -> HttpResponse:
    """Remove one's own."""
    factors.remove(actor_of(request))
    messages.success(request, "Your logins ask for no code any more.")
    return redirect("settings")


@require_POST
@asks_password
def remove_of(request: HttpRequest, username: str) -> HttpResponse:
    """Remove another's, who lost the app."""
    factors.remove_of(actor_of(request), username, reason=request.POST.get("reason", ""))
    messages.success(request, f"{username}'s second factor is removed.")
    return redirect("users")


def _adding(request: HttpRequest, actor: Actor, done: Any, page: str) -> HttpResponse:
    user = actor.user
    assert user is not None
    form = NewFactorForm(request.POST or None)
    if form.is_valid():
        with refusals_in(form):
            return done(factors.add(actor, form.cleaned_data["sealed"], form.cleaned_data["code"]))  # type: ignore[no-any-return]
    sealed = str(form.data.get("sealed", "")) or factors.offer(user)
    try:
        secret = factors.offered(user, sealed)
    except InvalidRequest:
        sealed = factors.offer(user)
        secret = factors.offered(user, sealed)
    context = {
        "form": form,
        "sealed": sealed,
        "secret": " ".join(secret[at : at + 4] for at in range(0, len(secret), 4)),
        "qr": mark_safe(factors.picture(user, secret)),  # noqa: S308  drawn here, and holds only what was escaped in a URI
    }
    return render(request, page, context, status=400 if form.is_bound else 200)


def _pending(request: HttpRequest) -> User | None:
    """Whose password was right in this browser, minutes ago at most, and is that still."""
    kept = request.session.get(_PENDING)
    if not kept or time.time() > kept["until"]:
        return None
    user = User.objects.filter(pk=kept["user"], is_active=True).first()
    if user is None or not constant_time_compare(kept["hash"], user.get_session_auth_hash()):
        return None
    return user


def _log_in(request: HttpRequest, user: User) -> HttpResponse:
    page = request.session.pop(_PENDING)["next"]
    login(request, user, backend=_BACKEND)
    return redirect(page)


def _codes_page(request: HttpRequest, codes: list[str]) -> HttpResponse:
    response = redirect("recovery-codes")
    once.keep(request, response, _CODES, "\n".join(codes))
    return response


def _actor(request: HttpRequest, user: User) -> Actor:
    return Actor(user=user, address=address_of(request), request_id=request_id_of(request))
