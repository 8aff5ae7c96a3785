"""Group commit never loses, doubles or misattributes a write, whatever its neighbours do."""

import asyncio
from collections import Counter
from typing import NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from signalbox.bus.client import Bus
from signalbox.bus.transport.connection import Connection
from signalbox.bus.writes import BATCH_FROM, GroupedWrite
from signalbox.program.errors import Ambiguous, SignalboxError, StaleRevision, TooLarge, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.names import Stream
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import PATIENT_S


class Ask(NamedTuple):
    """subject: few, so that writes meet. expect: right for a first write, wrong for ever, or none."""

    subject: int
    expect: int | None
    msg_id: int | None


@st.composite
def waves_of_asks(draw: st.DrawFn) -> list[list[Ask]]:
    """Waves of concurrent writes: some without a fault, so that batches pass; some with a few; some with many."""
    random = draw(st.randoms(use_true_random=False))
    waves = []
    for _ in range(draw(st.integers(1, 3))):
        faults, twins = (draw(st.sampled_from([0.0, 0.0, 0.03, 0.3])), draw(st.sampled_from([0.0, 0.0, 0.1])))
        waves.append(
            [
                Ask(
                    subject=random.randrange(200),
                    expect=999_999 if random.random() < faults else random.choice([None, None, 0 if twins else None]),
                    msg_id=random.randrange(20) if random.random() < twins else None,
                )
                for _ in range(draw(st.sampled_from([1, 5, 15, 40, 90])))
            ]
        )
    return waves


async def _everything(bus: Bus, stream: Stream) -> dict[int, tuple[str, bytes]]:
    """All messages of a stream by sequence, each read from the leader."""
    import base64

    state = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["state"]
    found = {}
    for seq in range(state["first_seq"], state["last_seq"] + 1):
        answer = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{stream}", {"seq": seq})
        message = answer["message"]
        found[seq] = (message["subject"], base64.b64decode(message.get("data", "")))
    return found


@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(waves=waves_of_asks())
@example(waves=[[Ask(number, None, None) for number in range(60)]])
async def test_each_caller_gets_its_own_answer(bus: Bus, waves: list[list[Ask]]) -> None:
    await bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.JOBS}")
    writer = bus.grouped(Stream.JOBS)
    run = bus.new_inbox().hex()  # message ids are remembered beyond a purge
    asks = [ask for wave in waves for ask in wave]

    async def write(number: int, ask: Ask) -> int | SignalboxError:
        try:
            return await writer.write(
                f"jobs.m.hi.{run}-{ask.subject}",
                b"%d" % number,
                expect=ask.expect,
                msg_id=None if ask.msg_id is None else f"{run}-{ask.msg_id}",
            )
        except SignalboxError as error:
            return error

    outcomes: list[int | SignalboxError] = []
    for wave in waves:
        start, batches = len(outcomes), writer.batches
        outcomes += await asyncio.gather(*(write(start + n, ask) for n, ask in enumerate(wave)))
        is_plain = all(ask.expect is None and ask.msg_id is None for ask in wave)
        if is_plain and len({ask.subject for ask in wave}) >= 40:  # a batch takes each subject once
            assert writer.batches > batches
    stored = await _everything(bus, Stream.JOBS)

    claimed: Counter[int] = Counter()
    for number, (ask, outcome) in enumerate(zip(asks, outcomes, strict=True)):
        mine = [seq for seq, (_, body) in stored.items() if body == b"%d" % number]
        if isinstance(outcome, int):
            if mine:
                assert mine == [outcome]
            else:  # a duplicate: the sequence is that of the first with this id
                twin = int(stored[outcome][1])
                assert asks[twin].msg_id == ask.msg_id is not None
            claimed[outcome] += 1
        else:
            assert isinstance(outcome, StaleRevision)
            assert ask.expect is not None
            assert not mine
    assert set(claimed) == set(stored)
    for subject in {s for s, _ in stored.values()}:
        firsts = [n for n, a in enumerate(asks) if a.expect == 0 and f"{run}-{a.subject}" in subject.split(".")]
        won = [n for n in firsts if any(b == b"%d" % n for _, b in stored.values())]
        assert len(won) <= 1, "two writes that both expected an empty subject were stored"


async def test_one_alone_is_a_single_and_many_are_a_batch(bus: Bus) -> None:
    writer = bus.grouped(Stream.STATE)
    await writer.write("st.alone", expect=0)
    assert writer.batches == 0
    seqs = await asyncio.gather(*(writer.write(f"st.{n}", b"%d" % n, expect=0) for n in range(100)))
    assert writer.batches > 0
    assert writer.refused == 0
    assert sorted(seqs) == list(range(2, 102))
    for stored in await bus.list_latest(Stream.STATE, ["st.*"]):
        if stored.data:
            assert stored.seq == seqs[int(stored.data)]


async def test_one_wrong_expectation_costs_only_its_own_writer(bus: Bus) -> None:
    writer = bus.grouped(Stream.STATE)
    taken = await bus.write("st.50", b"taken")
    results = await asyncio.gather(*(writer.write(f"st.{n}", expect=0) for n in range(100)), return_exceptions=True)
    assert writer.refused >= 1
    bad = results.pop(50)
    assert isinstance(bad, StaleRevision)
    assert bad.last == taken
    assert all(isinstance(seq, int) for seq in results)
    assert len(set(results)) == 99


async def test_one_too_large_costs_only_its_own_writer(bus: Bus) -> None:
    writer = bus.grouped(Stream.STATE)
    bodies = [b"x"] * 40
    bodies[7] = b"x" * (1024 * 1024 + 100)  # the stream refuses it
    bodies[30] = b"x" * (2 * 1024 * 1024)  # the server refuses it
    results = await asyncio.gather(
        *(writer.write(f"st.{n}", body, expect=0) for n, body in enumerate(bodies)), return_exceptions=True
    )
    for number, result in enumerate(results):
        assert isinstance(result, TooLarge if number in {7, 30} else int)


async def test_a_cancelled_caller_leaves_the_others_alone(bus: Bus) -> None:
    writer = bus.grouped(Stream.STATE)
    tasks = [asyncio.create_task(writer.write(f"st.{n}", expect=0)) for n in range(60)]
    await asyncio.sleep(0)
    for task in tasks[::3]:
        task.cancel()
    results = await asyncio.gather(*tasks, return_exceptions=True)
    for number, result in enumerate(results):
        assert isinstance(result, asyncio.CancelledError if number % 3 == 0 else int)
    # No slot was leaked: singles and batches still go.
    again = await asyncio.gather(*(writer.write(f"st.n{n}", expect=0) for n in range(60)))
    assert len(set(again)) == 60
    assert writer._singles == 0


async def test_many_handed_in_at_once_get_their_outcomes_in_order(bus: Bus) -> None:
    writer = bus.grouped(Stream.STATE)
    await bus.write("st.3", b"taken")
    writes = [GroupedWrite(f"st.{n}", b"%d" % n, {"Sb-Record": "{}"}, 0) for n in range(BATCH_FROM * 2)]
    outcomes = await writer.write_all(writes)
    assert isinstance(outcomes[3], StaleRevision)
    for stored in await bus.list_latest(Stream.STATE, ["st.*"]):
        if stored.subject != "st.3":
            assert outcomes[int(stored.data)] == stored.seq
    assert writer._singles == 0


@pytest.mark.parametrize("is_killed", [True, False], ids=["killed", "stopped"])
async def test_a_restart_in_mid_load_loses_and_doubles_nothing(own_nats: NatsServer, is_killed: bool) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    writer = bus.grouped(Stream.JOBS)
    outcomes: dict[str, int | SignalboxError] = {}
    stop = asyncio.Event()
    marks = [asyncio.Event() for _ in range(3)]
    to_reach = list(marks)
    stored_count = 0

    async def load(name: int) -> None:
        nonlocal stored_count
        number = 0
        while not stop.is_set():
            number += 1
            subject = f"jobs.m.hi.{name}-{number}"
            try:
                outcomes[subject] = await writer.write(subject, subject.encode(), expect=0)
                stored_count += 1
                if stored_count % 500 == 0 and to_reach:
                    to_reach.pop(0).set()
            except SignalboxError as error:
                outcomes[subject] = error
                await asyncio.sleep(0.005)

    async with asyncio.TaskGroup() as group:
        for name in range(40):
            group.create_task(load(name))
        for _ in range(2):
            await marks.pop(0).wait()
            await (own_nats.kill() if is_killed else own_nats.stop())
            await own_nats.start()
        await marks.pop(0).wait()
        stop.set()
    assert writer.batches > 0
    assert not bus._waiting
    stored = await _everything(bus, Stream.JOBS)
    by_subject = Counter(subject for subject, _ in stored.values())
    assert max(by_subject.values()) == 1
    for subject, outcome in outcomes.items():
        if isinstance(outcome, int):
            assert stored[outcome] == (subject, subject.encode())
        else:
            assert isinstance(outcome, Unavailable)
            assert isinstance(outcome, Ambiguous) or subject not in by_subject
    await bus.close()


async def test_a_batch_without_an_answer_is_ambiguous_for_each(
    own_nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=0.5), role="admin")
    writer = bus.grouped(Stream.STATE)
    original = Connection.send

    def without_commits(self: Connection, *parts: bytes) -> None:
        if not any(b"Nats-Batch-Commit" in part for part in parts):
            original(self, *parts)

    monkeypatch.setattr(Connection, "send", without_commits)
    results = await writer.write_all([GroupedWrite(f"st.{n}", b"", {}, 0) for n in range(20)])
    assert all(isinstance(result, Ambiguous) for result in results)
    assert len({id(result) for result in results}) == 20
    monkeypatch.undo()
    await bus.close()
    bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=PATIENT_S), role="admin")
    assert await bus.list_latest(Stream.STATE, ["st.*"]) == []
    again = await bus.grouped(Stream.STATE).write_all([GroupedWrite(f"st.{n}", b"", {}, 0) for n in range(20)])
    assert all(isinstance(result, int) for result in again)
    await bus.close()
