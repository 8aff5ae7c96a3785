"""Pull consumers: requests, deliveries, what becomes of them when they are deleted and made anew."""

import asyncio
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program.errors import NotFound
from signalbox.wire.names import Stream
from verification.simulation.cases.rig import CaseRig, Deliveries, case, consumer, pulling, refusal, until

SECOND = 1_000_000_000


async def queue(rig: CaseRig, **changes: Any) -> str:
    """The case's consumer."""
    name = f"{rig.id}_hi"
    await consumer(await rig.bus(), name, f"jobs.{rig.id}.hi.>", **changes)
    return name


async def waiting(bus: Bus, name: str, count: int) -> None:
    """Wait until the server knows of so many requests."""

    async def is_known() -> bool:
        return (await bus.consumer_info(name)).num_waiting == count

    await until(is_known)


@case
async def a_request_ends_empty_when_its_time_is_over(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    puller, taken = await pulling(bus, name, 3, expires_s=0.5)
    ended = asyncio.Event()
    puller.on_idle = ended.set
    async with asyncio.timeout(60):
        await ended.wait()
    assert puller.outstanding == 0
    assert puller.last_refusal == ""
    assert taken.all == []


@case
async def a_request_that_does_not_wait_is_answered_at_once(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    ask = f"$JS.API.CONSUMER.MSG.NEXT.JOBS.{name}"
    head, _ = await bus.request(ask, b'{"batch":5,"no_wait":true}')
    assert head.startswith(b"NATS/1.0 404 No Messages")
    head, _ = await bus.request(ask, b'{"batch":2,"expires":300000000}')
    assert head.startswith(b"NATS/1.0 408 Request Timeout")
    assert b"Nats-Pending-Messages: 2\r\n" in head


@case
async def a_request_that_waits_only_for_the_first_is_over_with_it(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    taken = Deliveries()
    puller = await bus.pull(name, taken.take)
    ended = asyncio.Event()
    puller.on_idle = ended.set
    puller.ask(5, is_one_shot=True)
    await waiting(bus, name, 1)
    await bus.write(rig.job(), b"x")
    async with asyncio.timeout(60):
        await ended.wait()
    assert [each.data for each in taken.all] == [b"x"]
    assert (puller.outstanding, puller.last_refusal) == (0, "")


@case
async def a_parked_request_gets_the_job_as_it_comes(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    _, taken = await pulling(bus, name, 2)
    await waiting(bus, name, 1)
    await bus.write(rig.job(), b"x")
    assert (await taken.until(1))[0].data == b"x"


@case
async def two_who_wait_take_turns(rig: CaseRig) -> None:
    one, other, name = await rig.bus(), await rig.bus(), await queue(rig)
    _, mine = await pulling(one, name, 10)
    await waiting(one, name, 1)
    _, theirs = await pulling(other, name, 10)
    await waiting(one, name, 2)
    for number in range(6):
        await one.write(rig.job(str(number)))
    await until(lambda: len(mine.all) + len(theirs.all) == 6)
    assert [each.subject for each in mine.all] == [rig.job(n) for n in "024"]
    assert [each.subject for each in theirs.all] == [rig.job(n) for n in "135"]


@case
async def who_has_stopped_waiting_is_passed_over(rig: CaseRig) -> None:
    one, other, name = await rig.bus(), await rig.bus(), await queue(rig)
    puller, mine = await pulling(one, name, 10)
    await waiting(one, name, 1)
    _, theirs = await pulling(other, name, 10)
    await waiting(one, name, 2)
    await puller.drain()
    await puller.close()
    for number in range(2):
        await other.write(rig.job(str(number)))
    await theirs.until(2)
    assert mine.all == []


@case
async def a_consumer_gets_only_what_fits_it(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    await bus.write(rig.job("1", "lo"))
    await bus.write(f"jobs.{rig.id}x.hi.1")
    last = await bus.write(rig.job("2"))
    assert (await bus.consumer_info(name)).num_pending == 1
    _, taken = await pulling(bus, name)
    assert (await taken.until(1))[0].seq == last


@case
async def making_a_consumer_again_goes_on_where_it_was(rig: CaseRig) -> None:
    """Only its metadata is new, unless it was to be made where there is none: then nothing is."""
    bus, name = await rig.bus(), await queue(rig)
    await bus.write(rig.job())
    _, taken = await pulling(bus, name, 1)
    await taken.until(1)
    await queue(rig, action="create")
    await queue(rig, examined_to=9)
    reported = await bus.consumer_info(name)
    assert (reported.num_pending, reported.examined_to) == (0, 9)
    assert await refusal(queue(rig, examined_to=10, action="create")) == 10148
    assert (await bus.consumer_info(name)).examined_to == 9


@case
async def who_waits_at_a_deleted_consumer_is_told_and_gets_nothing_from_the_next(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    puller, taken = await pulling(bus, name)
    await waiting(bus, name, 1)
    await bus.request_json(f"$JS.API.CONSUMER.DELETE.JOBS.{name}")
    await until(lambda: puller.last_refusal == "409 Consumer Deleted")
    assert puller.outstanding == 0
    with pytest.raises(NotFound):
        await bus.consumer_info(name)
    await queue(rig)
    await bus.write(rig.job())
    assert (await bus.consumer_info(name)).num_pending == 1
    assert taken.all == []


@case
async def a_request_to_no_consumer_is_told_so_at_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    puller, _ = await pulling(bus, f"{rig.id}-unknown")
    await until(lambda: puller.last_refusal.startswith("503"))
    assert puller.outstanding == 0
    assert not puller.is_unanswered


@case
async def a_queue_is_found_or_made_and_made_anew(rig: CaseRig) -> None:
    """What production does with all this (:mod:`signalbox.jobs.delivery`)."""
    bus = await rig.bus()
    seqs = [await bus.write(rig.job(str(number))) for number in range(3)]
    made = await delivery.find(bus, rig.id, "hi", 4)
    assert made.name == f"{rig.id}_hi_4"
    assert made.num_pending == 3
    assert made.delivered_stream_seq < seqs[0]
    assert made.examined_to >= seqs[2]
    assert await delivery.find(bus, rig.id, "hi", 4) == made
    _, taken = await pulling(bus, made.name, 2)
    await taken.until(2)
    last = await bus.write(rig.job("3"))
    assert (await delivery.find(bus, rig.id, "hi", 4)).num_pending == 2
    anew = await delivery.make_anew(bus, rig.id, "hi", 4)
    assert (anew.num_pending, anew.examined_to) == (4, made.examined_to)
    _, taken = await pulling(bus, made.name)
    assert [each.seq for each in await taken.until(4)] == [*seqs, last]
    anew = await delivery.make_anew(bus, rig.id, "hi", 4)
    assert (anew.num_pending, anew.examined_to) == (4, last)


@case
async def a_reader_begins_where_it_says(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = [await bus.write(rig.st(str(n)), b"body", headers={"A": "b"}) for n in range(3)]
    await consumer(
        bus,
        rig.id,
        f"st.{rig.id}-0",
        stream=Stream.STATE,
        deliver_policy="by_start_sequence",
        opt_start_seq=seqs[0],
        headers_only=True,
    )
    _, taken = await pulling(bus, rig.id, stream=Stream.STATE)
    got = (await taken.until(1))[0]
    assert (got.seq, got.data, got.headers) == (seqs[0], b"", {"A": "b", "Nats-Msg-Size": "4"})


@case
async def an_idle_consumer_is_forgotten(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, inactive_threshold=SECOND)

    async def is_forgotten() -> bool:
        try:
            await bus.consumer_info(name)
        except NotFound:
            return True
        return False

    await until(is_forgotten)
