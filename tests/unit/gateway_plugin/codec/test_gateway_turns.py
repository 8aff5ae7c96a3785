"""Turns at a few processes: who goes next, and what it costs whom."""

import asyncio

import pytest

from gateway_plugin.codec.turns import Turns


class Bench:
    """Turns whose bodies take as long as the test says: ``finish`` ends the turn of a named body."""

    def __init__(self, places: int) -> None:
        self.now = 0.0
        self.turns = Turns(places, monotonic=lambda: self.now)
        self.begun: list[str] = []
        self._ends: dict[str, asyncio.Event] = {}
        self.tasks: dict[str, asyncio.Task[None]] = {}

    async def come(self, name: str, *, timeout_s: float = 60.0) -> None:
        """A body; its account is the first letter of its name."""
        self._ends[name] = asyncio.Event()
        self.tasks[name] = asyncio.create_task(self._body(name, timeout_s))
        await settled()

    async def finish(self, name: str, seconds: float) -> None:
        self.now += seconds
        self._ends[name].set()
        await self.tasks[name]
        await settled()

    async def _body(self, name: str, timeout_s: float) -> None:
        async with self.turns.turn(name[0], timeout_s):
            self.begun.append(name)
            await self._ends[name].wait()


async def settled() -> None:
    """Every task that can go on has done so."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_an_account_leaves_a_place_for_whoever_comes() -> None:
    bench = Bench(3)
    for number in range(12):
        await bench.come(f"a{number}")
    assert bench.begun == ["a0", "a1"]
    await bench.come("b0")
    assert bench.begun == ["a0", "a1", "b0"]


async def test_the_next_turn_is_of_who_was_charged_least_and_not_of_who_came_first() -> None:
    bench = Bench(1)
    for name in ("a0", "a1", "a2", "b0", "b1", "b2"):
        await bench.come(name)
    for seconds in (9, 2, 2, 2):
        await bench.finish(bench.begun[-1], seconds)
    assert bench.begun == ["a0", "b0", "b1", "b2", "a1"]


async def test_a_body_that_failed_is_charged_as_any_other() -> None:
    bench = Bench(1)
    for name in ("a0", "a1", "b0"):
        await bench.come(name)
    bench.now += 5
    bench.tasks["a0"].cancel()
    await settled()
    await bench.finish("b0", 1)
    assert bench.begun == ["a0", "b0", "a1"]


async def test_an_idle_account_saves_nothing_up_and_owes_nothing_for_ever() -> None:
    bench = Bench(1)
    await bench.come("a0")
    await bench.finish("a0", 1_000)
    await bench.come("b0")
    for name in ("a1", "b1", "b2"):
        await bench.come(name)
    await bench.finish("b0", 1)
    assert bench.begun == ["a0", "b0", "a1"]
    assert set(bench.turns._accounts) == {"a", "b"}
    for name in ("a1", "b1", "b2"):
        await bench.finish(name, 1)
    assert bench.turns._accounts == {}


async def test_whoever_waits_too_long_is_told_and_holds_nothing() -> None:
    bench = Bench(1)
    await bench.come("a0")
    assert bench.turns.holds("a")
    with pytest.raises(TimeoutError):
        async with bench.turns.turn("b", 0):
            raise AssertionError
    assert not bench.turns.holds("b")
    await bench.finish("a0", 1)
    assert not bench.turns.holds("a")
    await bench.come("c0")
    assert bench.begun == ["a0", "c0"]


@pytest.mark.parametrize("when", ["while it waits", "as it is given"])
async def test_a_caller_who_leaves_takes_no_turn_along(when: str) -> None:
    bench = Bench(1)
    for name in ("a0", "b0", "c0"):
        await bench.come(name)
    if when == "as it is given":
        bench._ends["a0"].set()
        await bench.tasks["a0"]
    bench.tasks["b0"].cancel()
    await settled()
    if when == "while it waits":
        await bench.finish("a0", 1)
    assert bench.begun[-1] == "c0"
    await bench.finish("c0", 1)
    assert bench.turns._accounts == {}
