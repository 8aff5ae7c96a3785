"""Answers where no view answers: unknown paths, malformed requests, our own faults."""

import sys

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string

from console.database import DATABASE_FAULTS, database_away
from console.web import problems
from console.web.middleware import error_page, request_id_of


def csrf_failure(request: HttpRequest, reason: str = "") -> HttpResponse:
    """The page for a missing or wrong CSRF token."""
    return error_page(
        request,
        403,
        "This form has expired",
        "Go back, load the page again and repeat what you did. If it happens again, allow cookies.",
    )


def bad_request(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """The answer to a request that Django refuses: a host it does not serve, a body past its bounds."""
    return error_page(request, 400, "Malformed request", "The console cannot read this request.")


def not_found(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """The answer for an unknown path."""
    if problems.is_for_programs(request):
        words = f"There is no {request.path_info[:200]} here; /api/ tells what there is."
        return problems.answer(404, words)
    return error_page(request, 404, "Not found", "There is no such page.")


def server_error(request: HttpRequest) -> HttpResponse:
    """The answer to our own faults (500) and for a database that is away (503); so it asks neither."""
    status, title = 500, "Something failed here"
    text = (
        "The console could not answer. Jobs do not depend on it. If it stays so, look at the"
        " console's log for this request."
    )
    if isinstance(sys.exc_info()[1], DATABASE_FAULTS):
        status, title, text = 503, "The database is away", database_away().public_message
    answer: HttpResponse
    if problems.is_for_programs(request):
        answer = problems.answer(status, text)
    else:
        context = {"status": status, "title": title, "text": text, "request_id": request_id_of(request)}
        answer = HttpResponse(render_to_string("accounts/error.html", context), status=status)
    if status == 503:
        answer["Retry-After"] = str(round(database_away().retry_after_s or 1))
    return answer
