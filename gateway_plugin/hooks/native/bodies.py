"""The bodies of one connection's unfinished requests: how much they may hold, and how long."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway_plugin.hooks.native.answers import Stream
from gateway_plugin.hooks.native.buffers import Buffers

TOO_LARGE: Final = "too_large:http2"
NO_ROOM: Final = "limit_exceeded:buffers"
_PROOF_S: Final = 10.0
"""How long a client that has not shown the secret may take over its messages."""


class Bodies:
    """Holds them.

    most_bytes: of one. most_held_bytes: of all. buffers: what they take from, with all other connections. is_proven:
    the client has shown the secret, or needs none. late: called where one that has not takes too long.
    """

    def __init__(
        self,
        buffers: Buffers,
        *,
        most_bytes: int,
        most_held_bytes: int,
        is_proven: bool,
        late: Callable[[], None],
    ) -> None:
        self._buffers = buffers
        self._most_bytes = most_bytes
        self._most_held_bytes = most_held_bytes
        self._late = late
        self._timer: asyncio.TimerHandle | None = None
        self.is_proven = is_proven
        self.held_bytes = 0

    def take(self, stream: Stream, part: bytes) -> str:
        """Add to a request's body. Returns why there is no room for it, else an empty text."""
        size = len(part)
        if len(stream.body) + size > self._most_bytes or self.held_bytes + size > self._most_held_bytes:
            return TOO_LARGE
        if not self._buffers.take(size, is_proven=self.is_proven):
            return NO_ROOM
        if not self.is_proven and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_PROOF_S, self._expire)
        stream.body += part
        self.held_bytes += size
        return ""

    def end(self, stream: Stream) -> bytearray:
        """Let go of a request's body, and return what has come of it: nothing more comes, or is wanted."""
        body, stream.body = stream.body, bytearray()
        self.held_bytes -= len(body)
        self._buffers.give_back(len(body), is_proven=self.is_proven)
        return body

    def prove(self) -> None:
        """The client has shown the secret."""
        self.is_proven = True
        self._buffers.prove(self.held_bytes)
        self.stop()

    def stop(self) -> None:
        """Wait for nothing any more. Idempotent."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _expire(self) -> None:
        self._timer = None
        if self.held_bytes:
            self._late()
