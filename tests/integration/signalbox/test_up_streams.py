"""The streams of ``signalbox up``: what NATS comes back without is made again, said, and forgotten by every program."""

import asyncio
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.disk import Room
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.natskeeper import NatsKeeper
from signalbox.ops.up.streams import Streams
from signalbox.program.settings import Wire
from tests.integration.signalbox.test_core_topology import files_of
from tests.rigs.natsserver import NatsServer


class Kept:
    """Streams that are kept, with what they said, and what there was when programs were ended and started again."""

    def __init__(self, bus: Bus, data: DataDir) -> None:
        self.bus = bus
        self.said: list[str] = []
        self.ended: list[dict[str, int]] = []
        self.started: list[dict[str, int]] = []
        self.data = data
        self.keeper = NatsKeeper(Room(data.path, 0), self.said.append)
        self.streams = Streams(
            bus, data, self.keeper, storage_bytes=2**30, say=self.said.append, without_programs=self._without_programs
        )

    @asynccontextmanager
    async def _without_programs(self) -> AsyncIterator[None]:
        self.ended.append(await topology.last_sequences(self.bus))
        yield
        self.started.append(await topology.last_sequences(self.bus))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[NatsServer]:
    async with NatsServer(tmp_path / "nats") as made:
        yield made


@pytest.fixture
async def kept(server: NatsServer, tmp_path: Path) -> AsyncIterator[Kept]:
    bus = await Bus.connect(Wire(nats_url=server.url), role="admin", name="up")
    with DataDir(tmp_path / "data") as data:
        made = Kept(bus, data)
        await made.streams.make()
        assert made.said == []
        task = asyncio.create_task(made.streams.keep())
        yield made
        task.cancel()
        await asyncio.wait([task])
        await bus.close()


async def until_said(kept: Kept, words: str) -> None:
    async with asyncio.timeout(60):
        while not any(words in line for line in kept.said):  # noqa: ASYNC110  a list has no event
            await asyncio.sleep(0.02)


async def noted(kept: Kept) -> int:
    """How far the leases are noted to be once two looks have been taken."""
    for _ in range(2):
        await kept.keeper.check(kept.bus)
    kept.streams.note()
    return int(kept.data.read_json("streams.json")["KV_leases"])


async def test_what_nats_comes_back_without_is_made_again(server: NatsServer, kept: Kept) -> None:
    before = await kept.bus.write("st.1", b"{}", expect=0)
    await server.stop()
    shutil.rmtree(files_of(server, "STATE"))
    await server.start()
    await until_said(kept, "NATS has lost all that STATE held")
    (ended,), (started,) = kept.ended, kept.started
    assert "STATE" not in ended, "programs forget before it is there again"
    assert started["STATE"] > before, "and begin only then"
    assert await kept.bus.write("st.1", b"{}", expect=0) > before
    await topology.require(kept.bus)


async def test_leases_that_lost_their_end_are_numbered_anew(server: NatsServer, kept: Kept) -> None:
    tokens = [await kept.bus.write(f"$KV.leases.gpu{n}", b"{}", expect=0) for n in range(20)]
    await noted(kept)
    await server.kill()
    (block,) = (files_of(server, "KV_leases") / "msgs").glob("*.blk")
    with block.open("r+b") as file:
        file.truncate(block.stat().st_size // 2)
    await server.start()
    await until_said(kept, "KV_leases has lost its end")
    async with asyncio.timeout(60):
        while not kept.started:  # noqa: ASYNC110  a list has no event
            await asyncio.sleep(0.02)
    assert await kept.bus.write("$KV.leases.gpu1", b"{}", expect=0) > max(tokens)
    (ended,), (started,) = kept.ended, kept.started
    assert ended["KV_leases"] < max(tokens)
    assert started["KV_leases"] > max(tokens), "no program writes under the former numbers"


async def test_what_nats_tells_after_a_fault_of_its_disk_is_not_noted(kept: Kept) -> None:
    """Its last sequence counts the write that failed, which would be a loss at the next start."""
    token = await kept.bus.write("$KV.leases.gpu", b"{}", expect=0)
    await kept.keeper.check(kept.bus)
    kept.streams.note()
    assert kept.data.read_json("streams.json")["KV_leases"] < token, "seen once may be too late"
    assert await noted(kept) == token
    kept.keeper.receive(b"[ERR] JetStream stream KV_leases critical write error\n")
    await asyncio.sleep(0)  # it may be told from another thread
    await kept.bus.write("$KV.leases.gpu", b"{}", expect=token)
    assert await noted(kept) == token
