"""The declared topology on a real cluster of three servers, with a leader killed under it."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.names import Stream
from tests.rigs.natsserver import NatsServer
from tests.rigs.nodes import nodes, started

T = TypeVar("T")


@pytest.fixture
async def three(tmp_path: Path) -> AsyncIterator[list[NatsServer]]:
    servers = nodes([tmp_path / f"n{number}" for number in range(3)])
    await started(servers)
    try:
        yield servers
    finally:
        for server in servers:
            await server.stop()


async def test_a_cluster_takes_the_topology_and_outlives_a_leader(three: list[NatsServer]) -> None:
    wire = Wire(nats_url=",".join(server.url for server in three), request_timeout_s=5.0)
    bus = await Bus.connect(wire, role="admin")
    await _patiently(lambda: topology.apply(bus, 3))
    assert await topology.check(bus) == []
    assert await topology.apply(bus, 3) == []
    writer = bus.grouped(Stream.STATE)
    seqs = await asyncio.gather(*(writer.write(f"st.{n}", b"%d" % n, expect=0) for n in range(60)))
    assert writer.batches > 0
    info = await bus.request_json("$JS.API.STREAM.INFO.STATE")
    assert info["config"]["num_replicas"] == 3
    leader = next(server for server in three if server.name == info["cluster"]["leader"])
    await leader.kill()

    async def write_after() -> int:
        return await writer.write("st.after", b"x")  # one whose answer was lost may be stored

    assert await _patiently(write_after) > max(seqs)
    for number in range(60):
        stored = await _patiently(partial(bus.leader_get, Stream.STATE, f"st.{number}"))
        assert stored is not None
        assert stored.seq == seqs[number]
    await bus.close()


async def _patiently(act: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Repeat while the cluster elects: ten seconds are a fact of life."""
    async with asyncio.timeout(60):
        while True:
            try:
                return await act()
            except Unavailable:
                await asyncio.sleep(0.2)
