"""Writes and reads, as far as walks do not come to them: message ids, lists, chunks, what is refused."""

import asyncio

import pytest

from signalbox.bus.writes import GroupedWrite
from signalbox.jobs import payloads
from signalbox.program.errors import Ambiguous, StaleRevision, Unavailable
from signalbox.wire.names import Bucket, Header, Stream
from verification.simulation.cases.rig import CaseRig, batch, case, get, refusal, stream, until

EXPECTED = Header.EXPECTED_LAST.value


@case
async def the_same_compare_and_set_with_the_same_id_is_stale_not_duplicate(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-once")
    with pytest.raises(StaleRevision) as stale:
        await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-once")
    assert stale.value.last == first


@case
async def streams_know_only_their_own_message_ids(rig: CaseRig) -> None:
    bus = await rig.bus()
    await bus.write(rig.job(), b"x", msg_id=f"{rig.id}-1")
    await bus.write(rig.st(), b"x", msg_id=f"{rig.id}-1")
    assert (await get(bus, Stream.STATE, rig.st())).data == b"x"


@case
async def a_message_id_is_forgotten_after_its_window(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], duplicate_window=100_000_000)
    first = await bus.write(f"{rig.id}.a", b"x", msg_id="1")

    async def is_forgotten() -> bool:
        await asyncio.sleep(0.2)
        return await bus.write(f"{rig.id}.a", b"x", msg_id="1") > first

    await until(is_forgotten)


@case
async def a_subject_without_a_stream_is_refused_at_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(Unavailable) as error:
        await bus.write(f"nowhere.{rig.id}", b"x")
    assert not isinstance(error.value, Ambiguous)


@case
async def headers_and_body_are_kept_as_they_came(rig: CaseRig) -> None:
    bus = await rig.bus()
    headers = {"Sb-Record": '{"a":1}', "X-Empty": ""}
    await bus.write(rig.st(), b"\x00\xff\r\n", headers=headers, expect=0)
    stored = await get(bus, Stream.STATE, rig.st())
    assert stored.data == b"\x00\xff\r\n"
    assert stored.headers == {**headers, EXPECTED: "0"}


@case
async def a_removed_key_leaves_a_revision_to_write_from(rig: CaseRig) -> None:
    bus = await rig.bus()
    subject = f"$KV.{Bucket.KEYS}.{rig.id}"
    first = await bus.write(subject, b"1", expect=0)
    removed = await bus.write(subject, headers={"KV-Operation": "PURGE", "Nats-Rollup": "sub"}, expect=first)
    with pytest.raises(StaleRevision) as stale:
        await bus.write(subject, b"2", expect=0)
    assert stale.value.last == removed
    assert await bus.write(subject, b"2", expect=removed) > removed


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
async def a_direct_get_says_where_the_message_comes_from(rig: CaseRig) -> None:
    bus = await rig.bus()
    seq = await bus.write(rig.st(), b"x", headers={"A": "b"})
    found = await bus.direct_get(Stream.STATE, rig.st())
    assert found is not None
    assert (found.subject, found.seq, found.data) == (rig.st(), seq, b"x")
    assert found.headers == {"A": "b", "Nats-Stream": "STATE"}
    leader = await get(bus, Stream.STATE, rig.st())
    assert abs(found.time - leader.time) < 0.001


@case
async def more_keys_than_a_batch_holds_are_listed_all_the_same(rig: CaseRig) -> None:
    bus = await rig.bus()
    writer = bus.grouped(Stream.STATE)
    await asyncio.gather(*(writer.write(rig.st(f"{n:04}"), b"x") for n in range(1100)))
    names = (await bus.request_json("$JS.API.STREAM.INFO.STATE", {"subjects_filter": "st.*"}))["state"]["subjects"]
    mine = [name for name in names if name.startswith(rig.st(""))]
    assert len(mine) == 1100
    found = await bus.list_latest(Stream.STATE, sorted(mine)[:1000])
    assert len(found) == 1000
    everything = await bus.list_latest(Stream.STATE, ["st.*"])
    assert len([stored for stored in everything if stored.subject in mine]) == 1100


@case
async def a_payload_comes_back_from_its_chunks(rig: CaseRig) -> None:
    bus = await rig.bus()
    data = bytes(range(256)) * 4000
    ref = await payloads.store(bus, "a", rig.id, "out1", data)
    assert ref.chunks == 2
    assert await payloads.fetch(bus, ref) == data
    assert await payloads.store(bus, "a", rig.id, "out1", data) == ref


@case
async def a_bucket_deletes_no_messages(rig: CaseRig) -> None:
    bus = await rig.bus()
    seq = await bus.write(rig.lease(), b"x", ttl_s=60)
    ask = bus.request_json("$JS.API.STREAM.MSG.DELETE.KV_leases", {"seq": seq})
    assert await refusal(ask) == 10057
    assert await bus.leader_get(Bucket.LEASES.stream, rig.lease()) is not None
