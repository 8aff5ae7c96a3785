"""Maps the job API's methods and paths to routes. Pure; nothing is looked up."""

import re
from enum import StrEnum
from typing import Final, NamedTuple

from signalbox.program.errors import MethodNotAllowed, NotFound

_SUBMIT: Final = frozenset({"/v1/jobs", "/v1/predict"})
_JOB: Final = re.compile(r"/v1/jobs/(?P<id>[^/]+)(?P<cancel>/cancel)?\Z")
_SHOWN: Final = 200


class Operation(StrEnum):
    """What a request asks for."""

    SUBMIT = "submit"
    READ = "read"
    CANCEL = "cancel"


class Route(NamedTuple):
    """The operation of a request and the job that it is about."""

    operation: Operation
    job_id: str = ""


def route_of(method: str, path: str) -> Route:
    """The route of a request. Raises :class:`NotFound`, and :class:`MethodNotAllowed` (with ``allow``)."""
    if path in _SUBMIT:
        _allow(method, path, "POST")
        return Route(Operation.SUBMIT)
    found = _JOB.match(path)
    if found is None:
        raise NotFound(f"There is nothing at {path[:_SHOWN]}.")
    if found["cancel"]:
        _allow(method, path, "POST")
        return Route(Operation.CANCEL, found["id"])
    _allow(method, path, "GET", "HEAD", "DELETE")
    return Route(Operation.CANCEL if method == "DELETE" else Operation.READ, found["id"])


def _allow(method: str, path: str, *methods: str) -> None:
    if method not in methods:
        allowed = ", ".join(methods)
        raise MethodNotAllowed(
            f"Malformed request: {method} {path[:_SHOWN]}; this path takes {allowed}.", allow=allowed
        )
