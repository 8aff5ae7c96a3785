"""Websockets of watches, with and without asyncio: the extra ``queues``, which nothing else of the client needs."""

import ssl
from contextlib import AsyncExitStack, ExitStack
from typing import Any, Final
from urllib.parse import urlsplit

from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as connect_async
from websockets.exceptions import ConnectionClosed, InvalidHandshake, InvalidStatus
from websockets.frames import CloseCode
from websockets.protocol import Protocol, State
from websockets.sync.client import ClientConnection as SyncConnection
from websockets.sync.client import connect

from signalbox.client.exchange import Closed, Receive, Response, Upgrade
from signalbox.program.errors import SignalboxError, Unavailable

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of one item with its tags."""
PING_S: Final = 10.0
"""How often a front is asked whether it is still there, and how long it may take to say so."""
CLOSE_S: Final = 2.0
"""How long a front may take to answer that the watch is closed."""
BROKEN: Final = Closed(1006, "")
_FAILURES: Final = (OSError, EOFError, InvalidHandshake)


class SyncSocket:
    """The websocket that was opened last."""

    def __init__(self, authorization: str, tls: ssl.SSLContext) -> None:
        self._authorization, self._tls = authorization, tls
        self._opened = ExitStack()
        self._socket: SyncConnection | None = None

    def open(self, effect: Upgrade) -> Response:
        """Open another one."""
        self.close()
        address = urlsplit(effect.target.url)
        options = _options(effect, self._authorization, self._tls) | {"address": (address.hostname, address.port)}
        try:
            self._socket = self._opened.enter_context(connect(_uri(effect), **options))
        except InvalidStatus as error:
            return _refused(error)
        except _FAILURES as error:
            raise _failed(effect, error) from error
        return Response(101, {})

    def receive(self, effect: Receive) -> bytes | Closed:
        """The next message."""
        assert self._socket is not None
        try:
            got = self._socket.recv()
        except ConnectionClosed as error:
            return _closed(error)
        return _message(got, effect, self._socket.protocol)

    def close(self) -> None:
        """Close it; its front gives back what was not committed. Idempotent."""
        self._opened.close()


class AsyncSocket:
    """The websocket that was opened last."""

    def __init__(self, authorization: str, tls: ssl.SSLContext) -> None:
        self._authorization, self._tls = authorization, tls
        self._opened = AsyncExitStack()
        self._socket: ClientConnection | None = None

    async def open(self, effect: Upgrade) -> Response:
        """Open another one."""
        await self.aclose()
        address = urlsplit(effect.target.url)
        options = _options(effect, self._authorization, self._tls) | {"host": address.hostname, "port": address.port}
        try:
            self._socket = await self._opened.enter_async_context(connect_async(_uri(effect), **options))
        except InvalidStatus as error:
            return _refused(error)
        except _FAILURES as error:
            raise _failed(effect, error) from error
        return Response(101, {})

    async def receive(self, effect: Receive) -> bytes | Closed:
        """The next message."""
        assert self._socket is not None
        try:
            got = await self._socket.recv()
        except ConnectionClosed as error:
            return _closed(error)
        return _message(got, effect, self._socket.protocol)

    async def aclose(self) -> None:
        """Close it; its front gives back what was not committed. Idempotent."""
        await self._opened.aclose()


def _options(effect: Upgrade, authorization: str, tls: ssl.SSLContext) -> dict[str, Any]:
    """What both kinds are opened with. The address is the front's own: the Host field may have a name of many."""
    headers = {"Authorization": authorization, **effect.request.headers}
    options: dict[str, Any] = {
        "additional_headers": headers,
        "compression": None,
        "proxy": None,
        "open_timeout": min(effect.timeout_s, 10.0),
        "ping_interval": PING_S,
        "ping_timeout": PING_S,
        "close_timeout": CLOSE_S,
        "max_size": MOST_BYTES,
    }
    if effect.target.url.startswith("https:"):
        options |= {"ssl": tls, "server_hostname": effect.target.name}
    return options


def _uri(effect: Upgrade) -> str:
    front = urlsplit(effect.target.url)
    scheme = "wss" if front.scheme == "https" else "ws"
    return f"{scheme}://{effect.target.authority}{front.path}{effect.request.path}"


def _message(got: str | bytes, effect: Receive, protocol: Protocol) -> bytes | Closed:
    """The message, unless the connection broke meanwhile: then its front gives the item to others."""
    is_whole = protocol.close_rcvd is not None and protocol.close_rcvd.code == CloseCode.NORMAL_CLOSURE
    if not (effect.keeps or is_whole or protocol.state is State.OPEN):
        return BROKEN
    return got if isinstance(got, bytes) else got.encode()


def _closed(error: ConnectionClosed) -> Closed:
    return BROKEN if error.rcvd is None else Closed(error.rcvd.code, error.rcvd.reason)


def _refused(error: InvalidStatus) -> Response:
    headers = {name.lower(): value for name, value in error.response.headers.raw_items()}
    return Response(error.response.status_code, headers, bytes(error.response.body or b""))


def _failed(effect: Upgrade, error: Exception) -> SignalboxError:
    return Unavailable(f"No front opens a watch at {effect.target.authority}: {str(error) or 'no answer'}.")
