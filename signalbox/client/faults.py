"""The errors that answers stand for: classes of :mod:`signalbox.program.errors`, with cause and mend in their text."""

import json
from collections.abc import Mapping
from typing import Any, Final

from signalbox.client.exchange import Response
from signalbox.program import errors

_BY_CODE: Final[Mapping[str, type[errors.SignalboxError]]] = {
    one.code: one
    for one in vars(errors).values()
    if isinstance(one, type) and issubclass(one, errors.SignalboxError) and one is not errors.StaleRevision
}
_BY_STATUS: Final[Mapping[int, type[errors.SignalboxError]]] = {
    401: errors.Unauthorized,
    403: errors.Forbidden,
    404: errors.NotFound,
    405: errors.MethodNotAllowed,
    409: errors.Conflict,
    410: errors.Gone,
    413: errors.TooLarge,
    415: errors.UnsupportedEncoding,
    422: errors.KeyReused,
    429: errors.LimitExceeded,
    500: errors.Bug,
    501: errors.Unimplemented,
    502: errors.Ambiguous,
    504: errors.DeadlineExceeded,
}
_OWN: Final = frozenset(
    {"detail", "code", "title", "type", "retry_after_ms", "self", "public_message", "retry_after_s"}
)


def fault(response: Response) -> errors.SignalboxError:
    """The error of an answer with a status from 400 on. Its facts: what else the problem says, and ``job_id``."""
    try:
        doc = json.loads(response.body)
    except (ValueError, RecursionError):
        doc = {}
    return problem(doc if isinstance(doc, dict) else {}, response)


def problem(doc: Mapping[str, Any], response: Response = Response(0, {})) -> errors.SignalboxError:  # noqa: B008
    """The error of a problem in JSON. response: the one that it came in."""
    stated = doc.get("status")
    status = stated if type(stated) is int else response.status
    message = str(doc.get("detail") or doc.get("error") or f"The front answered with status {status}.")
    facts = {name: value for name, value in doc.items() if name not in _OWN}
    job_id = response.headers.get("x-signalbox-job-id") or doc.get("job_id")
    facts |= {"status": status} | ({"job_id": job_id} if job_id else {})
    wait_ms = doc.get("retry_after_ms")
    wait_s = wait_ms / 1000 if isinstance(wait_ms, int | float) else retry_after_s(response)
    code = doc.get("code") or response.headers.get("x-signalbox-error")
    return kind(code, status)(message, retry_after_s=wait_s, **facts)


def kind(code: object, status: int = 500) -> type[errors.SignalboxError]:
    """The class of a code; of one that is not known, that of the status."""
    if isinstance(code, str) and code in _BY_CODE:
        return _BY_CODE[code]
    return _BY_STATUS.get(status) or (errors.Unavailable if status >= 500 else errors.InvalidRequest)


def retry_after_s(response: Response) -> float | None:
    """Seconds that a front asks to wait, None where it does not say."""
    text = response.headers.get("retry-after", "")
    return float(text) if text.isascii() and text.isdigit() else None


def document(response: Response) -> dict[str, Any]:
    """The JSON object of an answer. Raises :class:`Bug`."""
    try:
        doc = json.loads(response.body)
    except ValueError as error:
        raise errors.Bug(f"The front answered {response.status} without JSON: is its URL Signalbox's?") from error
    if not isinstance(doc, dict):
        raise errors.Bug(f"The front answered {response.status} with no JSON object: is its URL Signalbox's?")
    return doc
