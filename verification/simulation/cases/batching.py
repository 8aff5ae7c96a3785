"""Atomic batches: all or nothing, and every way to be refused."""

import asyncio

import pytest

from signalbox.bus.writes import GroupedWrite
from signalbox.program.errors import StaleRevision
from signalbox.wire.names import Header, Stream
from verification.simulation.cases.rig import CaseRig, Staged, batch, case, consumer, get, info, pulling, stream

EXPECTED = Header.EXPECTED_LAST.value


@case
async def a_group_is_stored_together(rig: CaseRig) -> None:
    bus = await rig.bus()
    writer = bus.grouped(Stream.STATE)
    seqs = await asyncio.gather(*(writer.write(rig.st(str(n)), b"%d" % n, expect=0) for n in range(60)))
    assert writer.batches >= 1
    assert writer.refused == 0
    assert len(set(seqs)) == 60
    for number, seq in enumerate(seqs):
        stored = await get(bus, Stream.STATE, rig.st(str(number)))
        assert (stored.seq, stored.data) == (seq, b"%d" % number)


@case
async def one_stale_write_refuses_the_batch_and_only_itself(rig: CaseRig) -> None:
    bus = await rig.bus()
    writer = bus.grouped(Stream.STATE)
    outcomes = await writer.write_all(
        [GroupedWrite(rig.st(str(n)), b"x", {}, 999_999_999 if n == 7 else 0) for n in range(20)]
    )
    assert writer.refused == 1
    assert [isinstance(outcome, StaleRevision) for outcome in outcomes] == [number == 7 for number in range(20)]
    assert await bus.leader_get(Stream.STATE, rig.st("7")) is None


@case
async def a_batch_has_consecutive_sequences(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], allow_atomic=True)
    messages: list[Staged] = [(f"{rig.id}.{n}", b"%d" % n, {EXPECTED: "0"}) for n in range(5)]
    assert await batch(bus, rig.id, messages) == (5, 5, 0)
    assert [(await get(bus, rig.id, f"{rig.id}.{n}")).seq for n in range(5)] == [1, 2, 3, 4, 5]


@case
async def a_gap_in_a_batch_loses_all_of_it(rig: CaseRig) -> None:
    bus = await rig.bus()
    messages: list[Staged] = [(rig.st(str(n)), b"x", {}) for n in range(3)]
    assert await batch(bus, rig.id, messages, numbers=[1, 2, 4]) == (0, 0, 10176)
    for number in range(3):
        assert await bus.leader_get(Stream.STATE, rig.st(str(number))) is None


@case
async def a_batch_begins_at_one(rig: CaseRig) -> None:
    bus = await rig.bus()
    messages: list[Staged] = [(rig.st(), b"x", {})]
    assert await batch(bus, rig.id, messages, numbers=[5]) == (0, 0, 10176)


@case
async def a_batch_of_one_is_a_batch(rig: CaseRig) -> None:
    bus = await rig.bus()
    seq, count, error = await batch(bus, rig.id, [(rig.st(), b"x", {})])
    assert (count, error) == (1, 0)
    assert (await get(bus, Stream.STATE, rig.st())).seq == seq


@case
async def a_duplicate_refuses_the_whole_batch(rig: CaseRig) -> None:
    bus = await rig.bus()
    await bus.write(rig.st("old"), b"x", msg_id=f"{rig.id}-1")
    messages: list[Staged] = [(rig.st("a"), b"x", {}), (rig.st("b"), b"x", {"Nats-Msg-Id": f"{rig.id}-1"})]
    assert await batch(bus, rig.id, messages) == (0, 0, 10201)
    twins: list[Staged] = [(rig.st(n), b"x", {"Nats-Msg-Id": f"{rig.id}-2"}) for n in "ab"]
    assert await batch(bus, f"{rig.id}-2", twins) == (0, 0, 10201)
    assert await bus.leader_get(Stream.STATE, rig.st("a")) is None


@case
async def a_message_id_of_a_batch_is_remembered(rig: CaseRig) -> None:
    bus = await rig.bus()
    messages: list[Staged] = [(rig.st(n), b"x", {"Nats-Msg-Id": f"{rig.id}-{n}"}) for n in "ab"]
    last, _, error = await batch(bus, rig.id, messages)
    assert error == 0
    assert await bus.write(rig.st("a"), b"again", msg_id=f"{rig.id}-a") == last - 1


@case
async def a_batch_is_refused_where_none_is_allowed(rig: CaseRig) -> None:
    bus = await rig.bus()
    messages: list[Staged] = [(f"dlq.{rig.id}.{n}", b"x", {}) for n in range(2)]
    assert await batch(bus, rig.id, messages) == (0, 0, 10174)


@case
async def within_a_batch_a_subject_is_expected_before_it_is_written(rig: CaseRig) -> None:
    bus = await rig.bus()
    twice: list[Staged] = [(rig.st(), b"1", {}), (rig.st(), b"2", {EXPECTED: "0"})]
    assert await batch(bus, rig.id, twice) == (0, 0, 10164)
    plain: list[Staged] = [(rig.st(), b"1", {EXPECTED: "0"}), (rig.st(), b"2", {})]
    last, count, error = await batch(bus, f"{rig.id}-2", plain)
    assert (count, error) == (2, 0)
    stored = await get(bus, Stream.STATE, rig.st())
    assert (stored.seq, stored.data) == (last, b"2")


@case
async def a_batch_that_is_not_committed_is_nowhere(rig: CaseRig) -> None:
    bus = await rig.bus()
    for number in (1, 2):
        fields = f"Nats-Batch-Id: {rig.id}\r\nNats-Batch-Sequence: {number}\r\n".encode()
        _, body = await bus.request(rig.st(str(number)), b"x", fields=fields, is_write=True)
        assert body == b""
    assert await bus.leader_get(Stream.STATE, rig.st("1")) is None
    assert await bus.direct_get(Stream.STATE, rig.st("2")) is None


@case
async def batches_that_overlap_in_time_do_not_mix(rig: CaseRig) -> None:
    one, other = await rig.bus(), await rig.bus()
    fields = f"Nats-Batch-Id: {rig.id}-1\r\nNats-Batch-Sequence: 1\r\n".encode()
    await one.request(rig.st("a"), b"1", fields=fields, is_write=True)
    assert (await batch(other, f"{rig.id}-2", [(rig.st(n), b"2", {}) for n in "bc"]))[1] == 2
    fields = b"Nats-Batch-Id: %b-1\r\nNats-Batch-Sequence: 2\r\nNats-Batch-Commit: 1\r\n" % (rig.id.encode(),)
    await one.request(rig.st("d"), b"1", fields=fields, is_write=True)
    found = [await get(one, Stream.STATE, rig.st(n)) for n in "bcad"]
    assert [stored.data for stored in found] == [b"2", b"2", b"1", b"1"]
    assert [stored.seq for stored in found] == sorted(stored.seq for stored in found)


@case
async def a_batch_that_does_not_fit_is_refused_whole(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], discard="new", max_msgs=3, allow_atomic=True)
    await bus.write(f"{rig.id}.x")
    messages: list[Staged] = [(f"{rig.id}.{n}", b"x", {}) for n in range(3)]
    assert await batch(bus, rig.id, messages) == (0, 0, 10077)
    assert (await info(bus, rig.id))["state"]["messages"] == 1
    assert await batch(bus, f"{rig.id}-2", messages[:2]) == (3, 2, 0)


@case
async def a_wrong_lifetime_refuses_the_batch(rig: CaseRig) -> None:
    bus = await rig.bus()
    messages: list[Staged] = [(rig.st("a"), b"x", {}), (rig.st("b"), b"x", {"Nats-TTL": "500ms"})]
    assert await batch(bus, rig.id, messages) == (0, 0, 10165)


@case
async def a_message_too_large_leaves_a_hole_in_its_batch(rig: CaseRig) -> None:
    bus = await rig.bus()
    messages: list[Staged] = [
        (rig.st("a"), b"x", {}),
        (rig.st("b"), b"x" * (1024 * 1024 + 1), {}),
        (rig.st("c"), b"x", {}),
    ]
    assert await batch(bus, rig.id, messages) == (0, 0, 10176)
    assert await bus.leader_get(Stream.STATE, rig.st("a")) is None


@case
async def a_wrong_expectation_in_a_batch_names_no_message(rig: CaseRig) -> None:
    bus = await rig.bus()
    await bus.write(rig.st("b"), b"1")
    messages: list[Staged] = [(rig.st(n), b"x", {EXPECTED: "0"}) for n in "abc"]
    assert await batch(bus, rig.id, messages) == (0, 0, 10071)
    with pytest.raises(StaleRevision):
        await bus.write(rig.st("b"), b"2", expect=0)
    assert await bus.leader_get(Stream.STATE, rig.st("c")) is None


@case
async def a_group_of_queued_jobs_reaches_its_consumer_in_order(rig: CaseRig) -> None:
    bus = await rig.bus()
    await consumer(bus, f"{rig.id}_hi", f"jobs.{rig.id}.hi.>")
    _, taken = await pulling(bus, f"{rig.id}_hi")
    writer = bus.grouped(Stream.JOBS)
    seqs = await asyncio.gather(*(writer.write(rig.job(f"{n:02}"), b"x", expect=0) for n in range(30)))
    assert [delivery.seq for delivery in await taken.until(30)] == sorted(seqs)
