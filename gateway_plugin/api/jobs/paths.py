"""Maps the job API's methods and paths to routes. Pure; nothing is looked up."""

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from signalbox.program.errors import MethodNotAllowed, NotFound

_JOB: Final = re.compile(r"/v1/jobs/(?P<id>[^/]+)(?P<below>/[a-z]+)?\Z")
_ALL_EVENTS: Final = "/v1/events"
_SHOWN: Final = 200


class Operation(StrEnum):
    """What a request asks for."""

    SUBMIT = "submit"
    LIST = "list"
    READ = "read"
    RESULT = "result"
    EVENTS = "events"
    ACCOUNT_EVENTS = "events of the account"
    CANCEL = "cancel"
    CHANGE = "change"
    RETRY = "retry"
    DELETE = "delete"
    CANCEL_MANY = "cancel many"
    RETRY_MANY = "retry many"
    DELETE_MANY = "delete many"


class Route(NamedTuple):
    """The operation of a request and the job that it is about."""

    operation: Operation
    job_id: str = ""


_READ: Final = ("GET", "HEAD")
_FIXED: Final[Mapping[str, Mapping[str, Operation]]] = {
    "/v1/predict": {"POST": Operation.SUBMIT},
    "/v1/jobs": {**dict.fromkeys(_READ, Operation.LIST), "POST": Operation.SUBMIT},
    _ALL_EVENTS: {"GET": Operation.ACCOUNT_EVENTS},
    "/v1/jobs/cancel": {"POST": Operation.CANCEL_MANY},
    "/v1/jobs/retry": {"POST": Operation.RETRY_MANY},
    "/v1/jobs/delete": {"POST": Operation.DELETE_MANY},
}
"""Operations by path and method."""
_OF_ONE: Final[Mapping[str | None, Mapping[str, Operation]]] = {
    None: {**dict.fromkeys(_READ, Operation.READ), "PATCH": Operation.CHANGE, "DELETE": Operation.DELETE},
    "/result": dict.fromkeys(_READ, Operation.RESULT),
    "/events": {"GET": Operation.EVENTS},
    "/cancel": {"POST": Operation.CANCEL},
    "/retry": {"POST": Operation.RETRY},
}
"""Operations by what follows a job's path, and by method."""


def is_of_events(url: str) -> bool:
    """Whether an address, with its query or without, is that of events, of a job or of an account."""
    path = url.partition("?")[0]
    found = _JOB.match(path)
    return path == _ALL_EVENTS or (found is not None and found["below"] == "/events")


def route_of(method: str, path: str) -> Route:
    """The route of a request. Raises :class:`NotFound`, and :class:`MethodNotAllowed` (with ``allow``)."""
    methods, job_id = _FIXED.get(path), ""
    if methods is None and (found := _JOB.match(path)) is not None:
        methods, job_id = _OF_ONE.get(found["below"]), found["id"]
    if methods is None:
        raise NotFound(f"There is nothing at {path[:_SHOWN]}.")
    if method not in methods:
        allowed = ", ".join(methods)
        raise MethodNotAllowed(
            f"Malformed request: {method} {path[:_SHOWN]}; this path takes {allowed}.", allow=allowed
        )
    return Route(methods[method], job_id)
