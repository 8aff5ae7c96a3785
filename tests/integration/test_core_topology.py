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
from signalbox.jobs import delivery, payloads
from signalbox.jobs.queues import Position, Queues
from signalbox.program.errors import Misconfigured
from signalbox.program.settings import Wire
from signalbox.wire import assets
from signalbox.wire.events import is_removal
from signalbox.wire.names import Priority, Stream, consumer
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
    found = await _told(bus, 4)
    assert sorted((d.subject, is_removal(d.headers)) for d in found) == [
        ("evt.kv.leases.gpu", False),
        ("evt.kv.leases.gpu", False),
        ("evt.kv.waiters.gpu.w", False),
        ("evt.kv.waiters.gpu.w", True),
    ]
    assert len(found) == (await bus.request_json("$JS.API.STREAM.INFO.EVENTS"))["state"]["messages"]


async def test_what_an_earlier_version_declared_is_brought_up_to_date(bus: Bus) -> None:
    """It kept acceptances in a stream of their own, and EVENTS read those and STATE too."""
    await bus.request_json("$JS.API.STREAM.DELETE.EVENTS")
    accepted = {"name": "ACCEPTED", "subjects": ["evt.jobs.>"], "storage": "memory", "allow_atomic": True}
    records = {"name": "STATE", "subject_transforms": [{"src": "st.*", "dest": "evt.st.{{wildcard(1)}}"}]}
    now = topology.wanted(assets.EVENTS, 1)
    before = now | {"sources": [{"name": "ACCEPTED"}, records, *now["sources"]], "max_bytes": 2**30}
    await bus.request_json("$JS.API.STREAM.CREATE.ACCEPTED", accepted)
    await bus.request_json("$JS.API.STREAM.CREATE.EVENTS", before)
    await bus.write("jobs.m.hi.1", b"in", expect=0)
    await bus.write("st.1", b"out", expect=0)
    lease = await bus.write("$KV.leases.gpu", b"{}", expect=0, ttl_s=20)
    assert len(await _told(bus, 3)) == 3

    assert await topology.apply(bus) == ["changed EVENTS", "deleted ACCEPTED"]
    assert await topology.check(bus) == []
    assert await topology.apply(bus) == []
    await bus.write("jobs.m.hi.2", b"in", expect=0)
    await bus.write("st.2", b"out", expect=0)
    await bus.write("$KV.leases.gpu", b"{}", expect=lease, ttl_s=20)
    subjects = sorted(delivery.subject for delivery in await _told(bus, 4))
    assert subjects == ["evt.jobs.m.hi.1", "evt.kv.leases.gpu", "evt.kv.leases.gpu", "evt.st.1"]


async def test_the_stream_of_delayed_jobs_of_an_earlier_version_goes_and_no_job_with_it(bus: Bus) -> None:
    delayed = topology.wanted(assets.DLQ, 1) | {"name": "SCHED", "subjects": ["sched.>", "due.>"]}
    await bus.request_json("$JS.API.STREAM.CREATE.SCHED", delayed)
    source = {"name": "SCHED", "subject_transforms": [{"src": "due.>", "dest": "jobs.>"}]}
    now = (await bus.request_json("$JS.API.STREAM.INFO.JOBS"))["config"]
    await bus.request_json("$JS.API.STREAM.UPDATE.JOBS", now | {"sources": [source]})
    queued = "jobs.m.hi.t.s.1"
    seq = await bus.write(queued, b"in", expect=0)
    assert any("sources" in fault for fault in await topology.check(bus))

    assert await topology.apply(bus) == ["changed JOBS", "deleted SCHED"]
    assert await topology.check(bus) == []
    assert await topology.apply(bus) == []
    assert not (await bus.request_json("$JS.API.STREAM.INFO.JOBS"))["config"].get("sources")
    found = await bus.leader_get(Stream.JOBS, queued)
    assert found is not None
    assert (found.seq, found.data) == (seq, b"in")


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
    assert ages == {"DLQ": 70, "DLQ_PARTS": 75, "PAYLOADS": 86_400, "EVENTS": 3600}
    usual = await Bus.connect(Wire(nats_url=nats.url), role="admin")
    assert await topology.check(usual) == []
    assert await topology.apply(usual) == ["changed DLQ", "changed DLQ_PARTS", "changed EVENTS"]
    letters = (await bus.request_json("$JS.API.STREAM.INFO.DLQ"))["config"]
    await bus.request_json("$JS.API.STREAM.UPDATE.DLQ", letters | {"max_age": 0})
    assert [fault.split(":")[0] for fault in await topology.check(usual)] == ["DLQ"]
    await bus.close()
    await usual.close()


async def test_a_work_queue_of_an_earlier_version_is_made_anew_once_it_is_empty(bus: Bus) -> None:
    await bus.request_json("$JS.API.STREAM.DELETE.JOBS")
    before = topology.wanted(assets.JOBS, 1) | {"retention": "workqueue"}
    await bus.request_json("$JS.API.STREAM.CREATE.JOBS", before)
    await make_durable(bus, "m_hi", "jobs.m.hi.*")
    seq = await bus.write("jobs.m.hi.1", b"in", expect=0)
    with pytest.raises(Misconfigured, match="JOBS has another retention and holds 1 messages"):
        await topology.apply(bus)
    assert await _consumers(bus) == ["m_hi"]  # the version that finishes it needs them
    await bus.request_json("$JS.API.STREAM.MSG.DELETE.JOBS", {"seq": seq})
    assert await topology.apply(bus) == ["made anew JOBS"]
    assert await topology.check(bus) == []
    assert await _consumers(bus) == []


async def test_durable_queues_of_an_earlier_version_go_and_take_only_what_has_ended(bus: Bus) -> None:
    """Of one class jobs wait, run, and have ended below and above one that runs; of another none was acknowledged; of a
    third the subjects are those before account and slot came into them."""
    await make_durable(bus, "m_hi", "jobs.m.hi.>")
    await make_durable(bus, "m_mid", "jobs.m.mid.>")
    await make_durable(bus, "old_lo", "jobs.old.lo.*")
    hi = [await bus.write(f"jobs.m.hi.t.s.{number}", b"in", expect=0) for number in range(5)]
    mid = [await bus.write(f"jobs.m.mid.t.s.{number}", b"in", expect=0) for number in range(2)]
    unseen = await bus.write("jobs.old.lo.t.s.0", b"in", expect=0)  # accepted by a newer gateway already
    old = [await bus.write(f"jobs.old.lo.{number}", b"in", expect=0) for number in range(3)]
    await acknowledge(bus, "m_hi", taken=4, ended={0, 1, 3})
    await acknowledge(bus, "m_mid", taken=1, ended=set())
    await acknowledge(bus, "old_lo", taken=2, ended={0, 1})
    beside = await delivery.find(bus, "m", "lo", 0)

    assert await topology.apply(bus) == ["retired 3 queues"]
    assert await topology.apply(bus) == []
    assert await _consumers(bus) == [beside.name]
    assert await _messages(bus) == sorted([*hi[2:], *mid, unseen, old[2]])
    classes: list[tuple[str, Priority, list[int]]]
    classes = [("m", "hi", hi[2:]), ("m", "mid", mid), ("old", "lo", [unseen, old[2]])]
    for model, priority, left in classes:
        info = await delivery.find(bus, model, priority, 0)
        assert (info.num_pending, info.examined_to) == (len(left), old[2])  # a record says which of them have ended


async def test_consumers_that_are_no_durable_queues_stay(bus: Bus) -> None:
    await make_durable(bus, "m_hi", "jobs.m.hi.>", ack_policy="none")
    await make_durable(bus, "m_lo", "jobs.>")
    assert await topology.apply(bus) == []
    assert await _consumers(bus) == ["m_hi", "m_lo"]


async def make_durable(bus: Bus, name: str, subject: str, *, ack_policy: str = "explicit") -> None:
    """A consumer as an earlier version made one for each class of jobs."""
    config = {"durable_name": name, "filter_subject": subject, "ack_policy": ack_policy, "max_ack_pending": 10_000}
    ask = {"stream_name": "JOBS", "config": config}
    await bus.request_json(f"$JS.API.CONSUMER.CREATE.JOBS.{name}.{subject}", ask)


async def acknowledge(bus: Bus, name: str, *, taken: int, ended: set[int]) -> None:
    """Take so many deliveries, and acknowledge those of these places."""
    replies: asyncio.Queue[bytes] = asyncio.Queue()
    sid = bus.connection.listen(f"taken.{name}", lambda _subject, reply, _head, _data: replies.put_nowait(reply))
    bus.send(f"$JS.API.CONSUMER.MSG.NEXT.JOBS.{name}", f"taken.{name}".encode(), b"", b'{"batch": %d}' % taken)
    for place in range(taken):
        reply = await asyncio.wait_for(replies.get(), 60)
        if place in ended:
            await bus.request(reply.decode(), b"+ACK", is_write=True)
    bus.connection.unlisten(sid)


async def _consumers(bus: Bus) -> list[str]:
    """Names of those of ``JOBS``."""
    return sorted(await bus.listed("$JS.API.CONSUMER.NAMES.JOBS", "consumers"))


async def _messages(bus: Bus) -> list[int]:
    """Sequences of all that ``JOBS`` holds."""
    subjects = await bus.request_json("$JS.API.STREAM.INFO.JOBS", {"subjects_filter": ">"})
    found = [await bus.leader_get(Stream.JOBS, subject) for subject in subjects["state"]["subjects"]]
    return sorted(stored.seq for stored in found if stored is not None)


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


async def _told(bus: Bus, count: int) -> list[Delivery]:
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
    """Inputs of an older gateway lie in ``PAYLOADS``, which was twice as large and drops its oldest."""
    await topology.apply(bus, storage_bytes=1024**3)
    old = await payloads.store(bus, "j", "in", bytes(4 * 1024**2))
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
