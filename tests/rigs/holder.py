"""A holder as its intake knows it: asks for jobs whenever it may, and keeps what came."""

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from signalbox.bus.client import Bus, Delivery
from signalbox.jobs import delivery
from signalbox.wire.names import PRIORITIES
from workers.queue.intake import JobIntake

LIMIT_S = 30.0
NONE_WAIT = dict.fromkeys(PRIORITIES, 0)


class Fleet:
    """Of two holders, this one acts for both."""

    def __init__(self) -> None:
        self.number = 0

    def generation(self) -> int:
        return self.number

    def next_generation(self) -> None:
        self.number += 1

    def is_first(self, _name: str) -> bool:
        return True

    def is_alone(self, name: str) -> bool:
        return name == "mine"

    def is_assigned(self, name: str) -> bool:
        return name == "paused"

    def served_too(self, _worker: object, names: Iterable[str]) -> list[str]:
        return list(names)


class Holder:
    """An intake that asks for ``wanted`` jobs whenever it may, and what came."""

    def __init__(self, bus: Bus, came: asyncio.Queue[tuple[str, bool]] | None = None) -> None:
        self.bus = bus
        self.fleet = Fleet()
        self.is_greedy = True
        self.wanted = 1
        self.came: asyncio.Queue[tuple[str, bool]] = came or asyncio.Queue()
        self.intake = JobIntake(bus, cast("Any", self.fleet), self._take, self._ask)

    async def next(self) -> tuple[str, bool]:
        """Id of the next job, and whether it may have been delivered before."""
        async with asyncio.timeout(LIMIT_S):
            return await self.came.get()

    async def sleeps(self, model: str) -> None:
        """Wait until a model sleeps."""
        async with asyncio.timeout(LIMIT_S):
            while self.intake.is_asking(model):
                await self.intake.rest()

    async def asks_no_more(self, model: str) -> None:
        """Ask for nothing from now on but where a test does, and wait until all of a model that was asked for came."""
        self.is_greedy = False
        async with asyncio.timeout(LIMIT_S):
            while self.intake.ask(model, 0, NONE_WAIT):
                await self.bus.flush()

    def _take(self, model: str, delivered: Delivery, is_known: bool) -> None:
        self.came.put_nowait((delivered.job.id, is_known))
        self._ask(model)

    def _ask(self, model: str) -> None:
        if self.is_greedy:
            self.intake.ask(model, self.wanted, NONE_WAIT)


async def none_parked(bus: Bus, model: str = "half") -> None:
    """Wait until no request waits at a model's consumers."""
    async with asyncio.timeout(LIMIT_S):
        while any(info.num_waiting for info in (await delivery.states(bus, model, 0)).values()):
            pass
