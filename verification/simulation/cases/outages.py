"""What a server that is killed, restarted or frozen does, and what its clients learn of it."""

import asyncio
import contextlib

import pytest

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.jobs import delivery
from signalbox.program.errors import Ambiguous, NotFound, SignalboxError, StaleRevision, Unavailable
from signalbox.wire.events import is_removal
from signalbox.wire.names import Bucket, Stream
from signalbox.wire.steering import Desired
from verification.simulation.cases.rig import CaseRig, get, gone, own_server, pulling, receive, until

LEASES = Bucket.LEASES.stream


async def back(bus: Bus) -> None:
    """Wait until a connection is there again and the server answers."""

    async def is_back() -> bool:
        try:
            await bus.flush()
            await bus.request_json("$JS.API.STREAM.INFO.STATE")
        except SignalboxError:
            return False
        return bus.is_connected

    await until(is_back)


@own_server
async def a_lease_that_ran_out_while_the_server_was_down(rig: CaseRig) -> None:
    """Its holder may still renew it in the first moment after the start; later there is a marker."""
    bus = await rig.bus()
    revision = await bus.write(rig.lease(), b"1", expect=0, ttl_s=1)
    await rig.kill()
    await asyncio.sleep(2)
    await rig.start()
    fresh = await rig.bus()
    try:
        await fresh.write(rig.lease(), b"2", expect=revision, ttl_s=60)
    except StaleRevision:
        assert is_removal((await get(fresh, LEASES, rig.lease())).headers)
    else:
        assert (await get(fresh, LEASES, rig.lease())).data == b"2"


@own_server
async def a_write_to_a_frozen_server_is_stored_when_it_thaws(rig: CaseRig) -> None:
    bus = await rig.bus(request_timeout_s=3.0)
    await bus.write(rig.st("before"), b"x")
    await rig.freeze()
    try:
        with pytest.raises(Ambiguous):
            await bus.write(rig.st(), b"late", expect=0)
        assert bus.is_connected
        with pytest.raises(Unavailable) as error:
            await bus.leader_get(Stream.STATE, rig.st())
        assert not isinstance(error.value, Ambiguous)
    finally:
        await rig.thaw()

    async def is_stored() -> bool:
        try:
            return await bus.leader_get(Stream.STATE, rig.st()) is not None
        except Unavailable:
            return False

    await until(is_stored)
    with pytest.raises(StaleRevision):
        await bus.write(rig.st(), b"again", expect=0)


@own_server
async def what_was_acknowledged_survives_a_kill(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = [await bus.write(rig.st(str(n)), b"%d" % n) for n in range(20)]
    await rig.kill()
    await rig.start()
    await back(bus)
    for number, seq in enumerate(seqs):
        stored = await get(bus, Stream.STATE, rig.st(str(number)))
        assert (stored.seq, stored.data) == (seq, b"%d" % number)
    assert await bus.write(rig.st("after"), b"x") == seqs[-1] + 1


@own_server
async def without_a_server_nothing_is_sent_and_nothing_arrives_later(rig: CaseRig) -> None:
    bus = await rig.bus()
    lost = asyncio.Event()
    bus.on_disconnect(lost.set)
    await rig.kill()
    async with asyncio.timeout(60):
        await lost.wait()
    with pytest.raises(Unavailable) as error:
        await bus.write(rig.st(), b"x", expect=0)
    assert not isinstance(error.value, Ambiguous)
    await bus.publish(f"progress.{rig.id}", b"lost")
    await rig.start()
    await back(bus)
    assert await bus.leader_get(Stream.STATE, rig.st()) is None


@own_server
async def subscriptions_are_back_after_a_restart(rig: CaseRig) -> None:
    bus = await rig.bus()
    received = await receive(bus, f"progress.{rig.id}")
    returned = asyncio.Event()
    bus.on_reconnect(returned.set)
    await rig.kill()
    await rig.start()
    async with asyncio.timeout(60):
        await returned.wait()
    await bus.publish(f"progress.{rig.id}", b"x")
    assert [message.data for message in await received.until(1)] == [b"x"]


@own_server
async def a_consumer_is_lost_with_the_server_and_made_again(rig: CaseRig) -> None:
    bus = await rig.bus()
    made = await delivery.find(bus, rig.id, "hi", 0)
    puller, taken = await pulling(bus, made.name, 5)
    await bus.write(rig.job("a"), b"a")
    await taken.until(1)
    await rig.kill()
    await rig.start()
    await back(bus)
    with pytest.raises(NotFound):
        await bus.consumer_info(made.name)
    puller.ask(5, expires_s=50)
    await until(lambda: puller.last_refusal.startswith("503"))
    last = await bus.write(rig.job("b"), b"b")
    again = await delivery.find(bus, rig.id, "hi", 0)
    assert (again.num_pending, again.examined_to) == (2, last)
    puller.ask(5, expires_s=50)
    assert [each.data for each in await taken.until(3)] == [b"a", b"a", b"b"]


@own_server
async def a_message_id_is_remembered_over_a_restart_with_its_message(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(f"pl.a.{rig.id}.in", b"x", msg_id=f"{rig.id}-1")
    await bus.write(rig.job(), b"x", msg_id=f"{rig.id}-2")
    await bus.request_json("$JS.API.STREAM.PURGE.JOBS", {"filter": rig.job()})
    await rig.kill()
    await rig.start()
    await back(bus)
    assert await bus.write(f"pl.a.{rig.id}.in", b"x", msg_id=f"{rig.id}-1") == first
    await bus.write(rig.job(), b"x", msg_id=f"{rig.id}-2")
    assert await bus.leader_get(Stream.JOBS, rig.job()) is not None


@own_server
async def a_key_expires_as_soon_as_a_frozen_server_thaws(rig: CaseRig) -> None:
    bus = await rig.bus(request_timeout_s=10.0)
    await bus.write(rig.st(), b"x", ttl_s=1)
    await bus.write(rig.st("kept"), b"x")
    await rig.freeze()
    await asyncio.sleep(2)
    await rig.thaw()
    await gone(bus, Stream.STATE, rig.st())
    assert await bus.leader_get(Stream.STATE, rig.st("kept")) is not None


@own_server
async def a_table_catches_up_after_a_restart(rig: CaseRig) -> None:
    bus, other = await rig.bus(), await rig.bus()
    await put(bus, Bucket.DESIRED, "worker.a", Desired())
    table = Table(other, Bucket.DESIRED, Desired)
    await table.start()
    try:
        await rig.kill()
        await rig.start()
        await back(bus)
        await put(bus, Bucket.DESIRED, "worker.b", Desired())
        await until(lambda: table.get("worker.b") is not None)
    finally:
        await table.close()


@own_server
async def an_answer_lost_with_the_connection_is_ambiguous(rig: CaseRig) -> None:
    bus = await rig.bus(request_timeout_s=20.0)
    await rig.freeze()
    writing = asyncio.ensure_future(bus.write(rig.st(), b"x", expect=0))
    await asyncio.sleep(0.2)
    await rig.kill()
    with pytest.raises(Ambiguous):
        await writing
    await rig.start()
    await back(bus)
    # Perhaps it was stored, perhaps not: the same compare-and-set, repeated, never stores it twice.
    with contextlib.suppress(StaleRevision):
        await bus.write(rig.st(), b"x", expect=0)
    assert (await get(bus, Stream.STATE, rig.st())).seq == 1


@own_server
async def a_frozen_server_is_given_up_after_two_pings(rig: CaseRig) -> None:
    bus = await rig.bus(ping_interval_s=2.0, request_timeout_s=5.0)
    lost = asyncio.Event()
    bus.on_disconnect(lost.set)
    await rig.freeze()
    try:
        async with asyncio.timeout(60):
            await lost.wait()
    finally:
        await rig.thaw()
    await back(bus)
    await bus.write(rig.st(), b"x")
