"""What the plugin listens on, as its settings say: the hooks' socket, an edge, and the upstream's two ports."""

import asyncio
import contextlib
import stat
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway_plugin.gateway import Gateway
from gateway_plugin.hooks.server import PluginServer
from gateway_plugin.settings import PREFIX, UNIX, GatewaySettings
from gateway_plugin.upstream.grpc import GrpcUpstream
from signalbox.front.bounds import raise_descriptors
from signalbox.program.errors import Misconfigured

if TYPE_CHECKING:
    from gateway_plugin.edge.server import EdgeServer

_AGE_JITTER: Final = 1.2
"""gRPC makes a connection's age a tenth longer or shorter, and redialling takes a moment."""


class Listeners:
    """The listeners of one plugin."""

    def __init__(self, settings: GatewaySettings, gateway: Gateway) -> None:
        self._settings = settings
        self._gateway = gateway
        self._hooks: PluginServer | None = None
        self._grpc: GrpcUpstream | None = None
        self._http: EdgeServer | None = None
        self.edge: EdgeServer | None = None

    async def start(self) -> dict[str, str]:
        """Listen; returns the addresses by what listens there. Raises :class:`Misconfigured`."""
        settings, gateway = self._settings, self._gateway
        addresses = {}
        if settings.listen:
            _check_folder(settings.listen)
            self._hooks = await PluginServer.start(settings, gateway.dispatcher, lambda: gateway.is_healthy)
            addresses["listen"] = self._hooks.address
        if settings.edge_listen or settings.upstream_listen:
            raise_descriptors(settings, f"{PREFIX}HTTP_CONNECTIONS")
        if settings.edge_listen or settings.grpc_listen or settings.upstream_listen:
            addresses |= await self._start_upstream()
        return addresses

    async def _start_upstream(self) -> dict[str, str]:
        from gateway_plugin.edge.admit import Admission
        from gateway_plugin.edge.definition import SOURCE
        from gateway_plugin.edge.limits import KeyLimits
        from gateway_plugin.edge.server import EdgeServer

        settings, gateway = self._settings, self._gateway
        addresses = {}
        charged = Admission(KeyLimits(time.monotonic, time.time), time.time)
        upstream = gateway.http_upstream()
        if settings.edge_listen:
            self.edge = await EdgeServer.start(
                gateway.of_edge,
                listen=settings.edge_listen,
                folder=Path(settings.edge_files) if settings.edge_files else SOURCE,
                secret=settings.secret,
                bounds=settings,
                has_proxy=settings.trusted_proxies > 0,
                bodies=gateway.bodies,
                upstream=upstream,
                admission=charged,
            )
            addresses["edge"] = self.edge.address
        if settings.upstream_listen:
            self._http = await EdgeServer.serve(
                upstream, listen=settings.upstream_listen, bounds=settings, has_proxy=True, is_shared=True
            )
            addresses["upstream"] = self._http.address
        if settings.grpc_listen:
            self._grpc = gateway.grpc_upstream(None if settings.has_gateway else charged.admit)
            try:
                port = await self._grpc.bind(settings.grpc_listen)
            except RuntimeError as error:
                raise Misconfigured(f"Cannot listen on {settings.grpc_listen}: {error}.") from error
            addresses["grpc"] = f"{settings.grpc_listen.rpartition(':')[0]}:{port}"
        return addresses

    async def stop(self, grace_s: float) -> None:
        """Listen no more; calls in flight may go on for so long. Idempotent."""
        async with asyncio.TaskGroup() as group:
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
