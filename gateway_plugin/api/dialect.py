"""What a protocol of callers is to whatever brings a request: a hook's message, or a listener of this process."""

from collections.abc import AsyncGenerator, Sequence
from functools import lru_cache
from typing import Final, Protocol

from gateway_plugin.admission.pool import Pool
from gateway_plugin.jsonresponses import JsonResponse, StreamResponse
from gateway_plugin.request import Request
from signalbox.program.errors import SignalboxError
from signalbox.wire.keydocs import ApiKey

_HEAD: Final = 32
"""Characters of a path by which dialects differ."""


class Dialect(Protocol):
    """A protocol over HTTP."""

    @property
    def limit_bytes(self) -> int:
        """The largest body of a request."""

    def takes(self, head: str) -> bool:
        """Whether paths with this beginning are its own. head: of a path with its query, 32 characters."""

    def keyless(self, request: Request) -> JsonResponse | None:
        """The whole answer to a request that needs no key, whose body is not read; None for any other.

        Raises errors of ours.
        """

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse | StreamResponse:
        """The answer to a request whose key is good: all of it, or a stream. Raises errors of ours."""

    def refusal(self, error: SignalboxError, url: str = "") -> JsonResponse:
        """The answer that an error stands for. url: path and query of the request; empty = not readable."""


class Uploads(Protocol):
    """Takes bodies as they come, that are too large to be held."""

    @property
    def most_bytes(self) -> int:
        """The largest body."""

    def is_upload(self, request: Request) -> bool:
        """Whether a request's body is one. The request has none yet."""

    async def upload(self, request: Request, key: ApiKey, body: AsyncGenerator[bytes, None]) -> JsonResponse:
        """The answer to a request whose key is good. Raises errors of ours, and what ``body`` does."""


class Socket(Protocol):
    """What a websocket sends, from when it is open until it is closed. Frames that come are nothing to it."""

    async def next(self) -> bytes | None:
        """The next frame, as soon as there is one; None: there will be no more. Raises errors of ours."""

    def check(self, key: ApiKey) -> None:
        """Raise the error of ours that ends it. key: the caller's, as it is known now."""

    async def close(self) -> None:
        """Let go of what it holds."""


class Sockets(Dialect, Protocol):
    """A dialect that some requests speak over a websocket. places: what open ones are taken from."""

    @property
    def places(self) -> Pool:
        """One for each."""

    async def open(self, request: Request, key: ApiKey) -> Socket:
        """The websocket that a request asks for, whose key is good. Raises errors of ours."""


class Dialects:
    """Finds the dialect of a request: the first that takes its path; the last takes what is left, to refuse it."""

    def __init__(self, *dialects: Dialect) -> None:
        self._dialects: Sequence[Dialect] = dialects
        self._remembered = lru_cache(maxsize=1024)(self._of)

    def of(self, url: str) -> Dialect:
        """The dialect of a path, with its query or without."""
        return self._remembered(url[:_HEAD])

    def _of(self, head: str) -> Dialect:
        return next((one for one in self._dialects[:-1] if one.takes(head)), self._dialects[-1])
