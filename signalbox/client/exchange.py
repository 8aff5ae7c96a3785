"""What the client asks of the world: requests, pauses, look-ups. Each is yielded by :mod:`signalbox.client.calls` and
carried out by a transport, with or without asyncio; nothing here or there does I/O by itself.
"""

from collections.abc import Generator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Request:
    """A request to any front. Sending it twice does no harm: a submission has an Idempotency-Key.

    is_once: it does, so it is repeated only where nothing was done.
    """

    method: str
    path: str
    body: bytes = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    is_once: bool = False

    @property
    def has_key(self) -> bool:
        """Whether a repeat is recognised by the front."""
        return "Idempotency-Key" in self.headers


class Response(NamedTuple):
    """An answer. headers: names in lower case; of repeated ones the last. body: empty where it is read in parts."""

    status: int
    headers: Mapping[str, str]
    body: bytes = b""


class Target(NamedTuple):
    """Where a front is. url: with its address. authority: what the Host field says. name: that its certificate has."""

    url: str
    authority: str
    name: str


class Send(NamedTuple):
    """Send a request to one front; gives a :class:`Response`.

    Raises :class:`Unavailable` where nothing was sent, :class:`Ambiguous` where the connection broke before the answer
    was whole, :class:`DeadlineExceeded` after ``timeout_s``.
    """

    target: Target
    request: Request
    timeout_s: float


class Open(NamedTuple):
    """Send a request, and leave the answer's body to :class:`Read` unless that is an error. Raises as :class:`Send`."""

    target: Target
    request: Request
    timeout_s: float


class Read(NamedTuple):
    """Read on in what was opened last; gives bytes, None at its end. Raises as :class:`Send`."""


class Upgrade(NamedTuple):
    """Open a websocket; gives a :class:`Response`, with status 101, or with why not and a body. Raises as
    :class:`Send`, and :class:`ImportError` where the extra ``queues`` is not installed.
    """

    target: Target
    request: Request
    timeout_s: float


class Receive(NamedTuple):
    """Wait for the next message of the websocket that was opened last; gives bytes, or :class:`Closed`.

    keeps: also what had come when the connection broke.
    """

    keeps: bool


class Closed(NamedTuple):
    """How a websocket ended. code: of RFC 6455, 1006 = the connection broke."""

    code: int
    reason: str


class Pause(NamedTuple):
    """Let time pass."""

    seconds: float


class Resolve(NamedTuple):
    """Look a host's addresses up; gives them as texts. Raises :class:`Unavailable`."""

    host: str
    port: int


class Emit(NamedTuple):
    """Hand the caller the next item of an iteration."""

    item: Any


Effect = Send | Open | Read | Upgrade | Receive | Pause | Resolve | Emit
Steps = Generator[Effect, Any, T]
"""A call: yields effects, is sent what they give, and returns the call's result."""
