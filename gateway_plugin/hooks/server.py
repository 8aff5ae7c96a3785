"""The gRPC server that the gateway calls, on a unix socket or a port, by the transport that the settings choose.

A new process listens before an old one drains. On a port both listen at once (SO_REUSEPORT). A unix socket is bound
under a name of its own and then renamed over the public one. Connections are asked to redial now and then: a server
that stops at once fails the calls just arriving, one that has been replaced first waits until its connections have
moved.
"""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol, Self

from gateway_plugin.hooks.dispatcher import Dispatcher
from gateway_plugin.settings import UNIX, GatewaySettings
from signalbox.program.errors import Misconfigured

_LONGEST: Final = 100
"""Longest path of a unix socket, in bytes; a little below what the kernel takes."""


class Transport(Protocol):
    """What takes calls and answers them."""

    async def bind(self, address: str) -> int:
        """Listen on ``unix:/path`` or ``host:port``; returns the port. Raises what keeps it from that."""

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once, let those in flight end for at most ``grace_s``. Idempotent."""


class PluginServer:
    """A listening server. address: what a client dials (``unix:/path`` or ``host:port``)."""

    def __init__(self, transport: Transport) -> None:
        self.address = ""
        self._transport = transport
        self._path = Path()
        self._inode = 0

    @classmethod
    async def start(cls, settings: GatewaySettings, dispatcher: Dispatcher, is_healthy: Callable[[], bool]) -> Self:
        """Listen on ``settings.listen``. Raises :class:`Misconfigured` when that cannot be had."""
        made: Transport
        if settings.transport == "native":
            from gateway_plugin.hooks.native.server import NativeServer

            made = NativeServer(settings, dispatcher, is_healthy)
        else:
            from gateway_plugin.hooks.aio import GrpcServer

            made = GrpcServer(settings, dispatcher, is_healthy)
        server = cls(made)
        try:
            await server._listen(settings.listen, int(settings.socket_mode, 8))
        except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: what gRPC raises for all of them
            raise Misconfigured(f"Cannot listen on {settings.listen}: {error}.") from error
        return server

    async def _listen(self, listen: str, mode: int) -> None:
        if not listen.startswith(UNIX):
            port = await self._transport.bind(listen)
            self.address = f"{listen.rpartition(':')[0]}:{port}"
            return
        path = Path(listen.removeprefix(UNIX))
        bound = path.with_name(f"{path.name}.{os.getpid()}")
        if len(str(bound)) > _LONGEST:
            raise OSError("the path is too long for a unix socket")
        bound.unlink(missing_ok=True)  # of a process that had our number and died
        await self._transport.bind(f"unix:{bound}")
        bound.chmod(mode)
        bound.rename(path)
        self._path, self._inode = path, _inode(path)
        self.address = f"unix:{path}"

    @property
    def is_replaced(self) -> bool:
        """Whether another process listens on our socket now, so that a client that redials reaches it."""
        return bool(self._inode) and _inode(self._path) not in {0, self._inode}

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once, let those in flight end for at most ``grace_s``. Idempotent."""
        if self._inode and _inode(self._path) == self._inode:
            self._path.unlink(missing_ok=True)
        self._inode = 0
        await self._transport.stop(grace_s)


def _inode(path: Path) -> int:
    try:
        return path.stat().st_ino
    except FileNotFoundError:
        return 0
