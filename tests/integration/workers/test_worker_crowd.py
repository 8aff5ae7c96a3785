"""What a holder is given where very many models are awake: no request is parked, and queues are read in turn."""

import asyncio
from typing import Any

import pytest

from signalbox.bus import pull
from signalbox.bus.client import Bus, Puller
from signalbox.wire import names
from signalbox.wire.names import Priority
from tests.rigs.holder import LIMIT_S, NONE_WAIT, Holder, none_parked
from tests.rigs.streams import counted
from tests.rigs.submit import Ledger, floats
from workers.queue import awake, intake
from workers.queue.awake import AwakeModel, Received


@pytest.fixture
def crowd(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Models, of which two awake are many."""
    monkeypatch.setattr(intake, "MANY_AWAKE", 2)
    monkeypatch.setattr(intake, "PARKED_S", 0.25)
    return [f"m{number}" for number in range(6)]


async def awake_crowd(bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str]) -> None:
    """All of them are awake, each class was asked, and no request waits at one."""
    jobs = {await ledger.submit(model, floats(1.0)) for model in crowd}
    await holder.intake.follow(crowd)
    assert {(await holder.next())[0] for _ in crowd} == jobs
    await holder.intake.rest()
    last = await ledger.submit(crowd[0], floats(1.0), priority="lo")  # after all others but those of "lo"
    assert (await holder.next())[0] == last
    for model in crowd:
        await none_parked(bus, model)


async def put_deep(bus: Bus, ledger: Ledger, holder: Holder, number: int) -> list[str]:
    """So many jobs of ``m0``, all of which its consumer knows: it learns of them a little after they are stored.

    The holder asks for none from then on: what it was still asking for could be given the first of them.
    """
    await holder.asks_no_more("m0")
    jobs = [await ledger.submit("m0", floats(1.0)) for _ in range(number)]
    await counted(bus, "m0", "mid", waiting=number)
    return jobs


async def test_where_many_are_awake_no_request_is_parked_and_each_job_comes(
    bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str]
) -> None:
    await awake_crowd(bus, ledger, holder, crowd)
    for _ in range(20):
        jobs = {
            await ledger.submit(model, floats(1.0), priority=priority) for model in crowd for priority in ("hi", "mid")
        }
        assert {await holder.next() for _ in jobs} == {(job, False) for job in jobs}
    for model in crowd:
        await none_parked(bus, model)


async def test_where_many_are_awake_a_deep_queue_is_read_a_few_jobs_at_a_time(
    bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await awake_crowd(bus, ledger, holder, crowd)
    holder.wanted = 4 * awake.TURN
    asked: list[int] = []
    ask = Puller.ask

    def noted(puller: Puller, n: int, **kwargs: Any) -> None:
        ask(puller, n, **kwargs)
        asked.append(puller.outstanding)

    monkeypatch.setattr(Puller, "ask", noted)
    jobs = set(await put_deep(bus, ledger, holder, 3 * awake.TURN))
    holder.is_greedy = True
    holder.intake.ask("m0", holder.wanted, NONE_WAIT)
    assert {(await holder.next())[0] for _ in jobs} == jobs
    assert max(asked) == awake.TURN


async def test_where_many_are_awake_what_one_turn_brings_is_passed_on_together(
    bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await awake_crowd(bus, ledger, holder, crowd)
    passed: list[int] = []
    release = AwakeModel.release

    def noted(model: AwakeModel, priority: Priority) -> list[Received]:
        given = release(model, priority)
        if given:
            passed.append(len(given))
        return given

    monkeypatch.setattr(AwakeModel, "release", noted)
    jobs = set(await put_deep(bus, ledger, holder, 1 + 2 * awake.TURN))
    passed.clear()
    holder.is_greedy = True
    holder.wanted = 4 * awake.TURN
    holder.intake.ask("m0", holder.wanted, NONE_WAIT)
    assert {(await holder.next())[0] for _ in jobs} == jobs
    assert sorted(passed)[-2:] == [awake.TURN, awake.TURN]


@pytest.mark.parametrize("is_left", [True, False])
async def test_where_many_are_awake_what_came_of_a_turn_that_never_ends_is_passed_on_too(
    bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str], monkeypatch: pytest.MonkeyPatch, *, is_left: bool
) -> None:
    """When its model is left, or the server owes the rest for too long."""
    jobs: list[str] = []
    came = asyncio.Event()
    receive = Puller._receive

    def some(puller: Puller, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        job_id = names.job_of(subject.decode())
        if job_id not in jobs[4:]:
            receive(puller, subject, reply, head, data)
        elif job_id == jobs[-1]:
            came.set()

    monkeypatch.setattr(Puller, "_receive", some)
    await awake_crowd(bus, ledger, holder, crowd)
    jobs += await put_deep(bus, ledger, holder, 1 + awake.TURN)
    monkeypatch.setattr(pull, "_ANSWERED_S", LIMIT_S if is_left else 0.2)
    holder.wanted = 2 * awake.TURN
    holder.is_greedy = True
    holder.intake.ask("m0", holder.wanted, NONE_WAIT)
    assert (await holder.next())[0] == jobs[0], "it told of the others"
    async with asyncio.timeout(LIMIT_S):
        await came.wait()
    if is_left:
        assert holder.came.empty()
        await holder.intake.follow([])
    assert [(await holder.next())[0] for _ in range(3)] == jobs[1:4]


async def test_where_many_are_awake_two_share_their_jobs_and_none_is_lost(
    bus: Bus, ledger: Ledger, crowd: list[str]
) -> None:
    """Nobody looks for what was lost here. What another was given while it is asked for is asked for twice."""
    came: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    holders = [Holder(bus, came), Holder(bus, came)]
    missing: set[str] = set()

    async def submit(model: str) -> None:
        for _ in range(30):
            missing.add(await ledger.submit(model, floats(1.0)))

    try:
        for holder in holders:
            await holder.intake.follow(crowd)
        await asyncio.gather(*map(submit, crowd))
        async with asyncio.timeout(LIMIT_S):
            while missing:
                missing.discard((await came.get())[0])
    finally:
        for holder in holders:
            await holder.intake.close()


async def test_where_many_are_awake_a_job_that_its_consumer_does_not_know_yet_is_asked_for_again(
    bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    await awake_crowd(bus, ledger, holder, crowd)
    asked: list[int] = []
    ask = Puller.ask

    def noted(puller: Puller, n: int, **kwargs: Any) -> None:
        if puller.consumer == names.consumer("m0", "mid", 0):
            asked.append(n)
        ask(puller, n, **kwargs)

    monkeypatch.setattr(Puller, "ask", noted)
    await bus.publish(f"{names.EVENT_JOBS}.{names.token('m0')}.mid.nobody.none")
    async with asyncio.timeout(LIMIT_S):
        while len(asked) < intake.HINT_TRIES:
            await bus.flush()
    assert asked == [1] * intake.HINT_TRIES


async def test_where_many_are_awake_jobs_that_their_consumer_does_not_count_yet_are_asked_for_too(
    bus: Bus, ledger: Ledger, holder: Holder, crowd: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them were announced before the first was asked for; with each it says that none is left."""
    receive = Puller._receive

    def counts_none(puller: Puller, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        receive(puller, subject, reply and reply.rpartition(b".")[0] + b".0", head, data)

    monkeypatch.setattr(Puller, "_receive", counts_none)
    await awake_crowd(bus, ledger, holder, crowd)
    jobs = await put_deep(bus, ledger, holder, 4)
    holder.is_greedy = True
    holder.intake.ask("m0", holder.wanted, NONE_WAIT)
    assert [(await holder.next())[0] for _ in jobs] == jobs
