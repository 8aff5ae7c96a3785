"""What a holder is given: models that sleep and wake, consumers made anew by others, consumers that do not answer."""

import asyncio
from collections import Counter
from typing import Any

import pytest

from signalbox.bus.client import Bus, ConsumerInfo, Puller
from signalbox.jobs import delivery
from signalbox.jobs.commits import persist
from signalbox.program.errors import Unavailable
from signalbox.wire import names
from tests.rigs.holder import LIMIT_S, NONE_WAIT, Holder, none_parked
from tests.rigs.streams import counted
from tests.rigs.submit import Ledger, floats
from workers.host.hints import Hints
from workers.queue import intake, readturns


async def test_a_model_wakes_with_its_first_job_and_sleeps_when_none_came_for_long(
    ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "PARKED_S", 0.25)
    waiting = await ledger.submit("half", floats(1.0))
    await holder.intake.follow(["half", "quiet"])
    assert await holder.next() == (waiting, True), "an earlier holder may have had it"
    assert not holder.intake.is_asking("quiet")
    new = await ledger.submit("half", floats(1.0))
    assert await holder.next() == (new, False)
    await holder.intake.rest()
    assert holder.intake.is_asking("half")
    monkeypatch.setattr(intake, "SLEEP_S", -1.0)
    await holder.sleeps("half")
    jobs = [await ledger.submit(name, floats(1.0)) for name in ("half", "quiet")]
    assert {(await holder.next())[0] for _ in jobs} == set(jobs)


async def test_a_model_with_a_job_that_waits_does_not_sleep(
    bus: Bus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody is told of the second job, as where the leader of the stream changes."""
    monkeypatch.setattr(Hints, "_received", lambda *_: None)
    monkeypatch.setattr(intake, "PARKED_S", 0.25)
    holder = Holder(bus)
    try:
        first = await ledger.submit("half", floats(1.0))
        await holder.intake.follow(["half"])
        assert (await holder.next())[0] == first
        monkeypatch.setattr(Puller, "ask", lambda *_, **__: None)
        await none_parked(bus)
        await ledger.submit("half", floats(1.0))
        await counted(bus, "half", "mid", waiting=1)
        monkeypatch.setattr(intake, "SLEEP_S", -1.0)
        for _ in range(20):
            await holder.intake.rest()
        assert holder.intake.is_asking("half")
    finally:
        await holder.intake.close()


async def test_of_many_models_with_jobs_few_are_read_at_a_time_and_all_of_them_come(
    bus: Bus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = [f"m{number}" for number in range(3 * readturns.AT_ONCE)]
    jobs = {await ledger.submit(model, floats(1.0)) for model in models for _ in range(3)}
    left = Counter({names.consumer(model, "mid", 0): 3 for model in models})
    reading: set[str] = set()
    most = 0
    asked, received = Puller.ask, Puller._receive

    def ask(puller: Puller, n: int, *, expires_s: float = 5.0, is_one_shot: bool = False) -> None:
        nonlocal most
        if left[puller.consumer]:
            reading.add(puller.consumer)
            most = max(most, len(reading))
        asked(puller, n, expires_s=expires_s, is_one_shot=is_one_shot)

    def receive(puller: Puller, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        left[puller.consumer] -= not head.startswith(b"NATS/1.0 ")
        reading.discard(puller.consumer)
        received(puller, subject, reply, head, data)

    monkeypatch.setattr(Puller, "ask", ask)
    monkeypatch.setattr(Puller, "_receive", receive)
    holder = Holder(bus)
    try:
        await holder.intake.follow(models)
        assert {(await holder.next())[0] for _ in jobs} == jobs
    finally:
        await holder.intake.close()
    assert most == readturns.AT_ONCE


async def test_what_another_makes_anew_comes_again_and_is_known(bus: Bus, ledger: Ledger, holder: Holder) -> None:
    await holder.intake.follow(["half"])
    first = await ledger.submit("half", floats(1.0))
    assert (await holder.next())[0] == first
    await delivery.make_all_anew(bus, "half", 0)
    assert await holder.next() == (first, True)
    second = await ledger.submit("half", floats(1.0))
    assert await holder.next() == (second, False)


async def test_a_queue_that_was_refused_is_asked_no_more_until_it_is_open_again(
    bus: Bus, ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new consumer would give jobs to a request that is about to be taken back."""
    asked: list[str] = []
    ask = Puller.ask

    def noted(puller: Puller, *args: Any, **kwargs: Any) -> None:
        asked.append(puller.last_refusal)
        ask(puller, *args, **kwargs)

    monkeypatch.setattr(Puller, "ask", noted)
    await holder.intake.follow(["half"])
    first = await ledger.submit("half", floats(1.0))
    assert (await holder.next())[0] == first
    for _ in range(20):
        await delivery.make_all_anew(bus, "half", 0)
        assert await holder.next() == (first, True)
    assert {*asked} == {""}


async def test_no_job_is_lost_to_who_leaves_shared_models(
    bus: Bus, ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody looks for what was lost here."""
    monkeypatch.setattr(intake, "PARKED_S", 0.25)
    came: asyncio.Queue[tuple[str, bool]] = asyncio.Queue()
    first, second = Holder(bus, came), Holder(bus, came)
    missing: set[str] = set()

    async def submit() -> None:
        for _ in range(100):
            missing.add(await ledger.submit("half", floats(1.0)))

    try:
        for holder in (first, second):
            await holder.intake.follow(["half"])
        accepting = asyncio.gather(*(submit() for _ in range(4)))
        while not accepting.done():
            first.intake.leave_shared()
            await bus.flush()
            first.intake.take_shared()
            await first.intake.rest()
        await accepting
        async with asyncio.timeout(LIMIT_S):
            while missing:
                missing.discard((await came.get())[0])
    finally:
        for holder in (first, second):
            await holder.intake.close()


async def test_who_leaves_shared_models_asks_for_nothing_that_others_serve_and_then_for_what_it_learned_of(
    bus: Bus, ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "PARKED_S", 0.25)
    jobs = [await ledger.submit(model, floats(1.0)) for model in ("half", "mine")]
    await holder.intake.follow(["half", "mine"])
    assert {(await holder.next())[0] for _ in jobs} == set(jobs)
    holder.intake.leave_shared()
    await holder.intake.rest()
    await none_parked(bus)  # any more: it was not taken back
    shared = await ledger.submit("half", floats(1.0))
    alone = await ledger.submit("mine", floats(1.0))
    assert await holder.next() == (alone, False)
    await counted(bus, "half", "mid", waiting=1)
    holder.intake.take_shared()
    assert await holder.next() == (shared, False)
    hinted = await ledger.submit("half", floats(1.0))
    assert await holder.next() == (hinted, False)
    await none_parked(bus)


async def test_queues_whose_turn_has_not_come_wait_for_it_until_the_long_run_is_over(
    ledger: Ledger, holder: Holder
) -> None:
    models = [f"m{number}" for number in range(4 * readturns.AT_ONCE)]
    jobs = {await ledger.submit(model, floats(1.0)) for model in models}
    holder.is_greedy = False
    await holder.intake.follow(models)
    async with asyncio.timeout(LIMIT_S):
        while {*holder.intake.asking()} != {*models}:
            await ledger.bus.flush()
    for model in models:
        holder.intake.ask(model, 1, NONE_WAIT)
    holder.intake.leave_shared()
    for _ in range(readturns.AT_ONCE):
        jobs.remove((await holder.next())[0])
    await ledger.bus.flush()
    await ledger.bus.flush()
    assert holder.came.empty()
    holder.is_greedy = True
    holder.intake.take_shared()
    for _ in range(len(jobs)):
        jobs.remove((await holder.next())[0])


async def test_a_job_that_comes_to_who_leaves_shared_models_is_given_to_others_too(
    bus: Bus, ledger: Ledger, holder: Holder
) -> None:
    """By a request that was parked before the run was known to be long."""
    await holder.intake.follow(["half"])
    jobs = [await ledger.submit("half", floats(1.0))]
    assert await holder.next() == (jobs[0], True)
    holder.intake.leave_shared()
    jobs.append(await ledger.submit("half", floats(1.0)))
    assert await holder.next() == (jobs[1], False)
    other = Holder(bus)
    try:
        await other.intake.follow(["half"])
        assert [await other.next() for _ in jobs] == [(job, True) for job in jobs]
    finally:
        await other.intake.close()


async def test_what_a_model_that_others_serve_on_was_given_is_delivered_again(
    bus: Bus, ledger: Ledger, holder: Holder
) -> None:
    """Of others it would only be counted once more as waiting."""
    models = ["half", "mine", "paused"]
    jobs = {await ledger.submit(model, floats(1.0)) for model in models}
    await holder.intake.follow(models)
    assert {(await holder.next())[0] for _ in models} == jobs
    await holder.intake.follow([])
    async with asyncio.timeout(LIMIT_S):
        while (await delivery.state(bus, "half", "mid", 0)).num_pending != 1:
            pass
    assert [(await delivery.state(bus, model, "mid", 0)).num_pending for model in models] == [1, 0, 0]


async def test_who_had_no_request_at_a_queue_that_is_made_anew_knows_what_comes_again(
    bus: Bus, ledger: Ledger, holder: Holder
) -> None:
    """No request of its own is refused, so it is told."""
    holder.is_greedy = False
    await holder.intake.follow(["half"])
    jobs = [await ledger.submit("half", floats(1.0))]
    async with asyncio.timeout(LIMIT_S):
        while not holder.intake.is_asking("half"):
            await bus.flush()
    other = Holder(bus)
    await other.intake.follow(["half"])
    assert await other.next() == (jobs[0], True)
    jobs.append(await ledger.submit("half", floats(1.0)))
    assert await other.next() == (jobs[1], False)
    await other.intake.close()
    await delivery.make_all_anew(bus, "half", 0)
    holder.is_greedy = True
    holder.intake.take_shared()
    assert [await holder.next() for _ in jobs] == [(job, True) for job in jobs]


async def test_who_parks_no_requests_is_given_what_others_let_go(
    bus: Bus, ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "PARKED_S", 0.25)
    job = await ledger.submit("half", floats(1.0))
    await holder.intake.follow(["half"])
    assert (await holder.next())[0] == job
    holder.intake.leave_shared()
    await holder.intake.rest()
    await none_parked(bus)
    holder.intake.take_shared()
    await none_parked(bus)
    for _ in range(20):
        await delivery.make_all_anew(bus, "half", 0)
        assert await holder.next() == (job, True)
        await none_parked(bus)


async def test_redelivery_is_asked_for_from_outside(bus: Bus, ledger: Ledger, holder: Holder) -> None:
    await holder.intake.follow(["half"])
    first = await ledger.submit("half", floats(1.0))
    assert (await holder.next())[0] == first
    await bus.publish(names.redeliver("half"))
    assert await holder.next() == (first, True)


async def test_jobs_come_under_another_name_where_a_consumer_does_not_answer(
    bus: Bus, ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a cluster whose node with the consumer is cut off: the stream itself answers."""
    asked = bus.consumer_info

    async def unless_cut_off(consumer: str, stream: str = names.Stream.JOBS) -> ConsumerInfo:
        if consumer.endswith("_0"):
            raise Unavailable("NATS did not answer.")
        return await asked(consumer, stream)

    monkeypatch.setattr(bus, "consumer_info", unless_cut_off)
    job = await ledger.submit("half", floats(1.0))
    await holder.intake.follow(["half"])
    assert await holder.next() == (job, True)
    assert holder.fleet.number == 1


async def test_the_fleet_goes_on_with_the_highest_generation(ledger: Ledger, holder: Holder) -> None:
    await holder.intake.follow(["half"])
    first = await ledger.submit("half", floats(1.0))
    assert (await holder.next())[0] == first
    holder.fleet.number = 7
    await holder.intake.follow(["half"])  # as after each change of presence
    assert await holder.next() == (first, True)


@pytest.mark.parametrize("silent_at", range(1, 8))
async def test_one_request_that_nobody_answered_costs_no_job(
    bus: Bus, ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch, silent_at: int
) -> None:
    asked, count = bus.request_json, 0

    async def unless_silent(*args: Any) -> dict[str, Any]:
        nonlocal count
        count += 1
        if count == silent_at:
            raise Unavailable("NATS did not answer.")
        return await asked(*args)

    job = await ledger.submit("half", floats(1.0))
    monkeypatch.setattr(bus, "request_json", unless_silent)
    async with asyncio.timeout(LIMIT_S):
        await persist(lambda: holder.intake.follow(["half"]))
    assert (await holder.next())[0] == job


async def test_no_more_than_some_queues_are_opened_at_once(
    ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers the questions of one connection in order: a lease's renewal would wait behind thousands."""
    models = [f"m{number}" for number in range(3 * intake.OPENED_AT_ONCE)]
    waiting = {await ledger.submit(name, floats(1.0)) for name in models}
    opening: list[int] = [0]
    make = delivery.make_all_anew

    async def counted(*args: Any) -> Any:
        opening.append(opening[-1] + 1)
        try:
            return await make(*args)
        finally:
            opening.append(opening[-1] - 1)

    monkeypatch.setattr(delivery, "make_all_anew", counted)
    await holder.intake.follow(models)
    assert {(await holder.next())[0] for _ in models} == waiting
    assert max(opening) == intake.OPENED_AT_ONCE


async def test_a_queue_that_refuses_each_request_is_opened_again_after_growing_pauses(
    ledger: Ledger, holder: Holder, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[float] = []
    enough = asyncio.Event()
    find = delivery.find_all

    async def of_nobody(*args: Any) -> Any:
        opened.append(asyncio.get_running_loop().time())
        if len(opened) == 5:
            enough.set()
        return {p: info._replace(name="nobody") for p, info in (await find(*args)).items()}

    monkeypatch.setattr(delivery, "find_all", of_nobody)
    await holder.intake.follow(["half"])
    job = await ledger.submit("half", floats(1.0))
    await asyncio.wait_for(enough.wait(), LIMIT_S)
    assert opened[4] - opened[0] > 0.25
    monkeypatch.setattr(delivery, "find_all", find)
    assert (await holder.next())[0] == job
