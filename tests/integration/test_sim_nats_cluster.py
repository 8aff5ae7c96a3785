"""What only a cluster does, asserted of three real servers and of the model of them."""

import asyncio
import random
import socket
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from signalbox import topology
from signalbox.bus import Bus
from signalbox.natsserver import NatsServer
from signalbox.settings import Wire
from tests.sim.cases.clusters import CLUSTER_CASES, patiently
from tests.sim.cases.rig import Case, Rig
from tests.sim.loop import EPOCH, running
from tests.sim.nats.bus import ModelBus
from tests.sim.nats.link import Link
from tests.sim.nats.server import Server

NUMBERED: Final = [(f"k{number:02}", each) for number, each in enumerate(CLUSTER_CASES)]
_REQUEST_S: Final = 15.0


class ModelCluster(Rig):
    """The model, with writes in flight, a lagging replica and elections."""

    def __init__(self, id_: str, seed: int) -> None:
        self.id = id_
        loop = asyncio.get_running_loop()
        self.server = Server(clock=lambda: EPOCH + loop.time(), rng=random.Random(seed))
        self.server.commit_s = 0.003
        self.server.stale_s = 0.05
        self.server.declare()
        self._buses: list[Bus] = []

    async def bus(self, **wire: float) -> Bus:
        settings = Wire(**{"request_timeout_s": _REQUEST_S, **wire})  # type: ignore[arg-type]  # all of them floats
        self._buses.append(await ModelBus(self.server, Link(self.server), settings=settings).open())
        return self._buses[-1]

    async def lose_leader(self, stream_name: str) -> None:
        assert stream_name in self.server.streams
        self.server.lose_leader(5.0)

    async def kill(self) -> None:
        raise NotImplementedError

    start = freeze = thaw = kill

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()


class RealCluster(Rig):
    """Three servers. The one that leads a stream is killed, and started again when the case is over."""

    def __init__(self, id_: str, servers: list[NatsServer]) -> None:
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

    async def lose_leader(self, stream_name: str) -> None:
        bus = self._buses[0]
        info = await patiently(lambda: bus.request_json(f"$JS.API.STREAM.INFO.{stream_name}"))
        leader = next(s for s in self._servers if s.name == info["cluster"]["leader"])
        await leader.kill()

    async def kill(self) -> None:
        raise NotImplementedError

    start = freeze = thaw = kill

    async def close(self) -> None:
        for bus in self._buses:
            await bus.close()
        for server in self._servers:
            if not server.pid:
                await server.start()


def _free_ports(count: int) -> list[int]:
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    ports = [int(each.getsockname()[1]) for each in sockets]
    for each in sockets:
        each.close()
    return ports


@asynccontextmanager
async def three() -> AsyncIterator[list[NatsServer]]:
    """Three servers with our topology, three replicas each."""
    routes = _free_ports(3)
    peers = ", ".join(f'"nats://127.0.0.1:{route}"' for route in routes)
    with tempfile.TemporaryDirectory(prefix="signalbox-nats-") as folder:
        servers = [
            NatsServer(
                Path(folder) / f"n{number}", name=f"n{number}", start_timeout_s=60.0,
                cluster=f"name: test, listen: 127.0.0.1:{route}, routes: [{peers}]",
            )
            for number, route in enumerate(routes)
        ]  # fmt: skip
        try:
            async with asyncio.TaskGroup() as group:
                for server in servers:
                    group.create_task(server.start())
            wire = Wire(nats_url=servers[0].url, connect_timeout_s=60.0, request_timeout_s=10.0)
            bus = await Bus.connect(wire, role="admin")
            try:
                await patiently(lambda: topology.apply(bus, 3))
            finally:
                await bus.close()
            yield servers
        finally:
            for server in servers:
                await server.stop()


async def everything(wanted: list[tuple[str, Case]]) -> dict[str, BaseException | None]:
    """Run cases one after the other on one cluster; what each of them raised."""
    outcomes: dict[str, BaseException | None] = {}
    async with three() as servers:
        for id_, each in wanted:
            rig = RealCluster(id_, servers)
            try:
                async with asyncio.timeout(100):
                    await each.run(rig)
                outcomes[each.name] = None
            except Exception as error:  # noqa: BLE001  reported by the case's own test
                outcomes[each.name] = error
            finally:
                await rig.close()
    return outcomes


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> dict[str, BaseException | None]:
    """What became of every real case that this run of pytest has selected."""
    chosen = {item.name for item in request.session.items}
    return asyncio.run(
        everything(
            [
                (id_, each)
                for id_, each in NUMBERED
                if f"test_three_servers_behave_so[{each.name}]" in chosen
            ]
        )
    )


@pytest.mark.parametrize(("id_", "each"), NUMBERED, ids=[each.name for _, each in NUMBERED])
@pytest.mark.parametrize("seed", range(5))
def test_the_model_of_a_cluster_behaves_so(id_: str, each: Case, seed: int) -> None:
    async def play() -> None:
        rig = ModelCluster(id_, seed)
        try:
            await each.run(rig)
        finally:
            await rig.close()

    with running(seed) as loop:
        loop.run_until_complete(play())


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(("id_", "each"), NUMBERED, ids=[each.name for _, each in NUMBERED])
def test_three_servers_behave_so(
    id_: str, each: Case, real: dict[str, BaseException | None]
) -> None:
    assert id_
    outcome = real[each.name]
    if outcome is not None:
        raise outcome
