"""What only a cluster does, asserted of three real servers and of the model of them."""

import asyncio
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from tests.rigs.nodes import nodes, started
from verification.simulation.cases.clusters import CLUSTER_CASES, patiently
from verification.simulation.cases.playing import in_virtual_time, outcome, selected
from verification.simulation.cases.rig import Case
from verification.simulation.cases.rigs import ModelRig, RealRig

NUMBERED: Final = [(f"k{number:02}", each) for number, each in enumerate(CLUSTER_CASES)]


class ModelCluster(ModelRig):
    """The model, with writes in flight, a lagging replica and elections."""

    def __init__(self, id_: str, seed: int) -> None:
        super().__init__(id_, seed, commit_s=0.003, stale_s=0.05)

    async def lose_leader(self, stream_name: str) -> None:
        assert stream_name in self.server.streams
        self.server.lose_leader(5.0, away_s=60.0)


class RealCluster(RealRig):
    """Three servers. The one that leads a stream is killed, and started again when the case is over."""

    async def lose_leader(self, stream_name: str) -> None:
        bus = self._buses[0]
        info = await patiently(lambda: bus.request_json(f"$JS.API.STREAM.INFO.{stream_name}"))
        leader = next(s for s in self._servers if s.name == info["cluster"]["leader"])
        await leader.kill()

    async def close(self) -> None:
        await super().close()
        for server in self._servers:
            if not server.pid:
                await server.start()


@asynccontextmanager
async def three() -> AsyncIterator[list[NatsServer]]:
    """Three servers with our topology, three replicas each."""
    with tempfile.TemporaryDirectory(prefix="signalbox-nats-") as folder:
        servers = nodes([Path(folder) / f"n{number}" for number in range(3)])
        try:
            await started(servers)
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


async def everything(wanted: list[tuple[str, Case]]) -> dict[str, Exception | None]:
    """Run cases one after the other on one cluster; what each of them raised."""
    async with three() as servers:
        return {each.name: await outcome(RealCluster(id_, *servers), each.run, 100) for id_, each in wanted}


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest) -> dict[str, Exception | None]:
    """What became of every real case that this run of pytest has selected."""
    return asyncio.run(everything(selected(request, "test_three_servers_behave_so", NUMBERED)))


@pytest.mark.parametrize(("id_", "each"), NUMBERED, ids=[each.name for _, each in NUMBERED])
@pytest.mark.parametrize("seed", range(5))
def test_the_model_of_a_cluster_behaves_so(id_: str, each: Case, seed: int) -> None:
    in_virtual_time(lambda: ModelCluster(id_, seed), each.run, seed)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("name", [each.name for each in CLUSTER_CASES])
def test_three_servers_behave_so(name: str, real: dict[str, Exception | None]) -> None:
    if (error := real[name]) is not None:
        raise error
