"""What is declared is what runs, and every difference is named."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus, Delivery
from signalbox.bus.transport.connection import Connection
from signalbox.jobs import payloads
from signalbox.jobs.queues import Position, Queues
from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire
from signalbox.wire import assets
from signalbox.wire.events import is_removal
from signalbox.wire.names import Stream, consumer
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import counted


async def test_applying_twice_changes_nothing(bus: Bus) -> None:
    assert await topology.apply(bus) == []
    assert await topology.check(bus) == []
    await topology.require(bus)


async def test_each_difference_is_named(bus: Bus) -> None:
    state = await bus.request_json("$JS.API.STREAM.INFO.STATE")
    await bus.request_json("$JS.API.STREAM.UPDATE.STATE", state["config"] | {"allow_direct": False})
    await bus.request_json("$JS.API.STREAM.DELETE.DLQ")
    faults = await topology.check(bus)
    assert "STATE: allow_direct is not set, declared True" in faults or (
        "STATE: allow_direct is False, declared True" in faults
    )
    assert "stream DLQ does not exist" in faults
    with pytest.raises(Misconfigured, match="signalbox topology apply"):
        await topology.require(bus)
    assert sorted(await topology.apply(bus)) == ["changed STATE", "created DLQ"]
    assert await topology.check(bus) == []


async def test_an_old_server_is_refused(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Connection, "server_version", "2.11.9")
    with pytest.raises(Misconfigured, match=r"2\.11\.9 is too old"):
        await topology.check(bus)


async def test_events_keep_every_lease_and_ticket_and_no_job(bus: Bus) -> None:
    """Captured subjects would lose compare-and-set and TTL; sourced ones do not."""
    lease = await bus.write("$KV.leases.gpu", b"{}", expect=0, ttl_s=20)
    await _sourced(bus, 1)  # on a busy machine it would be overwritten before it is read
    await bus.write("$KV.leases.gpu", b"{}", expect=lease, ttl_s=20)
    ticket = await bus.write("$KV.waiters.gpu.w", b"{}", expect=0, ttl_s=20)
    await _sourced(bus, 3)
    purge = {"KV-Operation": "PURGE", "Nats-Rollup": "sub"}
    await bus.grouped(Stream.JOBS).write("jobs.m.hi.1", b"in", expect=0)
    await bus.grouped(Stream.STATE).write("st.1", expect=0)
    await bus.write("$KV.waiters.gpu.w", expect=ticket, ttl_s=10, headers=purge)
    found = await _reported(bus, 4)
    assert sorted((d.subject, is_removal(d.headers)) for d in found) == [
        ("evt.kv.leases.gpu", False),
        ("evt.kv.leases.gpu", False),
        ("evt.kv.waiters.gpu.w", False),
        ("evt.kv.waiters.gpu.w", True),
    ]
    assert len(found) == (await bus.request_json("$JS.API.STREAM.INFO.EVENTS"))["state"]["messages"]


async def test_how_long_letters_and_history_are_kept_is_the_operators_to_say(nats: NatsServer) -> None:
    """The program that applies it says so; no other has to know, but that nothing is kept for ever."""
    shorter = Wire(nats_url=nats.url, dead_letters_kept_s=70.0, history_kept_s=3600.0)
    bus = await Bus.connect(shorter, role="admin")
    first = " ".join(await topology.apply(bus))
    assert all(name in first for name in ("DLQ", "DLQ_PARTS", "EVENTS"))
    ages = {
        name: (await bus.request_json(f"$JS.API.STREAM.INFO.{name}"))["config"]["max_age"] / assets.SECOND
        for name in assets.AGES
    }
    week = dict.fromkeys(("RESULTS", "DELIVERIES", "FILES"), 7 * 86_400)
    assert ages == {"DLQ": 70, "DLQ_PARTS": 75, "PAYLOADS": 86_400, "EVENTS": 3600, **week}
    usual = await Bus.connect(Wire(nats_url=nats.url), role="admin")
    assert await topology.check(usual) == []
    assert await topology.apply(usual) == ["changed DLQ", "changed DLQ_PARTS", "changed EVENTS"]
    letters = (await bus.request_json("$JS.API.STREAM.INFO.DLQ"))["config"]
    await bus.request_json("$JS.API.STREAM.UPDATE.DLQ", letters | {"max_age": 0})
    assert [fault.split(":")[0] for fault in await topology.check(usual)] == ["DLQ"]
    await bus.close()
    await usual.close()


@asynccontextmanager
async def connected(server: NatsServer) -> AsyncIterator[Bus]:
    """A connection that ends before the server does."""
    made = await Bus.connect(Wire(nats_url=server.url), role="admin", name="test")
    try:
        yield made
    finally:
        await made.close()


def files_of(server: NatsServer, stream: str) -> Path:
    """Where the server keeps a stream."""
    (found,) = (server.folder / "store").rglob(f"streams/{stream}")
    return found


async def last_of(bus: Bus, stream: str) -> int:
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
    return int(info["state"]["last_seq"])


async def test_a_stream_made_again_counts_on_and_events_go_on_reading_it(own_nats: NatsServer) -> None:
    """Else a fencing token would be given twice, and EVENTS wait for the number it had read up to."""
    lost = ("KV_leases", "JOBS", "STATE")
    async with connected(own_nats) as bus:
        for revision in range(3):
            await bus.write("$KV.leases.gpu", b"{}", expect=revision)
            await _sourced(bus, revision + 1)
        await bus.write("st.1", b"{}", expect=0)
        before = {name: await last_of(bus, name) for name in lost}
    await own_nats.stop()
    for name in lost:
        shutil.rmtree(files_of(own_nats, name))
    await own_nats.start()
    async with connected(own_nats) as bus:
        done = await topology.apply(bus, first_seq=topology.numbers_from(time.time()))
        assert done[:3] == ["created JOBS", "created STATE", "numbered DLQ"]
        assert done[-1] == "connected EVENTS"
        assert await topology.check(bus) == []
        assert await topology.apply(bus, first_seq=topology.numbers_from(time.time())) == []
        for name in lost:
            assert await last_of(bus, name) > before[name]
        assert await bus.write("$KV.leases.gpu", b"{}", expect=0) > before["KV_leases"]
        await _sourced(bus, 4)
        counted = {name: await last_of(bus, name) for name in lost}
    await own_nats.kill()
    await own_nats.start()
    async with connected(own_nats) as bus:  # a killed server knows where it was
        assert {name: await last_of(bus, name) for name in lost} == counted


async def test_a_stream_that_lost_only_its_description_keeps_its_jobs(own_nats: NatsServer) -> None:
    async with connected(own_nats) as bus:
        seq = await bus.write("jobs.m.hi.t.s.1", b"in", expect=0)
    await own_nats.stop()
    (files_of(own_nats, "JOBS") / "meta.inf").unlink()
    await own_nats.start()
    async with connected(own_nats) as bus:
        done = await topology.apply(bus, first_seq=topology.numbers_from(time.time()))
        assert "created JOBS" in done
        assert await topology.check(bus) == []
        found = await bus.leader_get(Stream.JOBS, "jobs.m.hi.t.s.1")
        assert found is not None
        assert (found.seq, found.data) == (seq, b"in")


async def test_a_stream_that_was_emptied_counts_on(own_nats: NatsServer) -> None:
    async with connected(own_nats) as bus:
        before = await bus.write("jobs.m.hi.t.s.1", b"in", expect=0)
    await own_nats.stop()
    shutil.rmtree(files_of(own_nats, "JOBS") / "msgs")
    await own_nats.start()
    async with connected(own_nats) as bus:
        assert await last_of(bus, "JOBS") == 0
        done = await topology.apply(bus, first_seq=topology.numbers_from(time.time()))
        assert "numbered JOBS" in done
        seq = await bus.write("jobs.m.hi.t.s.2", b"in", expect=0)
        assert seq > before
        later = await bus.write("jobs.m.hi.t.s.3", b"in", expect=0)
        await bus.write("jobs.m.hi.t.s.4", b"in", expect=0)
        await counted(bus, "m", "hi", waiting=3)
        assert await Queues(bus, tuple).position("m", "hi", later) == Position(1)
        taken: asyncio.Queue[Delivery] = asyncio.Queue()
        puller = await bus.pull(consumer("m", "hi", 0), taken.put_nowait, stream=Stream.JOBS)
        puller.ask(1, expires_s=60)
        assert (await asyncio.wait_for(taken.get(), 60)).seq == seq
        await puller.close()


async def _sourced(bus: Bus, count: int) -> None:
    """Return when ``EVENTS`` holds so many; the server sends no event."""
    async with asyncio.timeout(60):
        while True:
            info = await bus.request_json("$JS.API.STREAM.INFO.EVENTS")
            if info["state"]["messages"] >= count:
                return
            await asyncio.sleep(0.01)


async def _reported(bus: Bus, count: int) -> list[Delivery]:
    """The first so many messages in EVENTS."""
    found: list[Delivery] = []
    all_here = asyncio.Event()

    def keep(delivery: Delivery) -> None:
        found.append(delivery)
        if len(found) == count:
            all_here.set()

    name = f"reader{count}"
    config = {"durable_name": name, "ack_policy": "none"}
    await bus.request_json(f"$JS.API.CONSUMER.CREATE.EVENTS.{name}", {"stream_name": "EVENTS", "config": config})
    puller = await bus.pull(name, keep, stream=Stream.EVENTS)
    puller.ask(1000)
    async with asyncio.timeout(60):
        await all_here.wait()
    await puller.close()
    return found


async def test_a_stream_is_not_made_smaller_than_what_it_holds(bus: Bus) -> None:
    """``PAYLOADS`` drops its oldest where it is full."""
    await topology.apply(bus, storage_bytes=1024**3)
    old = await payloads.store(bus, "shop", "j", "out1", bytes(4 * 1024**2))
    for _ in range(2):
        await topology.apply(bus, storage_bytes=16 * 1024**2)
        assert await payloads.fetch(bus, old) == bytes(4 * 1024**2)
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.PAYLOADS}")
    await topology.apply(bus, storage_bytes=16 * 1024**2)
    config = (await bus.request_json("$JS.API.STREAM.INFO.PAYLOADS"))["config"]
    assert config["max_bytes"] == int(16 * 1024**2 * assets.SHARES[Stream.PAYLOADS])


async def test_events_that_are_connected_again_keep_what_they_hold(bus: Bus) -> None:
    """Where their share became smaller the oldest would go."""
    revision = 0
    for count in range(20):
        revision = await bus.write("$KV.leases.gpu", bytes(50_000), expect=revision)
        await _sourced(bus, count + 1)
    await bus.request_json("$JS.API.STREAM.DELETE.KV_waiters")
    done = await topology.apply(bus, storage_bytes=16 * 1024**2)
    assert done[-1] == "connected EVENTS"
    state = (await bus.request_json("$JS.API.STREAM.INFO.EVENTS"))["state"]
    assert state["messages"] == 20


def test_shares_of_the_disk_add_up() -> None:
    assert 0.95 < sum(assets.SHARES.values()) <= 1


def test_an_inline_body_fits_its_stream() -> None:
    assert assets.JOB_MAX_BYTES > 1_000_000 + 40_000
