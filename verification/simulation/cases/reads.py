"""Reads from the leader and from any replica; purges; what the API says of streams."""

import asyncio

import pytest

from signalbox.jobs import payloads
from signalbox.program.errors import NotFound, Unavailable
from signalbox.wire.names import Bucket, Stream
from verification.simulation.cases.rig import CaseRig, case, get, info, refusal, stream


@case
async def what_is_not_there_is_none(rig: CaseRig) -> None:
    bus = await rig.bus()
    assert await bus.leader_get(Stream.STATE, rig.st()) is None
    assert await bus.direct_get(Stream.STATE, rig.st()) is None
    assert await bus.list_latest(Stream.STATE, [rig.st()]) == []
    with pytest.raises(NotFound):
        await bus.consumer_info(f"{rig.id}-unknown")
    with pytest.raises(NotFound):
        await info(bus, f"{rig.id}-nothing")


@case
async def a_wildcard_finds_the_last_of_all_that_fit(rig: CaseRig) -> None:
    bus = await rig.bus()
    await bus.write(rig.job("x", "lo"), b"1", expect=0)
    found = await get(bus, Stream.JOBS, f"jobs.*.*.{rig.id}-x")
    assert (found.subject, found.data) == (rig.job("x", "lo"), b"1")
    last = await bus.write(rig.job("y", "hi"), b"2", expect=0)
    assert (await get(bus, Stream.JOBS, f"jobs.{rig.id}.>")).seq == last


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
async def a_stream_without_direct_gets_answers_none(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(Unavailable):
        await bus.direct_get(Stream.JOBS, rig.job())


@case
async def a_list_is_in_stream_order_with_the_last_of_each(rig: CaseRig) -> None:
    bus = await rig.bus()
    for name in ("c", "a", "b", "a"):
        await bus.write(f"$KV.{Bucket.MODELS}.{rig.id}.{name}", name.encode())
    found = await bus.list_latest(Bucket.MODELS.stream, [f"$KV.models.{rig.id}.>"])
    assert [stored.data for stored in found] == [b"c", b"b", b"a"]
    several = await bus.list_latest(Bucket.MODELS.stream, [f"$KV.models.{rig.id}.a", f"$KV.models.{rig.id}.b"])
    assert [stored.data for stored in several] == [b"b", b"a"]


@case
async def a_list_from_the_leader_is_the_same(rig: CaseRig) -> None:
    bus = await rig.bus()
    for name in ("b", "a"):
        await bus.write(f"$KV.{Bucket.LEASES}.{rig.id}.{name}", name.encode(), expect=0)
    found = await bus.list_latest(Bucket.LEASES.stream, [f"$KV.leases.{rig.id}.*"])
    assert [stored.data for stored in found] == [b"b", b"a"]


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
async def the_next_message_of_a_subject_is_found_from_any_sequence(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.job("1"), b"1")
    second = await bus.write(rig.job("2"), b"2")
    ask = {"next_by_subj": f"jobs.{rig.id}.hi.*"}
    found = await bus.request_json("$JS.API.STREAM.MSG.GET.JOBS", ask | {"seq": first})
    assert found["message"]["seq"] == first
    found = await bus.request_json("$JS.API.STREAM.MSG.GET.JOBS", ask | {"seq": first + 1})
    assert found["message"]["seq"] == second
    late = bus.request_json("$JS.API.STREAM.MSG.GET.JOBS", ask | {"seq": second + 1})
    assert await refusal(late) == 10037


@case
async def a_stream_tells_its_subjects(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"])
    for name in ("a", "b", "a"):
        await bus.write(f"{rig.id}.{name}")
    told = await bus.request_json(f"$JS.API.STREAM.INFO.{rig.id}", {"subjects_filter": ">", "offset": 0})
    assert told["state"]["subjects"] == {f"{rig.id}.a": 2, f"{rig.id}.b": 1}
    assert told["total"] == 2
    assert told["state"]["num_subjects"] == 2


@case
async def a_purge_stops_below_its_sequence(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = [await bus.write(rig.job(str(n))) for n in range(4)]
    await bus.write(rig.job("other", "lo"))
    purged = await bus.request_json("$JS.API.STREAM.PURGE.JOBS", {"filter": f"jobs.{rig.id}.hi.*", "seq": seqs[2]})
    assert purged["purged"] == 2
    left = [await bus.leader_get(Stream.JOBS, rig.job(str(n))) for n in range(4)]
    assert [found is not None for found in left] == [False, False, True, True]
    assert await bus.leader_get(Stream.JOBS, rig.job("other", "lo")) is not None


@case
async def a_purge_keeps_what_it_is_told_to(rig: CaseRig) -> None:
    bus = await rig.bus()
    for number in range(4):
        await bus.write(rig.job(str(number)))
    ask = {"filter": f"jobs.{rig.id}.hi.*", "keep": 1}
    assert (await bus.request_json("$JS.API.STREAM.PURGE.JOBS", ask))["purged"] == 3
    assert await bus.leader_get(Stream.JOBS, rig.job("3")) is not None


@case
async def a_message_is_deleted_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"])
    for _ in range(3):
        await bus.write(f"{rig.id}.a")
    delete = f"$JS.API.STREAM.MSG.DELETE.{rig.id}"
    assert (await bus.request_json(delete, {"seq": 2, "no_erase": True}))["success"]
    assert await refusal(bus.request_json(delete, {"seq": 2, "no_erase": True})) == 10043
    assert (await bus.request_json(delete, {"seq": 1, "no_erase": True}))["success"]
    for outside in (1, 2, 4):
        assert await refusal(bus.request_json(delete, {"seq": outside})) == 10057


@case
async def a_bucket_deletes_no_messages(rig: CaseRig) -> None:
    bus = await rig.bus()
    seq = await bus.write(rig.lease(), b"x", ttl_s=60)
    ask = bus.request_json("$JS.API.STREAM.MSG.DELETE.KV_leases", {"seq": seq})
    assert await refusal(ask) == 10057
    assert await bus.leader_get(Bucket.LEASES.stream, rig.lease()) is not None


@case
async def a_batched_get_pages_through_a_subject(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = [await bus.write(f"pl.a.{rig.id}.in", b"%d" % n) for n in range(5)]
    bodies: list[bytes] = []
    head, _ = await bus.collect(
        "$JS.API.DIRECT.GET.PAYLOADS",
        {"seq": seqs[1], "next_by_subj": f"pl.a.{rig.id}.in", "batch": 3},
        lambda _, body: bodies.append(body),
    )
    assert bodies == [b"1", b"2", b"3"]
    assert head.startswith(b"NATS/1.0 204")
    assert f"Nats-Last-Sequence: {seqs[3]}\r\n".encode() in head
    head, _ = await bus.collect(
        "$JS.API.DIRECT.GET.PAYLOADS",
        {"seq": seqs[-1] + 1, "next_by_subj": f"pl.a.{rig.id}.in", "batch": 3},
        lambda _, body: bodies.append(body),
    )
    assert head.startswith(b"NATS/1.0 404")
    assert len(bodies) == 3
