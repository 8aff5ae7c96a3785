"""The consumers that deliver jobs: made where there is none, and made anew, which delivers all jobs again."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.jobs import delivery
from signalbox.program.errors import SignalboxError
from signalbox.wire import names
from signalbox.wire.names import PRIORITIES, Stream
from tests.rigs.presence import presence
from tests.rigs.streams import counted, last_sequence
from tests.rigs.submit import Ledger, floats

NAME = names.consumer("one", "mid", 0)


class Taken:
    """What a puller was given."""

    def __init__(self) -> None:
        self.arrived: asyncio.Queue[Delivery] = asyncio.Queue()
        self.idle = asyncio.Event()

    async def next(self, count: int) -> list[str]:
        """The jobs of so many deliveries, as they come."""
        async with asyncio.timeout(60):
            return [(await self.arrived.get()).job.id for _ in range(count)]

    async def is_idle(self) -> None:
        """Return when the server owes less for another reason than a delivery."""
        async with asyncio.timeout(60):
            await self.idle.wait()
        self.idle.clear()


@asynccontextmanager
async def pulling(bus: Bus, name: str = NAME) -> AsyncIterator[tuple[Puller, Taken]]:
    taken = Taken()
    puller = await bus.pull(name, taken.arrived.put_nowait)
    puller.on_idle = taken.idle.set
    try:
        yield puller, taken
    finally:
        await puller.close()


async def submitted(bus: Bus, count: int) -> list[str]:
    """Jobs of one class, which its consumer counts."""
    ids = [await Ledger(bus).submit("one", floats(1.0)) for _ in range(count)]
    await counted(bus, "one", "mid", waiting=count)
    return ids


async def test_a_consumer_lives_in_memory_and_takes_no_acknowledgement(bus: Bus) -> None:
    found = await delivery.find_all(bus, "one", 0)
    assert list(found) == list(PRIORITIES)
    for priority, info in found.items():
        assert info.name == names.consumer("one", priority, 0)
        config = (await bus.request_json(f"$JS.API.CONSUMER.INFO.JOBS.{info.name}"))["config"]
        assert (config["ack_policy"], config["deliver_policy"]) == ("none", "all")
        assert (config["mem_storage"], config["num_replicas"]) == (True, 1)
        assert config["filter_subject"] == names.jobs_of("one", priority)
        assert config["inactive_threshold"] == 60 * 10**9
        assert "durable_name" not in config


async def test_how_far_records_are_read_is_told_by_the_consumer(bus: Bus) -> None:
    """Of a first one all that was there may have been delivered before; of one made anew what the old one delivered."""
    await submitted(bus, 3)
    first = await delivery.find(bus, "one", "mid", 0)
    assert first.examined_to == (await delivery.find(bus, "one", "mid", 0)).examined_to
    before = await delivery.make_anew(bus, "one", "mid", 0)
    assert before.examined_to == first.examined_to
    later = await Ledger(bus).submit("one", floats(1.0))
    await Ledger(bus).submit("one", floats(1.0))
    seq = await last_sequence(bus, Stream.JOBS) - 1
    async with pulling(bus) as (puller, taken):
        puller.ask(4)
        assert (await taken.next(4))[-1] == later
    assert (await delivery.make_anew(bus, "one", "mid", 0)).examined_to == seq
    assert (await delivery.make_anew(bus, "one", "mid", 0)).examined_to == seq  # although this one delivered nothing
    # One that nobody has pulled from for a minute is gone, and what it knew.
    await bus.request_json(f"$JS.API.CONSUMER.DELETE.JOBS.{NAME}")
    assert (await delivery.find(bus, "one", "mid", 0)).examined_to == seq + 1


async def test_one_of_another_generation_is_another(bus: Bus) -> None:
    ids = await submitted(bus, 2)
    async with pulling(bus) as (puller, taken):
        puller.ask(2)
        assert await taken.next(2) == ids
    await counted(bus, "one", "mid", waiting=2, generation=1)
    await counted(bus, "one", "mid", waiting=0)


async def test_two_that_find_none_at_once_get_the_same(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server refuses the second, whose metadata differs (10148); it takes what the first has made."""
    starts, both = iter([7, 9]), asyncio.Barrier(2)

    async def start(_: Bus) -> int:
        await both.wait()  # neither makes one before both have found none
        return next(starts)

    monkeypatch.setattr(delivery, "_last_seq", start)
    one, other = await asyncio.gather(*(delivery.find(bus, "one", "mid", 0) for _ in range(2)))
    assert next(starts, None) is None
    assert one.examined_to == other.examined_to == (await bus.consumer_info(NAME)).examined_to


async def test_two_that_make_one_anew_at_once_lose_no_job(bus: Bus) -> None:
    ids = await submitted(bus, 3)
    await asyncio.gather(*(delivery.make_anew(bus, "one", "mid", 0) for _ in range(2)))
    async with pulling(bus) as (puller, taken):
        puller.ask(3)
        assert await taken.next(3) == ids


async def test_a_consumer_that_cannot_be_made_is_an_error(bus: Bus) -> None:
    await bus.request_json("$JS.API.STREAM.DELETE.JOBS")
    with pytest.raises(SignalboxError):
        await delivery.find(bus, "one", "mid", 0)


async def test_models_that_have_jobs_are_found_however_many_jobs_there_are(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    models = {"one", "m.1", "none"}
    assert await delivery.queued_models(bus, models) == set()
    await Ledger(bus).submit("one", floats(1.0))
    await Ledger(bus).submit("m.1", floats(1.0))
    await Ledger(bus).submit("other", floats(1.0))
    assert await delivery.queued_models(bus, models) == {"one", "m.1"}
    monkeypatch.setattr(delivery, "FEW", 2)
    assert await delivery.queued_models(bus, models) == {"one", "m.1"}
    assert await delivery.queued_models(bus, []) == set()


def test_the_fleet_follows_the_highest_generation() -> None:
    fleet = [presence(f"w{number}", generation=number) for number in (0, 2, 1)]
    assert delivery.generation_of(fleet) == 2
    assert delivery.generation_of([]) == 0
