"""Listens for HTTP: uvicorn, behind the gate that bounds and times what clients send."""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from typing import Final, Self

import uvicorn

from gateway_plugin.api.queues.paths import may_be_watch
from gateway_plugin.hooks.dispatcher import count_refusal
from signalbox.front.bounds import HttpBounds
from signalbox.front.front import Application, Front
from signalbox.front.sockets import SocketBounds
from signalbox.front.traffic import EDGE
from signalbox.program.errors import Misconfigured
from signalbox.wire.refused import RefusedConnections

_FOR_EVER_S: Final = 1_000_000  # a connection without a request is the gate's to close
_PING_S: Final = 10.0
_SOCKETS: Final = SocketBounds(may_open=may_be_watch, silence_s=3 * _PING_S, most_bytes=256 * 1024)
_FRAME_BYTES: Final = 4096
"""Largest frame of a client's: clients have nothing to say but pings."""


class _Server(uvicorn.Server):
    """A server in a program that handles its signals itself."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Capture no signals."""
        yield


class HttpServer:
    """A listening server. address: ``host:port`` really bound."""

    def __init__(self, server: uvicorn.Server, front: Front, address: str, serving: asyncio.Task[None]) -> None:
        self.address = address
        self._server = server
        self._front = front
        self._serving = serving

    @classmethod
    async def start(
        cls,
        app: Application,
        *,
        listen: str,
        bounds: HttpBounds | None = None,
        name: str = EDGE,
        has_proxy: bool = False,
        is_shared: bool = False,
    ) -> Self:
        """Listens on ``host:port`` (port 0: any) for any ASGI application.

        bounds, name, has_proxy: see :class:`Front`. is_shared: on a port that another process of ours may have as well.
        Raises :class:`Misconfigured` when the address cannot be had.
        """
        front = Front(bounds or HttpBounds(), refused=count_refusal, name=name, has_proxy=has_proxy, sockets=_SOCKETS)
        bare = uvicorn.Config(app, http="httptools", log_config=None)
        bare.load()
        is_listening = asyncio.Event()

        async def tell() -> None:
            is_listening.set()

        config = uvicorn.Config(
            front.app(app),
            http=front.protocol(bare.http_protocol_class),
            ws="websockets-sansio",
            ws_max_size=_FRAME_BYTES,
            ws_ping_interval=_PING_S,
            ws_ping_timeout=None,  # who is busy with what it got does not answer; who says nothing at all is cut
            ws_per_message_deflate=False,
            lifespan="off",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_keep_alive=_FOR_EVER_S,
            callback_notify=tell,
        )
        bound = _bind(listen, is_shared=is_shared)
        host, port = bound.getsockname()[:2]
        server = _Server(config)
        serving = asyncio.create_task(server.serve(sockets=[bound]), name="http")
        await is_listening.wait()
        address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        return cls(server, front, address, serving)

    def refused_connections(self) -> RefusedConnections | None:
        """Connections that are turned away; None while there is room."""
        return self._front.refused_connections()

    async def close(self, grace_s: float = 30.0) -> None:
        """Stops listening, lets requests in flight end for at most ``grace_s``, then cuts them."""
        self._front.drain()
        self._server.should_exit = True
        for listening in self._server.servers:
            listening.close()
        done, _ = await asyncio.wait([self._serving], timeout=grace_s)
        if not done:
            self._front.give_up()
        await self._serving
        self._front.give_up()  # of refused ones that linger the server's own list knows nothing


def _bind(listen: str, *, is_shared: bool) -> socket.socket:
    host, separator, port = listen.rpartition(":")
    if not separator or not port.isdigit():
        raise Misconfigured(f"{listen!r} is no address to listen on; write host:port")
    host = host.strip("[]")
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET)
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if is_shared:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        bound.bind((host, int(port)))
        bound.listen()  # a port that another took meanwhile is taken now
    except OSError as error:
        bound.close()
        raise Misconfigured(f"cannot listen on {listen}: {error.strerror}") from error
    bound.setblocking(False)
    return bound
