"""What is asked of NATS for a group: never more than is free, and high items first."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from gateway_plugin.queues.watching import pulling
from gateway_plugin.queues.watching.groups import Place
from gateway_plugin.queues.watching.pulling import Pulling

PLACE = Place("q", "source", "eas")


class Puller:
    """One consumer's requests, as :class:`signalbox.bus.pull.Puller` counts them."""

    def __init__(self, consumer: str, log: list[tuple[str, int, float]]) -> None:
        self.rank = consumer.rpartition("-")[2]
        self.outstanding = 0
        self.on_idle: Callable[[], None] | None = None
        self.last_refusal = ""
        self.is_unanswered = False
        self.is_closed = False
        self._log = log

    def ask(self, n: int, *, expires_s: float) -> None:
        self.outstanding += n
        self._log.append((self.rank, n, expires_s))

    def end(self) -> None:
        """The server has no more."""
        self.outstanding = 0
        assert self.on_idle is not None
        self.on_idle()

    def deliver(self) -> None:
        self.outstanding -= 1

    async def drain(self) -> None:
        await asyncio.sleep(0)

    async def close(self) -> None:
        self.is_closed = True
        self.outstanding = 0


class Bus:
    is_connected = True

    def __init__(self) -> None:
        self.asked: list[tuple[str, int, float]] = []
        self.pullers: list[Puller] = []

    def puller(self, consumer: str, *_: Any, **__: Any) -> Puller:
        self.pullers.append(Puller(consumer, self.asked))
        return self.pullers[-1]

    @contextmanager
    def said(self) -> Iterator[list[tuple[str, int, float]]]:
        """What is asked for meanwhile."""
        before = len(self.asked)
        found: list[tuple[str, int, float]] = []
        yield found
        found += self.asked[before:]


class Rig:
    def __init__(self, free: int) -> None:
        self.bus = Bus()
        self.free = free
        self.made = Pulling(self.bus, PLACE, lambda _: None, lambda: self.free)  # type: ignore[arg-type]
        self.high, self.low = self.bus.pullers

    async def parked(self) -> "Rig":
        """With no high items."""
        self.made.advance()
        await turns()
        self.high.end()
        await turns()
        assert self.made.is_parked
        return self


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_low_items_are_asked_for_when_there_are_no_high_ones() -> None:
    rig = Rig(free=3)
    rig.made.advance()
    rig.made.advance()
    await turns()
    assert rig.bus.asked == [("hi", 3, 0)]
    rig.high.deliver()
    rig.free = 2
    rig.high.end()
    await turns()
    assert rig.bus.asked[1:] == [("lo", 2, pulling._PARK_S)]


async def test_an_event_that_came_meanwhile_has_high_items_asked_for_again() -> None:
    rig = Rig(free=1)
    rig.made.advance()
    await turns()
    rig.made.high_came()
    rig.high.end()
    await turns()
    assert rig.bus.asked == [("hi", 1, 0), ("hi", 1, 0)]


async def test_an_event_that_came_before_the_consumer_knew_has_high_items_asked_for_once_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pulling, "_AGAIN_S", 0.0)
    rig = await Rig(free=1).parked()
    with rig.bus.said() as asked:
        rig.made.high_came()
        await turns()
        for _ in range(2):
            rig.high.end()
            await turns()
            await turns()
    low = ("lo", 1, pulling._PARK_S)
    assert asked == [("hi", 1, 0), low, ("hi", 1, 0), low]


async def test_a_high_item_has_the_request_for_low_ones_taken_back_first() -> None:
    rig = await Rig(free=2).parked()
    with rig.bus.said() as asked:
        rig.made.high_came()
        await turns()
    assert rig.low.is_closed
    assert asked == [("hi", 2, 0)]
    assert rig.made.owed == 2, "never more than is free"


async def test_with_room_beside_the_request_for_low_items_it_stays() -> None:
    rig = await Rig(free=2).parked()
    rig.free = 3
    with rig.bus.said() as asked:
        rig.made.high_came()
        await turns()
    assert not rig.low.is_closed
    assert asked == [("hi", 1, 0)]


async def test_nothing_is_asked_for_without_room_and_less_room_takes_requests_back() -> None:
    rig = await Rig(free=2).parked()
    rig.free = 1
    with rig.bus.said() as asked:
        rig.made.advance()
        await turns()
    assert rig.low.is_closed
    assert asked == [("lo", 1, pulling._PARK_S)]
    rig.free = 0
    await rig.made.settle()
    assert rig.made.owed == 0
    with rig.bus.said() as asked:
        rig.made.high_came()
        await turns()
    assert asked == []


@pytest.mark.parametrize("why", ["unanswered", "refused", "away"])
async def test_who_is_not_told_that_there_are_none_goes_on_asking_for_high_items(why: str) -> None:
    rig = Rig(free=1)
    rig.made.advance()
    await turns()
    if why == "unanswered":
        rig.high.is_unanswered = True
    elif why == "refused":
        rig.high.last_refusal = "409 Consumer Deleted"
    else:
        rig.bus.is_connected = False
    rig.high.end()
    await turns()
    assert [asked[0] for asked in rig.bus.asked] == ["hi", "hi"]
    assert bool(rig.made.refusal) == (why == "refused")


async def test_a_closed_one_asks_for_nothing() -> None:
    rig = Rig(free=1)
    await rig.made.close()
    rig.made.high_came()
    await turns()
    assert rig.bus.asked == []
    assert rig.high.is_closed
