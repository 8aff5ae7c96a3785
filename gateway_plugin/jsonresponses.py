"""JSON responses to clients, with errors in the format of the protocol that the client spoke.

TensorFlow Serving's paths and the Open Inference Protocol's get ``{"error": text}``, ours
``application/problem+json`` (RFC 9457).
"""

import math
from collections.abc import AsyncGenerator, Mapping
from typing import Any, Final, NamedTuple

import orjson

from signalbox.program.errors import SignalboxError, meaning

JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
JOB_ID: Final = "X-Signalbox-Job-Id"
ERROR: Final = "X-Signalbox-Error"
"""Its code, where the body has no place for it."""
_TYPE_BASE: Final = "urn:signalbox:error:"
_RETRY_AFTER_S: Final = 1


class JsonResponse(NamedTuple):
    """One HTTP response. body: JSON bytes, always valid UTF-8. headers: by Go's canonical names."""

    status: int
    body: bytes
    headers: Mapping[str, str]


class StreamResponse(NamedTuple):
    """One HTTP response whose body comes in parts, for as long as the client stays. headers: by Go's canonical names.

    parts: has been begun, so that closing it ends what it holds; whoever sends it closes it. nothing: a part that says
    nothing, for a client that may have left; empty where there is none. is_paced: parts are made as fast as the client
    reads; others come by themselves, and a client that reads too slowly is cut off.
    """

    status: int
    headers: Mapping[str, str]
    parts: AsyncGenerator[bytes, None]
    nothing: bytes = b""
    is_paced: bool = False


def json_response(status: int, doc: Any, headers: Mapping[str, str] | None = None) -> JsonResponse:
    """``doc`` as JSON."""
    return JsonResponse(status, orjson.dumps(doc), {"Content-Type": JSON, **(headers or {})})


def error_response(error: SignalboxError) -> JsonResponse:
    """The response for ``error`` as TensorFlow Serving and the Open Inference Protocol have it."""
    headers = _headers(error) | {ERROR: error.code}
    return json_response(meaning(error.code).http, {"error": error.public_message}, headers)


def problem_response(error: SignalboxError) -> JsonResponse:
    """The response for ``error`` as an RFC 9457 problem."""
    return json_response(meaning(error.code).http, problem(error), _headers(error) | {"Content-Type": PROBLEM})


def _headers(error: SignalboxError) -> dict[str, str]:
    """What a response for ``error`` says beside its body: ``Retry-After`` where a retry helps, the job's id."""
    extra = retry_headers(error)
    job_id = error.facts.get("job_id")
    if isinstance(job_id, str):
        extra[JOB_ID] = job_id
    if meaning(error.code).http == 401:
        extra["Www-Authenticate"] = "Bearer"
    if isinstance(error.facts.get("allow"), str):
        extra["Allow"] = str(error.facts["allow"])
    return extra


def problem(error: SignalboxError) -> dict[str, Any]:
    """An RFC 9457 problem: type, title, status, detail, our code and the error's facts."""
    means = meaning(error.code)
    facts = {k: v for k, v in error.facts.items() if isinstance(v, str | int | float | list | dict)}
    doc: dict[str, Any] = {
        "type": _TYPE_BASE + error.code,
        "title": means.title,
        "status": means.http,
        "detail": error.public_message,
        "code": error.code,
    }
    if error.retry_after_s is not None:
        doc["retry_after_ms"] = round(error.retry_after_s * 1000)
    return doc | {k: v for k, v in facts.items() if k not in doc}


def retry_headers(error: SignalboxError) -> dict[str, str]:
    """``Retry-After`` where a retry of what ``error`` refused helps, else nothing."""
    if error.is_retryable or error.retry_after_s is not None or meaning(error.code).http in {429, 503}:
        return {"Retry-After": str(retry_after(error.retry_after_s))}
    return {}


def retry_after(seconds: float | None) -> int:
    """Whole seconds for a ``Retry-After`` header, at least one."""
    return max(_RETRY_AFTER_S, math.ceil(seconds or 0))
