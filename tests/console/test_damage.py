"""What NATS lost is said: jobs that no stream has any more, results, damaged blocks."""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from console.controller.reconciler import ConsoleReconciler
from console.jobs.models import Job
from console.live.database import unpublished
from console.projector.models import Damage
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire import messages
from signalbox.wire.names import Stream
from tests.console.conftest import in_thread
from tests.console.test_projector import accept, accepted, projecting, run_job, states, until
from tests.rigs.natsserver import NatsServer

pytestmark = pytest.mark.django_db(transaction=True)


def reconciler(bus: Bus) -> ConsoleReconciler:
    """One with the patience of the default settings: nothing here waits for it."""
    return ConsoleReconciler(bus, every_s=60, vanished_after_s=120)


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Bus]:
    made = await Bus.connect(Wire(nats_url=server.url), role="admin", name="test")
    try:
        yield made
    finally:
        await made.close()


def blocks_of(server: NatsServer, stream: str) -> list[Path]:
    """The files that hold a stream's messages."""
    (found,) = (server.folder / "store").rglob(f"streams/{stream}/msgs")
    return sorted(found.glob("*.blk"))


async def lose(bus: Bus, *streams: str) -> None:
    """A stream goes with all it holds, and is made again as ``up`` does."""
    for stream in streams:
        await bus.request_json(f"$JS.API.STREAM.DELETE.{stream}")
    await topology.apply(bus, first_seq=topology.numbers_from(time.time()))


def now(number: int) -> messages.Job:
    """A job of a test, accepted just now."""
    return replace(accepted(number), created_at=time.time(), deadline_at=time.time() + 900)


async def reported() -> dict[str, str]:
    """The alarms that the database knows of."""
    found = await unpublished()
    assert found is not None
    return {key: alarm.text for key, alarm in found.items()}


async def test_jobs_that_went_with_their_stream_end_at_once_and_are_counted(bus: Bus) -> None:
    lost, ended, later = now(1), now(2), now(3)
    await accept(bus, lost)
    await accept(bus, ended)
    async with projecting(bus):
        await run_job(bus, ended)
        await until(lambda: states() == {lost.id: "queued", ended.id: "succeeded"})
    assert await reported() == {}
    await lose(bus, Stream.JOBS)
    await accept(bus, later)
    async with projecting(bus):
        await until(lambda: states().get(later.id) == "queued")
    assert await reconciler(bus).settle_vanished_jobs() == 1
    row = await in_thread(Job.objects.get, pk=lost.id)
    assert (row.state, row.error_code) == ("failed", "input_lost")
    alarms = await reported()
    assert alarms.keys() == {"damage:JOBS", "damage:jobs"}
    assert "made again" in alarms["damage:JOBS"]
    assert alarms["damage:jobs"].startswith("1 accepted job was lost")


async def test_results_that_went_with_the_records_are_counted(bus: Bus) -> None:
    jobs = [now(number) for number in range(3)]
    for job in jobs:
        await accept(bus, job)
    async with projecting(bus):
        for job in jobs[:2]:
            await run_job(bus, job)
        await until(lambda: sorted(states().values()) == ["queued", "succeeded", "succeeded"])
    await lose(bus, Stream.STATE)
    async with projecting(bus):
        await until(Damage.objects.filter(pk="STATE").exists)
    alarms = await reported()
    assert alarms.keys() == {"damage:STATE"}
    assert "results of up to 2 ended jobs are gone" in alarms["damage:STATE"]
    assert await reconciler(bus).settle_vanished_jobs() == 0, "JOBS holds it yet"


async def test_records_cut_off_at_their_end_are_counted(own_nats: NatsServer) -> None:
    jobs = [now(number) for number in range(20)]
    async with connected(own_nats) as bus:
        for job in jobs:
            await run_job(bus, job)
        async with projecting(bus):
            await until(lambda: set(states().values()) == {"succeeded"} and len(states()) == 20)
    await own_nats.kill()
    block = blocks_of(own_nats, "STATE")[-1]
    with block.open("r+b") as file:
        file.truncate(block.stat().st_size // 2)
    await own_nats.start()
    async with connected(own_nats) as bus:
        async with projecting(bus):
            await until(Damage.objects.filter(pk="STATE").exists)
        found = await in_thread(Damage.objects.get, pk="STATE")
        assert "has lost its end: it had reached 40 and goes on at" in found.what
        records = await bus.request_json("$JS.API.STREAM.INFO.STATE", {"subjects_filter": ">"})
        kept = {subject.removeprefix("st.") for subject in records["state"]["subjects"]}
        assert found.results >= len({job.id for job in jobs} - kept) > 0


async def test_a_block_that_nats_cannot_read_is_told_on_the_board(own_nats: NatsServer) -> None:
    async with connected(own_nats) as bus:
        for number in range(20):
            await accept(bus, now(number))
        await reconciler(bus).note_damage()
        assert await reported() == {}
    await own_nats.kill()  # after an orderly end it looks at a block only when somebody reads it
    block = blocks_of(own_nats, "JOBS")[-1]
    data = bytearray(block.read_bytes())
    data[data.index(b"input", len(data) // 2)] ^= 0xFF  # a byte of what a job brought
    block.write_bytes(data)
    await own_nats.start()
    async with connected(own_nats) as bus:
        await reconciler(bus).note_damage()
        alarms = await reported()
        await reconciler(bus).note_damage()
        assert await reported() == alarms
    assert "are lost" in alarms["damage:JOBS"]
