"""Every refusal under ``/api/`` as problem+json (RFC 9457), of our views, the framework and Django alike."""

from collections.abc import Iterator, Mapping
from typing import Any, Final

from django.http import HttpRequest, JsonResponse
from rest_framework import exceptions
from rest_framework.response import Response
from rest_framework.views import exception_handler

from console.database import DATABASE_FAULTS, database_away
from signalbox.program import log
from signalbox.program.errors import SignalboxError, meaning

MEDIA_TYPE: Final = "application/problem+json"
PREFIX: Final = "/api/"
_CODES: Final = {
    400: "invalid_request",
    401: "unauthorized",
    403: "forbidden",
    404: "not_found",
    405: "method_not_allowed",
    413: "too_large",
    415: "invalid_request",
    429: "limit_exceeded",
    503: "unavailable",
}
_TITLES: Final = {"unauthorized": "Not logged in", "forbidden": "Not allowed"}
"""Where the common words speak of API keys, which operators do not use here."""
_OWN: Final = "non_field_errors"


def title_of(code: str) -> str:
    """Short constant text of an error code, as the console says it."""
    return _TITLES.get(code, meaning(code).title)


def is_for_programs(request: HttpRequest) -> bool:
    """Whether the answer to this request is read by a program."""
    return request.path_info.startswith(PREFIX)


def as_problem(error: Exception, context: dict[str, Any]) -> Response | None:
    """The answer to an exception: ours, or one of the framework's; None leaves it to the server's 500."""
    if isinstance(error, DATABASE_FAULTS):
        log.warning("api.database_unreachable", reason=type(error).__name__)
        error = database_away()
    if isinstance(error, SignalboxError):
        status = meaning(error.code).http
        response = Response(_body(status, error.code, error.public_message), status=status)
        if error.retry_after_s is not None:
            response["Retry-After"] = str(max(1, round(error.retry_after_s)))
    else:
        answered = exception_handler(error, context)
        if answered is None:
            return None
        response = answered
        response.data = _framework(error, response.status_code)
    response.content_type = MEDIA_TYPE
    return response


def answer(status: int, detail: str) -> JsonResponse:
    """A refusal that no view of the REST API made: an unknown path, a request Django would not take, our own fault."""
    code = _CODES.get(status, "internal" if status >= 500 else "invalid_request")
    return JsonResponse(_body(status, code, detail), status=status, content_type=MEDIA_TYPE)


def _framework(error: Exception, status: int) -> dict[str, Any]:
    code = _CODES.get(status, "invalid_request")
    detail = getattr(error, "detail", str(error))
    if not isinstance(error, exceptions.ValidationError):
        return _body(status, code, str(detail))
    fields: dict[str, list[str]] = {}
    for where, said in _faults(detail, ""):
        fields.setdefault(where, []).append(said)
    words = "; ".join(f"{where}: {' '.join(said)}" if where else " ".join(said) for where, said in fields.items())
    named = {where: said for where, said in fields.items() if where}
    return _body(status, code, words) | ({"fields": named} if named else {})


def _faults(detail: Any, where: str) -> Iterator[tuple[str, str]]:
    """``(path of the field, words)`` of each fault, however deep the framework nests them."""
    if isinstance(detail, Mapping):
        for name, inner in detail.items():
            step = "" if name == _OWN else f"[{name}]" if isinstance(name, int) else f".{name}"
            yield from _faults(inner, f"{where}{step}".removeprefix("."))
    elif isinstance(detail, list):
        for number, inner in enumerate(detail):
            is_row = isinstance(inner, Mapping | list)  # of a list of things, one fault map each
            yield from _faults(inner, f"{where}[{number}]" if is_row else where)
    else:
        yield where, str(detail)


def _body(status: int, code: str, detail: str) -> dict[str, Any]:
    return {"type": f"about:blank#{code}", "title": title_of(code), "status": status, "detail": detail, "code": code}
