"""Serves the edge: uvicorn's HTTP protocol on httptools, without its server's ticking loop."""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, Self

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from gateway_plugin.dispatcher import count_refusal
from gateway_plugin.edge.app import BAD_HTTP, EXCHANGE, Call, Edge
from gateway_plugin.edge.definition import SOURCE, load
from signalbox.errors import Misconfigured

_BACKLOG: Final = 2048
_CLOSING: Final = b"Connection: close\r\n\r\n"


class ClientExchange:
    """One request and its answer, on top of uvicorn's cycle of the same."""

    __slots__ = ("_caller", "_connection", "_cycle", "is_given_up")

    def __init__(self, connection: "ClientConnection", cycle: RequestResponseCycle) -> None:
        self._connection = connection
        self._cycle = cycle
        self._caller: asyncio.Task[Any] | None = None
        self.is_given_up = False

    def begin(self) -> None:
        """The calling task answers this request."""
        self._caller = asyncio.current_task()
        self._connection.in_hand = self

    def end(self) -> None:
        """It does no more but send."""
        self._caller = None
        self._connection.in_hand = None

    def give_up(self) -> None:
        """Cancels that task and closes the connection without a word."""
        self.is_given_up = True
        self._cycle.disconnected = True
        self._cycle.transport.abort()
        if self._caller is not None:
            self._caller.cancel()

    async def respond(self, head: bytes, body: bytes) -> None:
        """Sends one whole answer in one write: uvicorn's own way takes two, and looks at each header."""
        cycle = self._cycle
        if cycle.flow.write_paused and not cycle.disconnected:
            await cycle.flow.drain()
        if cycle.disconnected:
            return
        is_closing_said = b"\r\nConnection: close\r\n" in head
        if is_closing_said:
            cycle.keep_alive = False
        end = b"\r\n" if cycle.keep_alive or is_closing_said else _CLOSING
        if cycle.scope["method"] == "HEAD":
            body = b""
        cycle.response_started = cycle.response_complete = True
        cycle.waiting_for_100_continue = False
        cycle.transport.write(head + end + body)
        cycle.message_event.set()
        if not cycle.keep_alive:
            cycle.transport.close()
        cycle.on_response()


class ClientConnection(HttpToolsProtocol):
    """uvicorn's protocol, which also ends the task of a request whose client goes away.

    in_hand: the exchange whose task is at work, while there is one.
    """

    in_hand: ClientExchange | None = None

    def on_headers_complete(self) -> None:
        """A request begins; its task, which starts after this, finds its exchange in the scope."""
        super().on_headers_complete()
        self.scope[EXCHANGE] = ClientExchange(self, self.cycle)  # type: ignore[typeddict-unknown-key]

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP."""
        count_refusal(BAD_HTTP)
        super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left; the plugin need not go on for it."""
        super().connection_lost(exc)
        if self.in_hand is not None:
            self.in_hand.give_up()


class EdgeServer:
    """A listening edge. address: ``host:port`` really bound."""

    def __init__(self, server: asyncio.Server, state: ServerState, address: str) -> None:
        self.address = address
        self._server = server
        self._state = state

    @classmethod
    async def start(
        cls, call: Call, *, listen: str, folder: Path = SOURCE, secret: str = ""
    ) -> Self:
        """Listens on ``host:port`` (port 0: any) with the files of ``folder``.

        secret: see :func:`gateway_plugin.edge.definition.load`. Raises Misconfigured when the files or the
        address do not do.
        """
        front = load(folder, secret=secret)
        return await cls.serve(Edge(front, call), listen=listen, idle_s=front.idle_s)

    @classmethod
    async def serve(cls, app: Callable[..., Any], *, listen: str, idle_s: float) -> Self:
        """Listens for any ASGI application. idle_s: how long an idle connection is kept."""
        config = uvicorn.Config(
            app,
            ws="none",
            lifespan="off",
            log_config=None,
            access_log=False,
            date_header=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=int(idle_s),
        )
        config.load()
        state = ServerState()
        loop = asyncio.get_running_loop()
        bound = _bind(listen)
        server = await loop.create_server(
            lambda: ClientConnection(config=config, server_state=state, app_state={}, _loop=loop),
            sock=bound,
            backlog=_BACKLOG,
        )
        host, port = bound.getsockname()[:2]
        return cls(server, state, f"[{host}]:{port}" if ":" in host else f"{host}:{port}")

    async def close(self, grace_s: float = 30.0) -> None:
        """Stops listening, lets requests in hand end for at most ``grace_s``, then cuts them."""
        self._server.close()
        for connection in list(self._state.connections):
            connection.shutdown()
        try:
            async with asyncio.timeout(grace_s):
                while self._state.tasks:
                    await asyncio.wait(set(self._state.tasks))
        except TimeoutError:
            for connection in list(self._state.connections):
                if isinstance(connection, ClientConnection) and connection.in_hand is not None:
                    connection.in_hand.give_up()
        for connection in list(self._state.connections):
            connection.transport.close()
        await self._server.wait_closed()


def _bind(listen: str) -> socket.socket:
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isdigit():
        raise Misconfigured(f"{listen!r} is no address to listen on; write host:port")
    host = host.strip("[]")
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind((host, int(port)))
    except OSError as error:
        bound.close()
        raise Misconfigured(f"cannot listen on {listen}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
