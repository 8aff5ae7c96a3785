"""Addresses of queues: the product's own, and ours beside it."""

import re
from typing import Final, NamedTuple

from signalbox.program.errors import NotFound
from signalbox.wire.queuenames import Side

_OURS: Final = ("/api/predict/", "/v1/queues/")
_PATH: Final = re.compile(
    r"(?P<base>/api/predict|/v1/queues)/(?P<name>[A-Za-z0-9][A-Za-z0-9_.-]{0,99})(?P<sink>/sink)?/?\Z"
)
_LONGEST_HEAD: Final = 8_000
"""Bytes of the head of a request that may become a websocket: the server's library reads lines of 8 KiB."""
_OPENS: Final = re.compile(rb"GET (?:/api/predict/|/v1/queues/)")
_LENGTH: Final = re.compile(rb"\r\ncontent-length:", re.IGNORECASE)
_SHOWN: Final = 200


class Address(NamedTuple):
    """One side of what has this name. is_queue: it can be nothing but a queue, a model's name does not count."""

    name: str
    side: Side
    is_queue: bool


def is_of_queues(head: str) -> bool:
    """Whether a path is one of these. head: its beginning."""
    return head.startswith(_OURS)


def address_of(path: str) -> Address:
    """The address in a path without its query. Raises :class:`NotFound`."""
    found = _PATH.match(path)
    if found is None:
        raise NotFound(f"There is nothing at {path[:_SHOWN]}; a queue is at /v1/queues/<name> or /api/predict/<name>.")
    is_sink = found["sink"] is not None
    return Address(found["name"], "sink" if is_sink else "source", is_sink or found["base"] == "/v1/queues")


def may_be_watch(head: bytes) -> bool:
    """Whether a request may become a websocket: what its server would not parse is answered over HTTP."""
    return (
        len(head) <= _LONGEST_HEAD
        and head.isascii()
        and _OPENS.match(head) is not None
        and _LENGTH.search(head) is None
    )
