"""Maps a method and a path to a route: an operation and its target. Pure; nothing is looked up.

As in TensorFlow Serving the case of ``/v1/models``, ``versions`` and ``labels`` does not matter, that of verbs and
``metadata`` does. Names of models and labels are percent-decoded.
"""

import re
from enum import StrEnum
from functools import lru_cache
from typing import Final, NamedTuple
from urllib.parse import unquote

from signalbox.program.errors import InvalidRequest, MethodNotAllowed, NotFound

_MODELS: Final = re.compile(
    r"/(?i:v1/models)(?:/(?P<model>[^/:]+)"
    r"(?:/(?i:versions)/(?P<version>[0-9]+)|/(?i:labels)/(?P<label>[^/:]+))?"
    r"(?::(?P<verb>predict|classify|regress)|(?P<metadata>/metadata))?)?/?\Z"
)
_JOB: Final = re.compile(r"/v1/jobs/(?P<id>[^/]+)(?P<cancel>/cancel)?\Z")
_LARGEST_VERSION: Final = 2**63 - 1
_MOST_DIGITS: Final = 19
"""More digits are not converted: Python is slow with long numbers and refuses very long ones."""
_LONGEST_REMEMBERED: Final = 256


class Operation(StrEnum):
    """What a request asks the plugin to do."""

    TFS_PREDICT = "tfs_predict"
    TFS_STATUS = "tfs_status"
    TFS_METADATA = "tfs_metadata"
    LIST_MODELS = "list_models"
    SUBMIT = "submit"
    READ_JOB = "read_job"
    CANCEL_JOB = "cancel_job"


class Route(NamedTuple):
    """The operation of a request and its target. At most one of ``version`` and ``label`` is given."""

    operation: Operation
    model: str = ""
    version: int | None = None
    label: str | None = None
    job_id: str = ""

    @property
    def parts(self) -> tuple[str, ...]:
        """The parts by which targets of submissions differ; an Idempotency-Key is bound to them."""
        return self.operation, self.model, str(self.version), str(self.label)


def route_of(method: str, path: str) -> Route:
    """The route of a request; those of recent paths are remembered.

    Raises :class:`NotFound`, :class:`MethodNotAllowed` (with ``allow``) and :class:`InvalidRequest`.
    """
    return _remembered(method, path) if len(path) <= _LONGEST_REMEMBERED else _route_of(method, path)


def _route_of(method: str, path: str) -> Route:
    if path.lower().startswith("/v1/models"):
        return _models(method, path)
    if path in {"/v1/predict", "/v1/jobs"}:
        _allow(method, path, "POST")
        return Route(Operation.SUBMIT)
    found = _JOB.match(path)
    if found is None:
        raise NotFound(f"There is nothing at {path[:200]}.")
    if found["cancel"]:
        _allow(method, path, "POST")
        return Route(Operation.CANCEL_JOB, job_id=found["id"])
    _allow(method, path, "GET", "DELETE")
    return Route(Operation.READ_JOB if method == "GET" else Operation.CANCEL_JOB, job_id=found["id"])


_remembered: Final = lru_cache(maxsize=1024)(_route_of)


def _models(method: str, path: str) -> Route:
    found = _MODELS.match(path)
    if found is None:
        raise InvalidRequest(f"Malformed request: {method} {path[:200]}")
    verb = found["verb"]
    _allow(method, path, "POST" if verb else "GET")
    model = unquote(found["model"] or "")
    label = unquote(found["label"]) if found["label"] else None
    digits = (found["version"] or "").lstrip("0")
    version = int(digits[: _MOST_DIGITS + 1] or 0) if found["version"] else None
    if version is not None and version > _LARGEST_VERSION:
        raise InvalidRequest(f"Failed to convert version: {found['version'][:40]} to numeric.")
    if verb == "predict":
        return Route(Operation.TFS_PREDICT, model, version, label)
    if verb:
        raise InvalidRequest(f"This server does not offer :{verb}; use :predict.")
    if not model:
        return Route(Operation.LIST_MODELS)
    operation = Operation.TFS_METADATA if found["metadata"] else Operation.TFS_STATUS
    return Route(operation, model, version, label)


def _allow(method: str, path: str, *methods: str) -> None:
    if method not in methods:
        allowed = ", ".join(methods)
        raise MethodNotAllowed(f"Malformed request: {method} {path[:200]}; this path takes {allowed}.", allow=allowed)
