"""The gRPC server that the gateway calls, on a unix socket or a port, by the transport that the settings choose.

A new process listens before an old one drains. On a port both listen at once (SO_REUSEPORT). A unix socket is bound
under a name of its own and then renamed over the public one. Connections are asked to redial now and then: a server
that stops at once fails the calls just arriving, one that has been replaced first waits until its connections have
moved.
"""

from collections.abc import Callable
from typing import Protocol

from gateway_plugin.hooks.dispatcher import Dispatcher
from gateway_plugin.settings import GatewaySettings


class PluginServer(Protocol):
    """A listening server. address: what a client dials (``unix:/path`` or ``host:port``)."""

    address: str

    @property
    def is_replaced(self) -> bool:
        """Whether another process listens on our socket now, so that a client that redials reaches it."""

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once, let those in flight end for at most ``grace_s``. Idempotent."""


async def start(settings: GatewaySettings, dispatcher: Dispatcher, is_healthy: Callable[[], bool]) -> PluginServer:
    """Listen on ``settings.listen``. Raises :class:`Misconfigured` when that cannot be had."""
    if settings.transport == "native":
        from gateway_plugin.hooks.native.server import NativeServer

        return await NativeServer.start(settings, dispatcher, is_healthy)
    from gateway_plugin.hooks.aio import GrpcServer

    return await GrpcServer.start(settings, dispatcher, is_healthy)
