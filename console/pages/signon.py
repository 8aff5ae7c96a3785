"""Signing on with the provider: the way there, and the answer that comes back.

What belongs to one attempt is a signed cookie of the browser that began it, so that nobody's request makes a row here
before the provider has vouched for them.
"""

import secrets
import time
from typing import Any, Final

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_not_required
from django.core import signing
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.crypto import constant_time_compare, salted_hmac
from django.utils.http import url_has_allowed_host_and_scheme
from django.views.decorators.http import require_GET

from console.accounts import sessions
from console.accounts.models import User
from console.operators import provider, signon, throttle
from console.operators.provider import Attempt, Provider
from console.pages.sudo import signs_on
from console.web.middleware import address_of
from signalbox.program import log
from signalbox.program.errors import Forbidden, NotFound

_COOKIE: Final = f"{'__Host-' if settings.CONSOLE.is_https else ''}signalbox_signon"
_SALT: Final = "console.pages.signon"
_UNDER_WAY_S: Final = 600
"""How long an operator may take at the provider."""
_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"


@require_GET
@login_not_required
def start(request: HttpRequest) -> HttpResponse:
    """Send the browser to the provider; with ``again``, who is logged in shows anew who they are."""
    is_again = "again" in request.GET and signs_on(request)
    kept = {
        "seed": secrets.token_urlsafe(24),
        "again": is_again,
        "began": int(time.time()),
        "next": _page(request, request.GET.get("next", "")),
    }
    answer = redirect(_provider().address(_attempt(request, kept)))
    answer.set_cookie(
        _COOKIE,
        signing.dumps(kept, salt=_SALT),
        max_age=_UNDER_WAY_S,
        httponly=True,
        samesite="Lax",
        secure=settings.CONSOLE.is_https,
    )
    return answer


@require_GET
@login_not_required
def finish(request: HttpRequest) -> HttpResponse:
    """Log in who the provider vouches for, or note that it was really them again."""
    try:
        kept: dict[str, Any] = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_UNDER_WAY_S)
    except signing.BadSignature:
        raise Forbidden(
            "This sign-on did not begin in this browser, or more than ten minutes ago. Begin again."
        ) from None
    attempt = _attempt(request, kept)
    if not constant_time_compare(request.GET.get("state", ""), attempt.state):
        raise Forbidden("This answer belongs to another sign-on, perhaps of another tab. Begin again.")
    address = address_of(request)
    throttle.check(attempt.state, address)  # of no account yet: one's refusals make only their address wait
    try:
        claims = _answer(request, attempt)
    except Forbidden:
        throttle.note_failure(attempt.state, address)
        raise
    (_confirm if attempt.again else _log_in)(request, claims)
    answer = redirect(kept["next"])
    answer.delete_cookie(_COOKIE, samesite="Lax")
    return answer


@require_GET
def again(request: HttpRequest) -> HttpResponse:
    """Where a tab ends that was opened to sign on again for a form of another."""
    return render(request, "registration/signed_on_again.html")


def _answer(request: HttpRequest, attempt: Attempt) -> dict[str, Any]:
    if error := request.GET.get("error", ""):
        log.warning("signon.declined", error=error[:80])
        raise Forbidden(f"Your provider did not let you sign on ({error[:80]}).")
    if request.GET.get("iss", settings.CONSOLE.oidc_issuer) != settings.CONSOLE.oidc_issuer:
        raise Forbidden("This answer is from another provider. Begin again.")
    return _provider().claims(attempt, request.GET.get("code", "")[:4000])


def _log_in(request: HttpRequest, claims: dict[str, Any]) -> None:
    user = signon.operator_of(claims)
    login(request, user, backend=_BACKEND)
    # The provider may have answered without asking: fresh is only when it says that it did.
    at = claims.get("auth_time")
    sessions.confirm(request.session, min(float(at), time.time()) if isinstance(at, int | float) else 0.0)
    log.info("signon.done", user=user.username)


def _confirm(request: HttpRequest, claims: dict[str, Any]) -> None:
    if not isinstance(request.user, User) or not signon.is_operator(claims, request.user):
        raise Forbidden("You signed on as somebody else than who is logged in here. Log out first.")
    sessions.confirm(request.session, time.time())


def _provider() -> Provider:
    found = provider.provider()
    if found is None:
        raise NotFound("Operators of this console have local logins alone.")
    return found


def _attempt(request: HttpRequest, kept: dict[str, Any]) -> Attempt:
    """What the answer has to fit, made from the cookie's seed by a key that no browser has."""

    def made(what: str) -> str:
        return str(salted_hmac(f"{_SALT}.{what}", kept["seed"], algorithm="sha256").hexdigest())

    return Attempt(
        redirect_uri=request.build_absolute_uri(reverse("signed-on")),
        state=made("state"),
        nonce=made("nonce"),
        verifier=made("verifier"),
        again=kept["again"],
        began=kept["began"],
    )


def _page(request: HttpRequest, page: str) -> str:
    is_ours = url_has_allowed_host_and_scheme(page, {request.get_host()}, require_https=request.is_secure())
    return page[:2000] if is_ours else "/"
