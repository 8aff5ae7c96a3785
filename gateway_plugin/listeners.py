"""What the plugin listens on, as its settings say: the hooks' socket, an edge, and the upstream's two ports."""

import asyncio
import contextlib
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway_plugin.gateway import Gateway
from gateway_plugin.hooks.server import PluginServer
from gateway_plugin.settings import PREFIX, UNIX, GatewaySettings
from gateway_plugin.upstream.grpc import GrpcUpstream
from signalbox.front.bounds import raise_descriptors
from signalbox.front.traffic import EDGE, UPSTREAM
from signalbox.program.errors import Misconfigured
from signalbox.program.tasks import TaskGroup

if TYPE_CHECKING:
    from gateway_plugin.upstream.server import HttpServer

_AGE_JITTER: Final = 1.2
"""gRPC makes a connection's age a tenth longer or shorter, and redialling takes a moment."""


class Listeners:
    """The listeners of one plugin."""

    def __init__(self, settings: GatewaySettings, gateway: Gateway) -> None:
        self._settings = settings
        self._gateway = gateway
        self._hooks: PluginServer | None = None
        self._grpc: GrpcUpstream | None = None
        self._http: HttpServer | None = None
        self.edge: HttpServer | None = None

    async def start(self) -> dict[str, str]:
        """Listen; returns the addresses by what listens there. Raises :class:`Misconfigured`."""
        settings, gateway = self._settings, self._gateway
        addresses = {}
        if settings.listen:
            _check_folder(settings.listen)
            self._hooks = await PluginServer.start(settings, gateway.dispatcher, lambda: gateway.is_healthy)
            addresses["listen"] = self._hooks.address
        if settings.edge_listen:
            self.edge = await self._start_http(settings.edge_listen, is_front=True)
            addresses["edge"] = self.edge.address
        if settings.upstream_listen:
            self._http = await self._start_http(settings.upstream_listen, is_front=False)
            addresses["upstream"] = self._http.address
        if settings.grpc_listen:
            addresses["grpc"] = await self._start_grpc(settings.grpc_listen)
        return addresses

    async def _start_http(self, listen: str, *, is_front: bool) -> "HttpServer":
        """The dialects over HTTP: for callers themselves, or for the gateway before them."""
        from gateway_plugin.upstream.server import HttpServer

        settings = self._settings
        raise_descriptors(settings, f"{PREFIX}HTTP_CONNECTIONS")
        return await HttpServer.start(
            self._gateway.http_upstream(is_front=is_front),
            listen=listen,
            bounds=settings,
            name=EDGE if is_front else UPSTREAM,
            has_proxy=not is_front or settings.trusted_proxies > 0,
            is_shared=not is_front,
        )

    async def _start_grpc(self, listen: str) -> str:
        self._grpc = self._gateway.grpc_upstream(is_front=not self._settings.has_gateway)
        try:
            port = await self._grpc.bind(listen)
        except RuntimeError as error:
            raise Misconfigured(f"Cannot listen on {listen}: {error}.") from error
        return f"{listen.rpartition(':')[0]}:{port}"

    async def stop(self, grace_s: float) -> None:
        """Listen no more; calls in flight may go on for so long. Idempotent."""
        async with TaskGroup() as group:
            if self._hooks is not None:
                group.create_task(self._hooks.stop(grace_s))
            if self._grpc is not None:
                group.create_task(self._grpc.stop(grace_s))
            for server in filter(None, (self.edge, self._http)):
                group.create_task(server.close(grace_s))

    async def replaced(self) -> None:
        """Return once the gateway has redialled, where another plugin listens in the place of this one."""
        if self._hooks is not None and self._hooks.is_replaced:
            await asyncio.sleep(self._settings.max_connection_age_s * _AGE_JITTER)


def _check_folder(listen: str) -> None:
    """Raise :class:`Misconfigured` if another user could replace our socket with one of their own."""
    if not listen.startswith(UNIX):
        return
    folder = Path(listen.removeprefix(UNIX)).parent
    with contextlib.suppress(OSError):  # a folder that is not there is the server's to report
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Misconfigured(f"Every user may write to {folder}, and so replace the plugin's socket; chmod o-w.")
