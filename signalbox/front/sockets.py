"""Bounds of connections that become websockets: which may, how much one brings, how long one is silent.

A server sends pings by itself. An answer to them is not asked for: a client that is busy with what it got reads nothing
meanwhile, and sends pings of its own. Whoever sends nothing at all is gone.
"""

from collections.abc import Callable
from typing import Final, NamedTuple

SILENT: Final = "deadline_exceeded:websocket"
"""Nothing came for too long."""
FLOODS: Final = "limit_exceeded:websocket"
"""More came than a client has to say."""


class SocketBounds(NamedTuple):
    """What the websockets of a listener are held to.

    may_open: whether a request may become one, by its head; an offer of any other is ignored. silence_s: longest time
    in which nothing comes. most_bytes: that come in a second, and in all while the client takes nothing of what it is
    sent, for each ping is answered.
    """

    may_open: Callable[[bytes], bool]
    silence_s: float
    most_bytes: int


class OpenSocket:
    """One connection that has become a websocket, from the application's side and from its gate's."""

    __slots__ = ("_bounds", "_bytes", "_has_heard", "_heard_at", "_is_draining", "_on_drain")

    def __init__(self, bounds: SocketBounds, now: float, *, is_draining: bool) -> None:
        self._bounds = bounds
        self._bytes = 0
        self._has_heard = False
        self._heard_at = now
        self._is_draining = is_draining
        self._on_drain: Callable[[], None] | None = None

    def on_drain(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` once when the listener stops, at once where it does already."""
        self._on_drain = callback
        if self._is_draining:
            callback()

    def drain(self) -> None:
        """The listener stops."""
        if not self._is_draining:
            self._is_draining = True
            if self._on_drain is not None:
                self._on_drain()

    def heard(self, size: int) -> None:
        """Note that so many bytes came."""
        self._bytes += size
        self._has_heard = True

    def check(self, now: float, *, is_stuck: bool, is_unread: bool) -> str:
        """Why the connection is to end, empty: it goes on. Called every second.

        is_stuck: the client takes nothing. is_unread: nothing is read of it, by our own choice.
        """
        is_flood = self._bytes > self._bounds.most_bytes
        if not is_stuck:
            self._bytes = 0
        if self._has_heard or is_unread:
            self._has_heard = False
            self._heard_at = now
        if is_flood:
            return FLOODS
        return SILENT if now - self._heard_at > self._bounds.silence_s else ""
