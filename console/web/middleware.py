"""Identifies each request and gives refusals their form."""

import re
import secrets
from collections.abc import Callable
from typing import Final
from urllib.parse import urlsplit

from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponsePermanentRedirect
from django.middleware.common import CommonMiddleware
from django.shortcuts import render
from django.utils.http import url_has_allowed_host_and_scheme

from console.accounts.models import User
from console.accounts.rights import Actor
from console.web import again, problems
from signalbox.program import log, metrics
from signalbox.program.errors import InvalidRequest, SignalboxError, meaning

Respond = Callable[[HttpRequest], HttpResponse]
REFUSAL: Final = "signalbox.refusal"
"""In the scope of a request: the error of a body that was refused before Django saw it."""
HEALTH: Final = "healthz"
"""The path of the health page, which containers and balancers ask for by whatever address they reach it at."""
_NUL: Final = "\0"
_REQUEST_ID: Final = re.compile(r"[A-Za-z0-9_-]{8,40}\Z")
_NO_ROUTE: Final = "none"
_REFUSED: Final = metrics.counter(
    "console_refused", "Requests that the console answered with an error, by route and status.", "route", "status"
)


class Refusals:
    """Counts what is answered with an error, also where no view was asked: ours, Django's and a form's."""

    def __init__(self, get_response: Respond) -> None:
        self._respond = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer, counted."""
        response = self._respond(request)
        if response.status_code >= 400:
            found = request.resolver_match  # a route's name, never a path: there are only so many
            _REFUSED.labels(found.view_name if found else _NO_ROUTE, response.status_code).inc()
        return response


class KnownHosts(CommonMiddleware):
    """Django's own, which takes the hosts of ``ALLOWED_HOSTS`` alone; the health page takes any and says no name."""

    def process_request(self, request: HttpRequest) -> HttpResponsePermanentRedirect | None:
        """The redirect of Django's, or None. Raises :class:`DisallowedHost`."""
        return None if request.path_info == f"/{HEALTH}" else super().process_request(request)


class NotStored:
    """Has no browser and no proxy keep an answer, but for static files, which say for how long they are good.

    Stands first: redirects and refusals of any middleware are answers too.
    """

    def __init__(self, get_response: Respond) -> None:
        self._respond = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The answer, with ``Cache-Control: no-store`` unless it has its own."""
        response = self._respond(request)
        response.headers.setdefault("Cache-Control", "no-store")
        return response


class RequestIdentity:
    """Gives each request an id (``X-Request-Id``), echoed in the answer, in the audit and in the log."""

    def __init__(self, get_response: Respond) -> None:
        self._respond = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Answer with the id in the header."""
        sent = request.headers.get("X-Request-Id", "")
        request_id = sent if _REQUEST_ID.match(sent) else secrets.token_hex(8)
        request.META["signalbox.request_id"] = request_id
        response = self._respond(request)
        response["X-Request-Id"] = request_id
        return response


class ErrorPages:
    """Turns refusals into an answer that says the cause, the next step and the request id. Stands last.

    They are errors of a view; of :class:`console.web.bodylimit.BodyLimit`; and of a NUL in a path, a query or a form:
    PostgreSQL stores none, and most of these texts reach it. The REST API's forms refuse one themselves; its bodies are
    not read before a right has been looked at.
    """

    def __init__(self, get_response: Respond) -> None:
        self._respond = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """The refusal of the body, or the answer."""
        error = getattr(request, "scope", {}).get(REFUSAL)
        if error is None:
            return self._respond(request)
        response = refusal(request, error)
        response["Connection"] = "close"  # or the server would read on to the end of the body
        return response

    def process_exception(self, request: HttpRequest, error: Exception) -> HttpResponse | None:
        """The page of a :class:`SignalboxError`; anything else is Django's."""
        if not isinstance(error, SignalboxError):
            log.exception("console.failed", path=request.path, request_id=request_id_of(request))
            return None
        form = again.refused(request, error, _page_before(request))  # its CSRF token was right, its body read
        response = again.shown(request, form, error) if form is not None else None
        return _delayed(response, error) if response is not None else refusal(request, error, form)

    def process_view(self, request: HttpRequest, *_: object) -> HttpResponse | None:
        """The refusal of a NUL, or None; its form was read for the CSRF token by now."""
        forms = [request.GET] if problems.is_for_programs(request) else [request.GET, request.POST]
        texts = (text for form in forms for _, values in form.lists() for text in values)
        if _NUL not in request.path_info and not any(_NUL in text for text in texts):
            return None
        return refusal(request, InvalidRequest("A text has a NUL character, which cannot be stored."))


def refusal(request: HttpRequest, error: SignalboxError, form: again.Refused | None = None) -> HttpResponse:
    """What one of our errors is answered with. form: that was refused, to be sent again from here."""
    title = problems.title_of(error.code)
    return _delayed(error_page(request, meaning(error.code).http, title, error.public_message, form), error)


def _delayed(response: HttpResponse, error: SignalboxError) -> HttpResponse:
    if error.retry_after_s is not None:
        response["Retry-After"] = str(max(1, round(error.retry_after_s)))
    return response


def error_page(
    request: HttpRequest, status: int, title: str, text: str, form: again.Refused | None = None
) -> HttpResponse:
    """One answer for everything that goes wrong: a page to people, a problem to programs.

    form: that was refused, to be sent again from here.
    """
    if problems.is_for_programs(request):
        return problems.answer(status, text)
    context = {
        "status": status,
        "title": title,
        "text": text,
        "request_id": request_id_of(request),
        "back": _page_before(request),
        "refused": form if form is not None and form.fields else None,
    }
    return render(request, "accounts/error.html", context, status=status)


def _page_before(request: HttpRequest) -> str:
    """The path and query of the page whose form was sent, to go back to; empty where it is none of ours."""
    came_from = request.headers.get("Referer", "")[:2000]
    if request.method != "POST" or not url_has_allowed_host_and_scheme(came_from, {request.headers.get("Host", "")}):
        return ""
    parts = urlsplit(came_from)
    if not re.match(r"/(?!/|confirm$)", parts.path):
        return ""
    return f"{parts.path}?{parts.query}" if parts.query else parts.path


def request_id_of(request: HttpRequest) -> str:
    """The id :class:`RequestIdentity` gave."""
    return str(request.META.get("signalbox.request_id", ""))


def address_of(request: HttpRequest) -> str:
    """The client's address; a proxy's header counts only with ``trust_proxy``."""
    if settings.CONSOLE.trust_proxy:
        forwarded = request.headers.get("X-Forwarded-For", "").rsplit(",", 1)[-1].strip()
        if forwarded:
            return forwarded[:45]
    return str(request.META.get("REMOTE_ADDR", ""))[:45]


def actor_of(request: HttpRequest, via: str = "web") -> Actor:
    """Who acts in this request."""
    user = request.user if isinstance(request.user, User) else None
    return Actor(user=user, via=via, address=address_of(request), request_id=request_id_of(request))
