"""Maps a method and a path to a route, in whichever dialect the path is. Pure; nothing is looked up."""

import re
from functools import lru_cache
from typing import Final

from gateway_plugin.api.routes import Operation, Route
from gateway_plugin.api.tfserving import paths
from gateway_plugin.service.jsonresponses import is_serving
from signalbox.program.errors import MethodNotAllowed, NotFound

_JOB: Final = re.compile(r"/v1/jobs/(?P<id>[^/]+)(?P<cancel>/cancel)?\Z")
_LONGEST_REMEMBERED: Final = 256


def route_of(method: str, path: str) -> Route:
    """The route of a request; those of recent paths are remembered.

    Raises :class:`NotFound`, :class:`MethodNotAllowed` (with ``allow``) and :class:`InvalidRequest`.
    """
    return _remembered(method, path) if len(path) <= _LONGEST_REMEMBERED else _route_of(method, path)


def _route_of(method: str, path: str) -> Route:
    if path in {"/v1/predict", "/v1/jobs"}:
        _allow(method, path, "POST")
        return Route(Operation.SUBMIT)
    if path.startswith("/v1/jobs/"):
        return _job(method, path)
    if is_serving(path):
        return paths.route_of(method, path)
    raise NotFound(f"There is nothing at {path[:200]}.")


_remembered: Final = lru_cache(maxsize=1024)(_route_of)


def _job(method: str, path: str) -> Route:
    found = _JOB.match(path)
    if found is None:
        raise NotFound(f"There is nothing at {path[:200]}.")
    if found["cancel"]:
        _allow(method, path, "POST")
        return Route(Operation.CANCEL_JOB, job_id=found["id"])
    _allow(method, path, "GET", "HEAD", "DELETE")
    return Route(Operation.CANCEL_JOB if method == "DELETE" else Operation.READ_JOB, job_id=found["id"])


def _allow(method: str, path: str, *methods: str) -> None:
    if method not in methods:
        allowed = ", ".join(methods)
        raise MethodNotAllowed(f"Malformed request: {method} {path[:200]}; this path takes {allowed}.", allow=allowed)
