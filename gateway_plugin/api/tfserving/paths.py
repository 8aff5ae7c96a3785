"""Maps TensorFlow Serving's methods and paths to routes. Pure; nothing is looked up.

The case of ``/v1/models``, ``versions`` and ``labels`` does not matter, that of verbs and ``metadata`` does; names of
models and labels are percent-decoded. Source: TensorFlow Serving's ``http_rest_api_util.cc``.
"""

import re
from typing import Final
from urllib.parse import unquote

from gateway_plugin.api.routes import Operation, Route
from signalbox.program.errors import InvalidRequest

METRICS: Final = "/monitoring/prometheus/metrics"
_VERSION: Final = r"(?:/versions/(?P<version>[0-9]+)|/labels/(?P<label>[^/:]+))?"
_FLAGS: Final = re.IGNORECASE | re.ASCII
_CALL: Final = re.compile(rf"/v1/models/(?P<model>[^/:]+){_VERSION}:(?P<verb>classify|regress|predict)", _FLAGS)
_STATUS: Final = re.compile(rf"/v1/models(?:/(?P<model>[^/:]+))?{_VERSION}(?:/(?P<part>metadata))?", _FLAGS)
_VERBS: Final = {
    "predict": Operation.TFS_PREDICT,
    "classify": Operation.TFS_CLASSIFY,
    "regress": Operation.TFS_REGRESS,
}
_LARGEST_VERSION: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
"""More digits are not converted: Python is slow with long numbers and refuses very long ones."""
_SHOWN: Final = 200


def route_of(method: str, path: str) -> Route:
    """The route of a request. Raises :class:`InvalidRequest`, also for a wrong method, as TensorFlow Serving does."""
    if method == "OPTIONS":
        return Route(Operation.TFS_PREFLIGHT)
    if path == METRICS:
        return Route(Operation.TFS_METRICS)
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
    return Route(Operation.TFS_METADATA if found["part"] == "metadata" else Operation.TFS_STATUS, model, version, label)


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
