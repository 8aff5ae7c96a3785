"""A refused group of writes: each caller gets its own answer, nothing is lost, doubled or misattributed."""

import asyncio
from typing import Any

import pytest

from signalbox.bus.client import Bus
from signalbox.bus.writes import GroupedWrite
from signalbox.program.errors import QueueFull, StaleRevision, TooLarge, Unavailable
from signalbox.wire import assets
from signalbox.wire.names import Stream

ROOM = 30


async def limit(bus: Bus, stream: Stream, **changes: Any) -> None:
    """Change a declared stream's limits."""
    config = next(c for c in assets.STREAMS if c["name"] == stream) | {"num_replicas": 1} | changes
    await bus.request_json(f"$JS.API.STREAM.UPDATE.{stream}", config)


async def stored(bus: Bus, stream: Stream) -> int:
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
    return int(info["state"]["messages"])


async def read(bus: Bus, stream: Stream, seq: int) -> str:
    """Subject of the message with that sequence."""
    found = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": seq})
    return str(found["message"]["subject"])


async def test_a_queue_that_fills_up_within_a_group_takes_exactly_what_it_has_room_for(bus: Bus) -> None:
    await limit(bus, Stream.JOBS, max_msgs=ROOM)
    writer = bus.grouped(Stream.JOBS)
    subjects = [f"jobs.m.mid.{n}" for n in range(100)]
    outcomes = await asyncio.gather(*(writer.write(subject, expect=0) for subject in subjects), return_exceptions=True)
    taken = {outcome: subject for subject, outcome in zip(subjects, outcomes, strict=True) if isinstance(outcome, int)}
    assert writer.refused >= 1, "the group was refused as a whole first"
    assert len(taken) == ROOM == await stored(bus, Stream.JOBS)
    assert sum(isinstance(outcome, QueueFull) for outcome in outcomes) == len(subjects) - ROOM
    for seq, subject in taken.items():
        assert await read(bus, Stream.JOBS, seq) == subject


async def test_three_reasons_in_one_group_meet_those_they_concern(bus: Bus) -> None:
    await bus.write("st.stale", b"first")
    writer = bus.grouped(Stream.STATE)
    writes = [GroupedWrite(f"st.{n}", b"%d" % n, {"Sb-Record": "{}"}, 0) for n in range(60)]
    writes[10] = GroupedWrite("st.stale", b"second", {"Sb-Record": "{}"}, 0)
    writes[20] = GroupedWrite("st.20", b"x" * (assets.JOB_MAX_BYTES + 10), {"Sb-Record": "{}"}, 0)
    writes[30] = GroupedWrite("st.30", b"from nowhere", {"Sb-Record": "{}"}, 999)
    outcomes = await writer.write_all(writes)
    found = {number: type(o) for number, o in enumerate(outcomes) if not isinstance(o, int)}
    assert found == {10: StaleRevision, 20: TooLarge, 30: StaleRevision}
    for write, outcome in zip(writes, outcomes, strict=True):
        if isinstance(outcome, int):
            assert await read(bus, Stream.STATE, outcome) == write.subject
    assert await stored(bus, Stream.STATE) == 1 + 57


async def test_a_stream_that_is_gone_takes_nothing_and_says_so_to_all(bus: Bus) -> None:
    await bus.request_json(f"$JS.API.STREAM.DELETE.{Stream.STATE}")
    writer = bus.grouped(Stream.STATE)
    outcomes = await asyncio.gather(*(writer.write(f"st.{n}", expect=0) for n in range(40)), return_exceptions=True)
    assert all(isinstance(outcome, Unavailable) for outcome in outcomes), set(map(repr, outcomes))


@pytest.mark.parametrize("size", [9, 10, 200])
async def test_two_groups_for_the_same_subjects_share_them_without_a_loss(bus: Bus, size: int) -> None:
    other = await Bus.connect(bus.settings, role="admin")
    subjects = [f"st.{n}" for n in range(size)]

    async def group(via: Bus) -> list[int | BaseException]:
        writer = via.grouped(Stream.STATE)
        return await asyncio.gather(*(writer.write(subject, expect=0) for subject in subjects), return_exceptions=True)

    mine, theirs = await asyncio.gather(group(bus), group(other))
    for a, b in zip(mine, theirs, strict=True):
        assert isinstance(a, int) != isinstance(b, int), "one wins each subject"
        assert isinstance(b if isinstance(a, int) else a, StaleRevision)
    assert await stored(bus, Stream.STATE) == size
    await other.close()
