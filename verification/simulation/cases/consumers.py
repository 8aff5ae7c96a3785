"""Pull consumers: requests, deliveries, acknowledgements, redelivery."""

import asyncio
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.program.errors import Ambiguous, NotFound, Unavailable
from signalbox.wire.names import Stream
from verification.simulation.cases.rig import CaseRig, case, consumer, get, info, pulling, stream, until

SECOND = 1_000_000_000


async def queue(rig: CaseRig, **changes: Any) -> str:
    """The case's consumer."""
    name = f"{rig.id}_hi"
    await consumer(await rig.bus(), name, f"jobs.{rig.id}.hi.*", **changes)
    return name


async def waiting(bus: Bus, name: str, count: int) -> None:
    """Wait until the server knows of so many requests."""

    async def is_known() -> bool:
        return (await bus.consumer_info(name)).num_waiting == count

    await until(is_known)


@case
async def jobs_come_in_order_with_their_numbers(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    seqs = [await bus.write(rig.job(str(n)), b"%d" % n, headers={"A": "b"}) for n in range(5)]
    _, taken = await pulling(bus, name)
    got = await taken.until(5)
    assert [delivery.seq for delivery in got] == seqs
    assert [delivery.data for delivery in got] == [b"0", b"1", b"2", b"3", b"4"]
    assert {delivery.attempt for delivery in got} == {1}
    assert got[0].headers == {"A": "b"}
    assert abs(got[0].time - (await get(bus, Stream.JOBS, rig.job("0"))).time) < 0.001


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
async def a_request_that_cannot_be_read_is_refused(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    head, _ = await bus.request(f"$JS.API.CONSUMER.MSG.NEXT.JOBS.{name}", b"{many}")
    assert head.startswith(b"NATS/1.0 400 Bad Request")


@case
async def a_parked_request_gets_the_job_as_it_comes(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    _, taken = await pulling(bus, name, 2)
    await waiting(bus, name, 1)
    await bus.write(rig.job(), b"x")
    assert (await taken.until(1))[0].data == b"x"


@case
async def a_consumer_tells_where_it_stands(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    seqs = [await bus.write(rig.job(str(n))) for n in range(5)]
    _, taken = await pulling(bus, name, 3)
    got = await taken.until(3)
    await got[0].ack()
    told = await bus.consumer_info(name)
    assert (told.num_pending, told.num_ack_pending, told.num_redelivered) == (2, 2, 0)
    assert (told.delivered_stream_seq, told.ack_floor_stream_seq) == (seqs[2], seqs[1] - 1)
    await got[1].ack()
    await got[2].ack()
    told = await bus.consumer_info(name)
    assert (told.num_ack_pending, told.ack_floor_stream_seq) == (0, seqs[2])


@case
async def the_floor_waits_for_the_oldest(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    seqs = [await bus.write(rig.job(str(n))) for n in range(4)]
    _, taken = await pulling(bus, name)
    got = await taken.until(4)
    await got[1].ack()
    await got[2].ack()
    floor = (await bus.consumer_info(name)).ack_floor_stream_seq
    assert floor < seqs[0]
    await got[0].ack()
    assert seqs[2] <= (await bus.consumer_info(name)).ack_floor_stream_seq < seqs[3]


@case
async def an_acknowledged_job_stays_until_it_is_swept(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    seq = await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    await (await taken.until(1))[0].ack()
    assert (await get(bus, Stream.JOBS, rig.job())).seq == seq
    floor = (await bus.consumer_info(name)).ack_floor_stream_seq
    ask = {"filter": f"jobs.{rig.id}.hi.*", "seq": floor + 1}
    assert (await bus.request_json("$JS.API.STREAM.PURGE.JOBS", ask))["purged"] == 1


@case
async def what_is_not_acknowledged_in_time_comes_again(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, ack_wait=SECOND)
    seq = await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    got = await taken.until(2)
    assert [(delivery.attempt, delivery.seq) for delivery in got[:2]] == [(1, seq), (2, seq)]
    assert (await bus.consumer_info(name)).num_redelivered == 1


@case
async def an_acknowledgement_of_an_earlier_delivery_counts(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, ack_wait=SECOND)
    await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    got = await taken.until(2)
    await got[0].ack()
    told = await bus.consumer_info(name)
    assert (told.num_ack_pending, told.num_redelivered) == (0, 0)
    await got[1].ack()


@case
async def a_work_queue_forgets_by_the_ack_of_a_stale_delivery(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], retention="workqueue")
    await consumer(bus, "q", f"{rig.id}.>", stream=rig.id, ack_wait=SECOND)
    await bus.write(f"{rig.id}.a", b"x")
    _, taken = await pulling(bus, "q", stream=rig.id)
    got = await taken.until(2)
    await got[0].ack()
    assert (await info(bus, rig.id))["state"]["messages"] == 0
    await got[1].ack()


@case
async def a_job_given_back_comes_again_at_once(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    await (await taken.until(1))[0].nak()
    assert [delivery.attempt for delivery in (await taken.until(2))] == [1, 2]


@case
async def a_job_given_back_for_later_comes_later(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    loop = asyncio.get_running_loop()
    await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    first = (await taken.until(1))[0]
    asked_at = loop.time()
    await first.nak(1.5)
    assert [delivery.attempt for delivery in (await taken.until(2))] == [1, 2]
    assert loop.time() - asked_at >= 1.45


@case
async def what_was_given_back_comes_before_what_is_new(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    for number in range(3):
        await bus.write(rig.job(str(number)), b"%d" % number)
    puller, taken = await pulling(bus, name, 1)
    await (await taken.until(1))[0].nak()
    puller.ask(2, expires_s=50)
    assert [delivery.data for delivery in await taken.until(3)] == [b"0", b"0", b"1"]


@case
async def progress_holds_redelivery_off(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, ack_wait=6 * SECOND)
    _, taken = await pulling(bus, name)
    await bus.write(rig.job("kept"), b"kept")
    await bus.write(rig.job("left"), b"left")
    kept = (await taken.until(2))[0]
    async with asyncio.timeout(60):
        while len(taken.all) < 3:
            kept.in_progress()
            await asyncio.sleep(0.2)
    kept.in_progress()
    await bus.flush()
    assert [delivery.data for delivery in taken.all] == [b"kept", b"left", b"left"]
    await kept.ack()


@case
async def a_job_given_up_is_told_and_never_comes_again(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, ack_wait=SECOND)
    await bus.write(rig.job("bad"))
    await bus.write(rig.job("good"))
    _, taken = await pulling(bus, name)
    bad, _ = await taken.until(2)
    await bad.term("no good")
    had = len(taken.all)
    again = (await taken.until(had + 2))[had:]
    assert {delivery.subject for delivery in again} == {rig.job("good")}
    advisory = await get(bus, Stream.ADVISORY, f"$JS.EVENT.ADVISORY.CONSUMER.MSG_TERMINATED.JOBS.{name}")
    assert b"no good" in advisory.data


@case
async def too_many_in_flight_hold_the_rest_back(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, max_ack_pending=2)
    for number in range(4):
        await bus.write(rig.job(str(number)))
    puller, taken = await pulling(bus, name)
    got = await taken.until(2)
    await bus.flush()
    assert len(taken.all) == 2
    await got[0].ack()
    assert (await taken.until(3))[2].subject == rig.job("2")
    assert puller.outstanding == 97


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
    assert [delivery.subject for delivery in mine.all] == [rig.job(n) for n in "024"]
    assert [delivery.subject for delivery in theirs.all] == [rig.job(n) for n in "135"]


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
    got = await theirs.until(2)
    assert [delivery.attempt for delivery in got] == [1, 1]
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
async def a_consumer_made_late_gets_what_was_there(rig: CaseRig) -> None:
    bus = await rig.bus()
    for number in range(3):
        await bus.write(rig.job(str(number)))
    name = await queue(rig)
    assert (await bus.consumer_info(name)).num_pending == 3
    _, taken = await pulling(bus, name)
    assert len(await taken.until(3)) == 3


@case
async def making_a_consumer_again_changes_nothing(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    await taken.until(1)
    await queue(rig)
    told = await bus.consumer_info(name)
    assert (told.num_pending, told.num_ack_pending) == (0, 1)


@case
async def a_job_purged_in_flight_is_forgotten(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, ack_wait=SECOND)
    await bus.write(rig.job("gone"))
    await bus.write(rig.job("here"))
    _, taken = await pulling(bus, name)
    got = await taken.until(2)
    await bus.request_json("$JS.API.STREAM.PURGE.JOBS", {"filter": rig.job("gone")})

    async def is_forgotten() -> bool:
        return (await bus.consumer_info(name)).num_ack_pending == 1

    await until(is_forgotten)
    had = len(taken.all)
    again = (await taken.until(had + 2))[had:]
    assert {delivery.subject for delivery in again} == {rig.job("here")}
    await got[0].ack()


@case
async def a_delivery_can_be_answered_in_the_name_of_another(rig: CaseRig) -> None:
    bus, other, name = await rig.bus(), await rig.bus(), await queue(rig)
    seq = await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    await taken.until(1)
    asked = (await bus.request_json(f"$JS.API.CONSUMER.INFO.JOBS.{name}"))["delivered"]
    delivered = asked["consumer_seq"]
    other.send(f"$JS.ACK.JOBS.{name}.1.{seq}.{delivered}.0.0", b"", b"", b"-NAK")
    assert (await taken.until(2))[1].attempt == 2
    await other.request(f"$JS.ACK.JOBS.{name}.1.{seq}.{delivered + 1}.0.0", b"+ACK", is_write=True)
    assert (await bus.consumer_info(name)).num_ack_pending == 0


@case
async def a_delivery_given_back_by_an_outdated_number_comes_again_all_the_same(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    first = (await taken.until(1))[0]
    await first.nak()
    await taken.until(2)
    await first.nak()
    assert [delivery.attempt for delivery in await taken.until(3)] == [1, 2, 3]


@case
async def an_acknowledgement_for_an_unknown_consumer_is_refused(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(Unavailable) as error:
        await bus.request(f"$JS.ACK.JOBS.{rig.id}-unknown.1.1.1.0.0", b"+ACK", is_write=True)
    assert not isinstance(error.value, Ambiguous)


@case
async def an_acknowledgement_of_what_was_not_delivered_gets_no_answer(rig: CaseRig) -> None:
    bus, name = await rig.bus(request_timeout_s=3.0), await queue(rig)
    seq = await bus.write(rig.job())
    with pytest.raises(Ambiguous):
        await bus.request(f"$JS.ACK.JOBS.{name}.1.{seq}.1.0.0", b"+ACK", is_write=True)
    assert (await bus.consumer_info(name)).num_pending == 1


@case
async def a_job_too_large_for_a_request_ends_it(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    await bus.write(rig.job(), b"x" * 10_000)
    ask = b'{"batch":5,"max_bytes":1000,"expires":5000000000}'
    head, _ = await bus.request(f"$JS.API.CONSUMER.MSG.NEXT.JOBS.{name}", ask)
    assert head.startswith(b"NATS/1.0 409 Message Size Exceeds MaxBytes")
    assert (await bus.consumer_info(name)).num_pending == 1


@case
async def only_so_many_may_wait(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, max_waiting=2)
    for _ in range(2):
        await pulling(bus, name, 1)
    await waiting(bus, name, 2)
    head, _ = await bus.request(f"$JS.API.CONSUMER.MSG.NEXT.JOBS.{name}", b'{"batch":1,"expires":5000000000}')
    assert head.startswith(b"NATS/1.0 409 Exceeded MaxWaiting")


@case
async def who_waits_is_told_when_the_consumer_goes(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig)
    puller, _ = await pulling(bus, name)
    await waiting(bus, name, 1)
    await bus.request_json(f"$JS.API.CONSUMER.DELETE.JOBS.{name}")
    await until(lambda: "Consumer Deleted" in puller.last_refusal)
    assert puller.outstanding == 0
    with pytest.raises(NotFound):
        await bus.consumer_info(name)


@case
async def after_the_last_attempt_a_job_stays_unseen(rig: CaseRig) -> None:
    bus, name = await rig.bus(), await queue(rig, ack_wait=SECOND, max_deliver=2)
    seq = await bus.write(rig.job())
    _, taken = await pulling(bus, name)
    await taken.until(2)
    subject = f"$JS.EVENT.ADVISORY.CONSUMER.MAX_DELIVERIES.JOBS.{name}"

    async def is_told() -> bool:
        return await bus.leader_get(Stream.ADVISORY, subject) is not None

    await until(is_told)
    told = await bus.consumer_info(name)
    assert (told.num_pending, told.num_ack_pending) == (0, 0)
    assert (await get(bus, Stream.JOBS, rig.job())).seq == seq
    assert len(taken.all) == 2


@case
async def a_reader_without_acknowledgements_begins_where_it_says(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = [await bus.write(rig.st(str(n)), b"body", headers={"A": "b"}) for n in range(3)]
    await consumer(
        bus,
        rig.id,
        f"st.{rig.id}-0",
        stream=Stream.STATE,
        durable_name=None,
        ack_wait=None,
        ack_policy="none",
        deliver_policy="by_start_sequence",
        opt_start_seq=seqs[0],
        headers_only=True,
        mem_storage=True,
        inactive_threshold=60 * SECOND,
        max_ack_pending=None,
    )
    _, taken = await pulling(bus, rig.id, stream=Stream.STATE)
    got = (await taken.until(1))[0]
    assert (got.seq, got.data, got.headers) == (seqs[0], b"", {"A": "b", "Nats-Msg-Size": "4"})
    assert (await bus.consumer_info(rig.id, Stream.STATE)).num_ack_pending == 0


@case
async def an_idle_reader_is_forgotten(rig: CaseRig) -> None:
    bus = await rig.bus()
    await consumer(
        bus,
        rig.id,
        rig.st(),
        stream=Stream.STATE,
        durable_name=None,
        ack_policy="none",
        ack_wait=None,
        max_ack_pending=None,
        mem_storage=True,
        inactive_threshold=SECOND,
    )

    async def is_forgotten() -> bool:
        try:
            await bus.consumer_info(rig.id, Stream.STATE)
        except NotFound:
            return True
        return False

    await until(is_forgotten)


@case
async def consumers_are_listed(rig: CaseRig) -> None:
    bus = await rig.bus()
    names = []
    for priority in ("hi", "mid", "lo"):
        await consumer(bus, f"{rig.id}_{priority}", f"jobs.{rig.id}.{priority}.*")
        names.append(f"{rig.id}_{priority}")
    told: list[str] = []
    while True:
        page = await bus.request_json("$JS.API.CONSUMER.NAMES.JOBS", {"offset": len(told)})
        told += page["consumers"] or []
        if not page["consumers"] or len(told) >= page["total"]:
            break
    assert set(names) <= set(told)
