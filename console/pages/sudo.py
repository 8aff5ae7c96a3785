"""Asks for the password again before acts that a borrowed session must not do, without losing the form's fields.

A page with such a form asks before it is shown. A POST is asked on the spot if the password has grown old
meanwhile: the page that asks carries its fields and sends them on. It cannot carry a file or another password, so a
form with one of these, and no other, has a slip: it may be sent without the question for as long as the slip is
young, more than once.
"""

import time
from functools import wraps
from typing import Final, cast
from urllib.parse import urlencode

from django import forms
from django.conf import settings
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from console.accounts import sessions
from console.accounts.models import User
from console.operators import services, signon
from console.web.again import SLIP, carried
from console.web.guards import Rest, View
from console.web.middleware import actor_of
from signalbox.program.errors import SignalboxError

_PREFIX: Final = "confirm"


class ConfirmForm(forms.Form):
    """The password once more."""

    password = forms.CharField(widget=forms.PasswordInput(attrs={"autocomplete": "current-password"}))


def asks_password(view: View[Rest]) -> View[Rest]:
    """An act, and the page of its form, for those who entered their password lately. Others do so first."""

    @wraps(view)
    def guarded(request: HttpRequest, *args: Rest.args, **kwargs: Rest.kwargs) -> HttpResponse:
        if sessions.is_confirmed(request.session, time.time()) or _has_slip(request):
            return view(request, *args, **kwargs)
        if request.method != "POST":
            page = urlencode({"next": request.get_full_path()})
            return redirect(f"{reverse('confirm-password')}?{page}")
        context = {"carried": list(carried(request)), "has_file": bool(request.FILES)}
        if not signs_on(request):
            is_answered = f"{_PREFIX}-password" in request.POST
            form = ConfirmForm(request.POST if is_answered else None, prefix=_PREFIX)
            if form.is_valid() and confirmed(request, form):
                return view(request, *args, **kwargs)
            context["form"] = form
        return render(request, "registration/confirm_password.html", context, status=403)

    return cast("View[Rest]", guarded)


def signs_on(request: HttpRequest) -> bool:
    """Whether who is logged in has no password here, and signs on again instead."""
    return isinstance(request.user, User) and signon.signs_on(request.user)


def confirmed(request: HttpRequest, form: ConfirmForm) -> bool:
    """Whether the password in a valid form is right: then it speaks for its owner from now. Else the form says why."""
    try:
        services.confirm_password(actor_of(request), form.cleaned_data["password"])
    except SignalboxError as error:
        form.add_error("password", error.public_message)
        return False
    sessions.confirm(request.session, time.time())
    return True


def slip(request: HttpRequest, path: str) -> str:
    """For a form that is sent to ``path``: proof that it was shown while the password was fresh; else empty."""
    if request.path == path and _has_slip(request):
        return str(request.POST[SLIP])
    if not sessions.is_confirmed(request.session, time.time()):
        return ""
    return signing.dumps(path, salt=_salt(request))


def _has_slip(request: HttpRequest) -> bool:
    """Whether the form sent now was shown to this very login, for this path, and no longer ago than a login idles."""
    if request.method != "POST":
        return False
    try:
        path = signing.loads(request.POST.get(SLIP, ""), salt=_salt(request), max_age=settings.CONSOLE.idle_s)
    except signing.BadSignature:
        return False
    return bool(path == request.path)


def _salt(request: HttpRequest) -> str:
    # In the salt the session's key is proven and not shown.
    return f"console.pages.sudo:{request.session.session_key}"
