"""Writes: compare-and-set, duplicates, limits."""

import asyncio

import pytest

from signalbox.program.errors import Ambiguous, QueueFull, StaleRevision, TooLarge, Unavailable
from signalbox.wire.names import Bucket, Header, Stream
from verification.simulation.cases.rig import CaseRig, case, get, info, raw, stream, until

EXPECTED = Header.EXPECTED_LAST.value


@case
async def a_compare_and_set_moves_from_revision_to_revision(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.st(), b"1", expect=0)
    second = await bus.write(rig.st(), b"2", expect=first)
    assert second > first
    with pytest.raises(StaleRevision) as stale:
        await bus.write(rig.st(), b"3", expect=first)
    assert stale.value.last == second
    assert (await get(bus, Stream.STATE, rig.st())).data == b"2"


@case
async def expecting_nothing_fails_where_something_is(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.st(), b"1")
    with pytest.raises(StaleRevision) as stale:
        await bus.write(rig.st(), b"2", expect=0)
    assert stale.value.last == first


@case
async def expecting_something_fails_where_nothing_is(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(StaleRevision) as stale:
        await bus.write(rig.st(), b"1", expect=7)
    assert stale.value.last == 0
    assert await bus.leader_get(Stream.STATE, rig.st()) is None


@case
async def of_twenty_contenders_one_wins_every_round(rig: CaseRig) -> None:
    buses = [await rig.bus() for _ in range(4)]

    async def contend(number: int, round_: int) -> bool:
        try:
            await buses[number % 4].write(rig.st(f"r{round_}"), b"%d" % number, expect=0)
        except StaleRevision:
            return False
        return True

    for round_ in range(10):
        won = await asyncio.gather(*(contend(number, round_) for number in range(20)))
        assert sum(won) == 1
        stored = await get(buses[0], Stream.STATE, rig.st(f"r{round_}"))
        assert won[int(stored.data)]


@case
async def the_same_compare_and_set_with_the_same_id_is_stale_not_duplicate(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-once")
    with pytest.raises(StaleRevision) as stale:
        await bus.write(rig.st(), b"1", expect=0, msg_id=f"{rig.id}-once")
    assert stale.value.last == first


@case
async def a_message_id_is_stored_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(f"pl.a.{rig.id}.in", b"x", msg_id=f"{rig.id}-1")
    assert await bus.write(f"pl.a.{rig.id}.in", b"y", msg_id=f"{rig.id}-1") == first
    assert await bus.write(f"pl.a.{rig.id}.in", b"z", msg_id=f"{rig.id}-2") > first


@case
async def a_message_id_outlives_its_message(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.job(), b"x", msg_id=f"{rig.id}-1")
    await bus.request_json("$JS.API.STREAM.PURGE.JOBS", {"filter": rig.job()})
    assert await bus.write(rig.job(), b"x", msg_id=f"{rig.id}-1") == first
    assert await bus.leader_get(Stream.JOBS, rig.job()) is None


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
async def what_is_too_large_for_a_stream_is_refused(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(TooLarge):
        await bus.write(rig.st(), b"x" * (1024 * 1024 + 1))
    assert await bus.leader_get(Stream.STATE, rig.st()) is None
    with pytest.raises(TooLarge):
        await bus.write(rig.lease(), b"x" * 65_537)


@case
async def headers_count_towards_the_largest_message(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], max_msg_size=100)
    assert (await raw(bus, f"{rig.id}.a", b"x" * 100))[1] == 0
    assert await raw(bus, f"{rig.id}.a", b"x" * 80, {"A": "b"}) == ((await info(bus, rig.id))["state"]["last_seq"], 0)
    assert await raw(bus, f"{rig.id}.a", b"x" * 83, {"A": "b"}) == (0, 10054)


@case
async def a_subject_without_a_stream_is_refused_at_once(rig: CaseRig) -> None:
    bus = await rig.bus()
    with pytest.raises(Unavailable) as error:
        await bus.write(f"nowhere.{rig.id}", b"x")
    assert not isinstance(error.value, Ambiguous)


@case
async def a_full_stream_refuses_until_there_is_room(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], discard="new", max_msgs=2)
    first = await bus.write(f"{rig.id}.a")
    await bus.write(f"{rig.id}.b")
    with pytest.raises(QueueFull):
        await bus.write(f"{rig.id}.c")
    assert await bus.leader_get(rig.id, f"{rig.id}.c") is None
    await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{rig.id}", {"seq": first})
    await bus.write(f"{rig.id}.c")


@case
async def a_full_disk_share_refuses(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], discard="new", max_bytes=2000)
    for number in range(3):
        await bus.write(f"{rig.id}.{number}", b"x" * 500)
    with pytest.raises(QueueFull):
        await bus.write(f"{rig.id}.3", b"x" * 500)
    state = (await info(bus, rig.id))["state"]
    assert state["bytes"] == 3 * (30 + len(f"{rig.id}.0") + 500)


@case
async def a_full_stream_takes_what_replaces(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], discard="new", max_msgs=2, max_msgs_per_subject=1)
    await bus.write(f"{rig.id}.a")
    await bus.write(f"{rig.id}.b")
    again = await bus.write(f"{rig.id}.a", b"new")
    with pytest.raises(QueueFull):
        await bus.write(f"{rig.id}.c")
    assert (await get(bus, rig.id, f"{rig.id}.a")).seq == again


@case
async def a_stream_that_discards_old_loses_its_oldest(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], discard="old", max_msgs=2)
    seqs = [await bus.write(f"{rig.id}.{number}") for number in range(3)]
    state = (await info(bus, rig.id))["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (2, seqs[1], seqs[2])


@case
async def of_a_record_only_the_last_is_kept(rig: CaseRig) -> None:
    bus = await rig.bus()
    first = await bus.write(rig.st(), b"1")
    second = await bus.write(rig.st(), b"2")
    ask = {"seq": first, "next_by_subj": rig.st()}
    assert (await bus.request_json("$JS.API.STREAM.MSG.GET.STATE", ask))["message"]["seq"] == second


@case
async def sequences_are_never_given_twice(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"])
    assert [await bus.write(f"{rig.id}.a") for _ in range(3)] == [1, 2, 3]
    await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{rig.id}", {"seq": 3})
    assert await bus.write(f"{rig.id}.a") == 4
    await bus.request_json(f"$JS.API.STREAM.PURGE.{rig.id}")
    state = (await info(bus, rig.id))["state"]
    assert (state["messages"], state["first_seq"], state["last_seq"]) == (0, 5, 4)
    assert await bus.write(f"{rig.id}.a") == 5


@case
async def headers_and_body_are_kept_as_they_came(rig: CaseRig) -> None:
    bus = await rig.bus()
    headers = {"Sb-Record": '{"a":1}', "X-Empty": ""}
    await bus.write(rig.st(), b"\x00\xff\r\n", headers=headers, expect=0)
    stored = await get(bus, Stream.STATE, rig.st())
    assert stored.data == b"\x00\xff\r\n"
    assert stored.headers == {**headers, EXPECTED: "0"}


@case
async def concurrent_writes_get_a_sequence_each(rig: CaseRig) -> None:
    bus = await rig.bus()
    seqs = await asyncio.gather(*(bus.write(rig.st(str(n)), b"x") for n in range(100)))
    assert len(set(seqs)) == 100
    for number, seq in enumerate(seqs):
        assert (await get(bus, Stream.STATE, rig.st(str(number)))).seq == seq


@case
async def a_rollup_is_refused_where_none_is_allowed(rig: CaseRig) -> None:
    bus = await rig.bus()
    assert await raw(bus, rig.st(), b"x", {"Nats-Rollup": "sub"}) == (0, 10111)
    assert await raw(bus, rig.lease(), b"x", {"Nats-Rollup": "half"}) == (0, 10111)


@case
async def a_rollup_leaves_one_message_of_its_subject(rig: CaseRig) -> None:
    bus = await rig.bus()
    await stream(bus, rig.id, [f"{rig.id}.>"], allow_rollup_hdrs=True)
    for _ in range(3):
        await bus.write(f"{rig.id}.a", b"old")
    await bus.write(f"{rig.id}.b", b"other")
    await bus.write(f"{rig.id}.a", b"new", headers={"Nats-Rollup": "sub"})
    state = (await info(bus, rig.id))["state"]
    assert (state["messages"], state["first_seq"]) == (2, 4)
    await bus.write(f"{rig.id}.a", b"all", headers={"Nats-Rollup": "all"})
    assert (await info(bus, rig.id))["state"]["messages"] == 1


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
