"""The two rigs a case runs on: the model in virtual time, and a real nats-server."""

import asyncio
import os
import random
import signal
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import stop
from verification.simulation.cases.rig import CaseRig
from verification.simulation.loop import EPOCH
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.nats.server import Server

_REQUEST_S: Final = 15.0


class ModelRig(CaseRig):
    """A case's view of the model. commit_s, stale_s: see :class:`Server`; above 0 it is one of a cluster."""

    def __init__(self, id_: str, seed: int, *, commit_s: float = 0.0, stale_s: float = 0.0) -> None:
        self.id = id_
        loop = asyncio.get_running_loop()
        self.server = Server(clock=lambda: EPOCH + loop.time(), rng=random.Random(seed))
        self.server.commit_s, self.server.stale_s = commit_s, stale_s
        self.server.declare()
        self._buses: list[Bus] = []

    async def bus(self, **wire: float) -> Bus:
        settings = Wire(**{"request_timeout_s": _REQUEST_S, **wire})  # type: ignore[arg-type]  # all of them floats
        link = Link(self.server)
        self._buses.append(await ModelBus(self.server, link, settings=settings).open())
        return self._buses[-1]

    async def kill(self) -> None:
        self.server.kill()

    async def start(self) -> None:
        self.server.start()

    async def freeze(self) -> None:
        self.server.pause()

    async def thaw(self) -> None:
        self.server.resume()

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


class RealRig(CaseRig):
    """A case's view of a nats-server, or of a cluster of them."""

    def __init__(self, id_: str, *servers: NatsServer) -> None:
        self.id = id_
        self._servers = servers
        self._buses: list[Bus] = []

    async def bus(self, **wire: float) -> Bus:
        settings = Wire(
            nats_url=",".join(server.url for server in self._servers),
            connect_timeout_s=60.0,
            **{"request_timeout_s": _REQUEST_S, **wire},  # type: ignore[arg-type]  # all of them floats
        )
        self._buses.append(await Bus.connect(settings, role="admin", name=self.id))
        return self._buses[-1]

    @property
    def _only(self) -> NatsServer:
        """The server of a case that has one to itself."""
        (server,) = self._servers
        return server

    async def kill(self) -> None:
        await self._only.kill()

    async def start(self) -> None:
        await self._only.start()

    async def freeze(self) -> None:
        await stop(self._only.pid)

    async def thaw(self) -> None:
        os.kill(self._only.pid, signal.SIGCONT)

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


@asynccontextmanager
async def declared() -> AsyncIterator[NatsServer]:
    """A nats-server with our topology."""
    with tempfile.TemporaryDirectory(prefix="signalbox-nats-") as folder:
        async with NatsServer(Path(folder), start_timeout_s=60.0) as server:
            wire = Wire(nats_url=server.url, connect_timeout_s=60.0, request_timeout_s=_REQUEST_S)
            bus = await Bus.connect(wire, role="admin")
            try:
                await topology.apply(bus)
            finally:
                await bus.close()
            yield server
