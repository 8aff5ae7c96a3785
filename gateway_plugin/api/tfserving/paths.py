"""Maps TensorFlow Serving's methods and paths to routes. Pure; nothing is looked up.

The case of ``/v1/models``, ``versions`` and ``labels`` does not matter, that of verbs and ``metadata`` does; names of
models and labels are percent-decoded. Source: TensorFlow Serving's ``http_rest_api_util.cc``.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from gateway_plugin.codec.forms import Form
from signalbox.program.errors import InvalidRequest

METRICS: Final = "/monitoring/prometheus/metrics"
_VERSION: Final = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_FLAGS: Final = re.IGNORECASE | re.ASCII
_CALL: Final = re.compile(rf"/v1/models/(?P<model>[^/:]+){_VERSION}:(?P<verb>classify|regress|predict)", _FLAGS)
_STATUS: Final = re.compile(rf"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION}(?:/(?P<part>metadata))?", _FLAGS)
_LARGEST_VERSION: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
"""More digits are not converted: Python is slow with long numbers and refuses very long ones."""
_SHOWN: Final = 200
_LONGEST_REMEMBERED: Final = 256
_OURS: Final = re.compile(
    r"/v1/(?:(?:jobs|files|uploads|batches|queues)(?:/[^?]*)?|events|predict|openapi\.json)(?:\?|\Z)"
)
_PREFIX: Final = len("/v1/")

_FORMS: Final = {form.value: form for form in (Form.PREDICT, Form.CLASSIFY, Form.REGRESS)}


class Operation(StrEnum):
    """What a request asks for."""

    PREDICT = "predict"
    CLASSIFY = "classify"
    REGRESS = "regress"
    STATUS = "status"
    METADATA = "metadata"
    METRICS = "metrics"
    PREFLIGHT = "preflight"
    LIST_MODELS = "list_models"

    form: Form | None
    """What the body of a prediction is; None where the operation has none."""

    def __init__(self, value: str) -> None:
        self.form = _FORMS.get(value)


_VERBS: Final = {verb: Operation(verb) for verb in _FORMS}


class Route(NamedTuple):
    """The operation of a request and its target. At most one of ``version`` and ``label`` is given."""

    operation: Operation
    model: str = ""
    version: int | None = None
    label: str | None = None


def is_serving(url: str) -> bool:
    """Whether a path, with its query or without, is TensorFlow Serving's: under ``/v1/`` whatever is not ours.

    The first 32 characters tell.
    """
    if url[:_PREFIX].lower() != "/v1/":
        return url.startswith(METRICS)
    return _OURS.match(url) is None


def route_of(method: str, path: str) -> Route:
    """The route of a request; those of recent paths are remembered.

    Raises :class:`InvalidRequest`, also for a wrong method, as TensorFlow Serving does.
    """
    return _remembered(method, path) if len(path) <= _LONGEST_REMEMBERED else _route_of(method, path)


def _route_of(method: str, path: str) -> Route:
    if method == "OPTIONS":
        return Route(Operation.PREFLIGHT)
    if path == METRICS:
        return Route(Operation.METRICS)
    pattern = _CALL if method == "POST" else _STATUS if method == "GET" else None
    found = pattern.fullmatch(path) if pattern is not None else None
    if found is None or (method == "POST" and found["verb"] not in _VERBS):
        raise _malformed(method, path)
    version, label = _version(found["version"]), found["label"]
    model = unquote(found["model"] or "")
    label = unquote(label) if label else None
    if method == "POST":
        return Route(_VERBS[found["verb"]], model, version, label)
    if not model:
        if version is None and label is None and not found["part"]:
            return Route(Operation.LIST_MODELS)
        raise InvalidRequest(
            f"Missing model name in request. A path is /v1/models/<name>; this one is {path[:_SHOWN]}."
        )
    return Route(Operation.METADATA if found["part"] == "metadata" else Operation.STATUS, model, version, label)


_remembered: Final = lru_cache(maxsize=1024)(_route_of)


def _version(text: str | None) -> int | None:
    if not text:
        return None
    digits = text.lstrip("0")
    version = int(digits[: _MOST_DIGITS + 1] or 0)
    if version > _LARGEST_VERSION:
        raise InvalidRequest(f"Failed to convert version: {text[:40]} to numeric.")
    return version


def _malformed(method: str, path: str) -> InvalidRequest:
    theirs = f"Malformed request: {method[:20]} {path[:_SHOWN]}"
    if method != "POST" and _CALL.fullmatch(path):
        return InvalidRequest(f"{theirs}. This path takes POST.", allow="POST")
    if method != "GET" and _STATUS.fullmatch(path):
        return InvalidRequest(f"{theirs}. This path takes GET.", allow="GET")
    return InvalidRequest(
        f"{theirs}. Calls are POST /v1/models/<name>[/versions/<number>|/labels/<label>]:predict, :classify or "
        ":regress, in small letters; GET /v1/models/<name> is the status, with /metadata the signatures."
    )
