"""Readers of one program that take from the same head."""

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest

from gateway_plugin.queues.items import Item
from gateway_plugin.queues.scanning import Place
from gateway_plugin.queues.taking import Taking
from signalbox.bus.client import Stored
from signalbox.program.errors import Unavailable
from signalbox.wire import queuenames
from signalbox.wire.queues import Queue

PLACE = Place(Queue(name="mine", account_id="a"), "source", {})


class Side:
    """One side of a queue. rounds: how often it was read. held: reads wait while it is clear. away: it answers none."""

    def __init__(self, *indexes: int) -> None:
        self.left = list(indexes)
        self.taken_by_others: set[int] = set()
        self.rounds = 0
        self.reading = asyncio.Event()
        self.held = asyncio.Event()
        self.held.set()
        self.is_away = False

    async def direct_batch(self, _: str, asked: Mapping[str, Any]) -> list[Stored]:
        self.rounds += 1
        self.reading.set()
        await self.held.wait()
        if self.is_away:
            raise Unavailable("away")
        found = [index for index in self.left if index >= asked["seq"]][: asked["batch"]]
        return [Stored(queuenames.queue_item("mine", "source", "lo"), index, 0.0, {}, b"") for index in found]

    async def leader_next(self, *_: object) -> None:
        return None

    async def request(self, _: str, data: bytes, **__: Any) -> tuple[bytes, bytes]:
        index = int(data.split(b":")[1].split(b",")[0])
        if index in self.left:
            self.left.remove(index)
        if index in self.taken_by_others:
            return b"", b'{"error":{"code":400,"err_code":10043,"description":"gone"}}'
        return b"", b'{"success":true}'


def taking(side: Side) -> Taking:
    return Taking(side)  # type: ignore[arg-type]  # a stand-in


def indexes(items: list[Item]) -> list[int]:
    return [item.index for item in items]


async def three_who_ask(side: Side, *lengths: int) -> list[asyncio.Task[list[Item]]]:
    """Callers of whom the first one's round is under way as the others come."""
    taker = taking(side)
    side.held.clear()
    tasks = [asyncio.create_task(taker.take(PLACE, lengths[0]))]
    await side.reading.wait()
    tasks += [asyncio.create_task(taker.take(PLACE, length)) for length in lengths[1:]]
    await asyncio.sleep(0)  # they have asked
    return tasks


async def test_who_asks_at_the_same_time_shares_one_round_in_order() -> None:
    side = Side(1, 2, 3, 4, 5, 6)
    tasks = await three_who_ask(side, 1, 2, 2)
    side.held.set()
    assert [indexes(found) for found in await asyncio.gather(*tasks)] == [[1], [2, 3], [4, 5]]
    assert side.rounds == 2
    assert side.left == [6]


async def test_who_finds_nothing_left_is_told_so() -> None:
    side = Side(1)
    tasks = await three_who_ask(side, 1, 1, 1)
    side.held.set()
    assert [indexes(found) for found in await asyncio.gather(*tasks)] == [[1], [], []]


async def test_what_other_programs_took_is_passed_over() -> None:
    side = Side(1, 2, 3)
    side.taken_by_others = {1, 2}
    assert indexes(await taking(side).take(PLACE, 1)) == [3]
    assert indexes(await taking(side).take(PLACE, 1)) == []


async def test_items_of_a_caller_who_has_gone_are_for_the_next() -> None:
    side = Side(1, 2)
    first, second, third = await three_who_ask(side, 1, 1, 1)
    first.cancel()
    side.held.set()
    assert [indexes(found) for found in await asyncio.gather(second, third)] == [[1], [2]]


async def test_while_nats_is_away_all_are_told_and_the_next_call_works() -> None:
    side = Side(1)
    taker = taking(side)
    side.is_away = True
    for outcome in await asyncio.gather(*(taker.take(PLACE, 1) for _ in range(3)), return_exceptions=True):
        assert isinstance(outcome, Unavailable)
    side.is_away = False
    assert indexes(await taker.take(PLACE, 1)) == [1]


async def test_the_end_of_the_program_leaves_no_caller_waiting() -> None:
    side = Side(1)
    side.held.clear()
    taker = taking(side)
    call = asyncio.create_task(taker.take(PLACE, 1))
    await side.reading.wait()
    await taker.close()
    with pytest.raises(Unavailable):
        await call
    assert side.left == [1]
