"""Refusals of the REST API as problem+json (RFC 9457), from the one table of error codes."""

from typing import Any

from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from console.accounts.middleware import DATABASE_FAULTS, database_away
from signalbox import log
from signalbox.errors import SignalboxError, meaning

_CODES = {
    400: "invalid_request", 401: "unauthorized", 403: "forbidden", 404: "not_found",
    405: "method_not_allowed", 415: "invalid_request", 429: "limit_exceeded",
}  # fmt: skip


def as_problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to an exception: ours, or one of the framework's; None leaves it to the server's 500."""
    if isinstance(error, DATABASE_FAULTS):
        log.warning("api.database_away", reason=type(error).__name__)
        error = database_away()
    if isinstance(error, SignalboxError):
        means = meaning(error.code)
        response = Response(_problem(means.http, error.code, means.title, error.public_message))
        response.status_code = means.http
        if error.retry_after_s is not None:
            response["Retry-After"] = str(max(1, round(error.retry_after_s)))
    else:
        answered = exception_handler(error, context)
        if answered is None:
            return None
        response = answered
        code = _CODES.get(response.status_code, "invalid_request")
        fields = error.detail if isinstance(error, exceptions.ValidationError) else None
        response.data = _problem(
            response.status_code, code, meaning(code).title, _words(error), fields=fields
        )
    response.content_type = "application/problem+json"
    return response


def _problem(status: int, code: str, title: str, detail: str, **more: Any) -> dict[str, Any]:
    body = {
        "type": f"about:blank#{code}",
        "title": title,
        "status": status,
        "detail": detail,
        "code": code,
    }
    return body | {name: value for name, value in more.items() if value}


def _words(error: Exception) -> str:
    detail = getattr(error, "detail", str(error))
    if isinstance(detail, dict):
        return "; ".join(f"{field}: {_first(said)}" for field, said in detail.items())
    return str(_first(detail))


def _first(said: Any) -> Any:
    return said[0] if isinstance(said, list) and said else said
