"""Lifetimes: expiry, markers, what a write does to them. Times are the server's own."""

import asyncio

import pytest

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.program.errors import StaleRevision
from signalbox.wire.assets import MARKER_TTL_S
from signalbox.wire.events import is_removal
from signalbox.wire.names import Bucket, Header, Stream
from verification.simulation.cases.rig import (
    CaseRig,
    case,
    consumer,
    get,
    gone,
    info,
    pulling,
    receive,
    stream,
    until,
)

LEASES = Bucket.LEASES.stream
LATE_S = 20.0
"""Expiry is looked for within a quarter second; a loaded machine is late."""


async def marker_of(bus: Bus, subject: str) -> float:
    """When the server stored the marker of an expired key."""

    async def is_marked() -> bool:
        found = await bus.leader_get(LEASES, subject)
        return found is not None and is_removal(found.headers)

    await until(is_marked)
    return (await get(bus, LEASES, subject)).time


@case
async def a_write_without_a_lifetime_takes_the_lifetime_away(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.lease("kept"), b"1", expect=0, ttl_s=6)
    await bus.write(rig.lease("kept"), b"2", expect=first)
    await bus.write(rig.lease("canary"), b"1", expect=0, ttl_s=6)
    await marker_of(bus, rig.lease("canary"))
    assert (await get(bus, LEASES, rig.lease("kept"))).data == b"2"


@case
async def each_renewal_starts_the_lifetime_anew(rig: CaseRig) -> None:
    bus = await rig.bus()
    revision = await bus.write(rig.lease(), b"0", expect=0, ttl_s=9)
    first_at = renewed_at = (await get(bus, LEASES, rig.lease())).time
    for number in range(1, 4):
        await asyncio.sleep(1)
        revision = await bus.write(rig.lease(), b"%d" % number, expect=revision, ttl_s=9)
        renewed_at = (await get(bus, LEASES, rig.lease())).time
    marked_at = await marker_of(bus, rig.lease())
    assert renewed_at - first_at >= 2.5
    assert 8.99 <= marked_at - renewed_at <= 9 + LATE_S


@case
async def a_marker_is_a_revision_to_write_from(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.lease(), b"1", expect=0, ttl_s=1)
    await marker_of(bus, rig.lease())
    marker = (await get(bus, LEASES, rig.lease())).seq
    assert marker > first
    for stale in (0, first):
        with pytest.raises(StaleRevision) as refused:
            await bus.write(rig.lease(), b"2", expect=stale)
        assert refused.value.last == marker
    assert await bus.write(rig.lease(), b"2", expect=marker, ttl_s=20) > marker


@case
async def a_key_expires_not_before_its_time_and_soon_after(rig: CaseRig) -> None:
    bus = await rig.bus()
    lifetimes = {"a": 1, "b": 1, "c": 3, "d": 3}
    reported = {name: await receive(bus, f"evt.kv.leases.{rig.id}-{name}") for name in lifetimes}
    for name, ttl_s in lifetimes.items():
        await bus.write(rig.lease(name), b"x", expect=0, ttl_s=ttl_s)
    for name, ttl_s in lifetimes.items():
        written, ended = (await reported[name].until(2))[:2]
        assert is_removal(ended.headers)
        times = [unix_time(message.headers[Header.TIME_STAMP]) for message in (written, ended)]
        assert -0.01 <= times[1] - times[0] - ttl_s <= LATE_S


@case
async def a_marker_goes_silently_and_the_key_is_as_new(rig: CaseRig) -> None:
    bus = await rig.bus()
    events = await receive(bus, f"evt.kv.leases.{rig.id}-g")
    await bus.write(rig.lease(), b"1", expect=0, ttl_s=1)
    marked_at = await marker_of(bus, rig.lease())
    marker = (await get(bus, LEASES, rig.lease())).seq
    await gone(bus, LEASES, rig.lease())
    with pytest.raises(StaleRevision) as stale:
        await bus.write(rig.lease(), b"2", expect=marker)
    assert stale.value.last == 0
    await bus.write(rig.lease(), b"2", expect=0, ttl_s=60)
    again_at = (await get(bus, LEASES, rig.lease())).time
    assert again_at - marked_at >= MARKER_TTL_S - 0.01
    assert [len(message.data) for message in await events.until(3)] == [1, 0, 1]


@case
async def where_no_markers_are_kept_a_message_just_goes(rig: CaseRig) -> None:
    bus = await rig.bus()
    await bus.write(rig.st(), b"1", expect=0, ttl_s=1)
    await gone(bus, Stream.STATE, rig.st())
    await bus.write(rig.st(), b"2", expect=0)


@case
async def a_queued_job_that_expired_is_never_delivered(rig: CaseRig) -> None:
    bus = await rig.bus()
    name = f"{rig.id}_hi"
    await consumer(bus, name, f"jobs.{rig.id}.hi.>")
    await bus.write(rig.job("short"), b"x", expect=0, ttl_s=1)
    await bus.write(rig.job("long"), b"x", expect=0)
    await gone(bus, Stream.JOBS, rig.job("short"))
    assert (await bus.consumer_info(name)).num_pending == 1
    _, taken = await pulling(bus, name)
    assert (await taken.until(1))[0].subject == rig.job("long")


@case
async def a_stream_forgets_what_is_older_than_its_age(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], max_age=2_000_000_000, duplicate_window=1_000_000_000)
    for number in range(3):
        await bus.write(f"{rig.id}.{number}", b"x")
    await gone(bus, rig.id, f"{rig.id}.2")
    state = (await info(bus, rig.id))["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 4, 3)


@case
async def a_duplicate_of_what_expired_is_still_a_duplicate(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.job(), b"x", ttl_s=1, msg_id=f"{rig.id}-1")
    await gone(bus, Stream.JOBS, rig.job())
    assert await bus.write(rig.job(), b"x", msg_id=f"{rig.id}-1") == first
    assert await bus.leader_get(Stream.JOBS, rig.job()) is None
