"""Reads a request's body, within its limit and within the bytes that its account may have in flight."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Final

from gateway_plugin.admission.pool import PoolShare

Receive = Callable[[], Awaitable[dict[str, Any]]]

_DRAIN_S: Final = 2.0
"""How long the rest of a refused body is read and dropped: closing on unread bytes would lose our answer."""


class BodyTooLargeError(Exception):
    """The body is above its limit."""


class ClientLeftError(Exception):
    """The connection ended before the request was complete."""


class RequestBody:
    """A request's body, still to come. Takes the framing header that no hook sees out of ``headers``."""

    def __init__(self, headers: dict[str, str], receive: Receive) -> None:
        declared = headers.get("Content-Length")
        self._declared = None if declared is None else int(declared)
        has_chunks = headers.pop("Transfer-Encoding", None) is not None
        self._is_awaited = "Expect" in headers
        self._receive = receive
        self.is_over = self._declared == 0 or (self._declared is None and not has_chunks)

    def require_within(self, limit: int) -> None:
        """Raise :class:`BodyTooLargeError` if the headers announce a larger body. limit: bytes, 0 = none."""
        if limit and self._declared is not None and self._declared > limit:
            raise BodyTooLargeError

    async def read(self, limit: int, share: PoolShare) -> bytes:
        """The whole of it. limit: bytes, 0 = none. share: what it is taken from, as soon as its size is known.

        Raises :class:`BodyTooLargeError`, :class:`ClientLeftError`, and as :meth:`PoolShare.take`.
        """
        if self.is_over:
            return b""
        self.require_within(limit)
        if self._declared is not None:
            share.take(self._declared)
        parts: list[bytes] = []
        size, has_more = 0, True
        while has_more:
            part, has_more = await self._part()
            size += len(part)
            if limit and size > limit:
                raise BodyTooLargeError
            if self._declared is None and part:
                share.take(len(part))
            parts.append(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)

    async def parts(self, limit: int) -> AsyncGenerator[bytes, None]:
        """The body in parts, as it comes. limit: bytes.

        Raises :class:`BodyTooLargeError` and :class:`ClientLeftError`.
        """
        self.require_within(limit)
        size, has_more = 0, not self.is_over
        while has_more:
            part, has_more = await self._part()
            size += len(part)
            if size > limit:
                raise BodyTooLargeError
            yield part

    async def skip(self) -> bool:
        """Throw away what still comes, for a while. Returns whether that was all, so that the connection can go on."""
        has_more = not self.is_over
        if self._is_awaited:
            return not has_more
        try:
            async with asyncio.timeout(_DRAIN_S):
                while has_more:
                    _, has_more = await self._part()
        except TimeoutError:
            return False
        return True

    async def _part(self) -> tuple[bytes, bool]:
        """What has come, and whether there is more."""
        message = await self._receive()
        if message["type"] == "http.disconnect":
            raise ClientLeftError
        has_more = bool(message.get("more_body"))
        self.is_over = not has_more
        return message["body"], has_more
