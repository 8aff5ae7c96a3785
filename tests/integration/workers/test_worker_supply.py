"""How much a holder asks for: what was asked of all models together fits the room for inputs."""

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from signalbox.bus.client import Bus
from signalbox.wire.modeldocs import Batching, Model, Version
from tests.rigs.holder import NONE_WAIT, Fleet
from workers.queue.intake import JobIntake
from workers.serving.supply import Supply
from workers.serving.unexamined import UnexaminedJobs
from workers.statistics.joinings import Joinings

LIMIT_S = 30.0
MIB = 1024 * 1024
ROOM = 4
"""Jobs of the models here that fit."""


class Holder:
    """A supply of models whose jobs have a MiB each."""

    def __init__(self, bus: Bus) -> None:
        self.changed = asyncio.Event()
        self.ready = SimpleNamespace(ready_bytes=0)
        self.intake = JobIntake(bus, cast("Any", Fleet()), lambda *_: None, lambda _: self.changed.set())
        self.supply = Supply(
            self.intake,
            cast("Any", SimpleNamespace(may_serve=lambda _: True)),
            cast("Any", self.ready),
            cast("Any", SimpleNamespace(mean_bytes=dict.fromkeys("abc", MIB), run_s={}, joinings=Joinings())),
            settings=cast("Any", SimpleNamespace(in_flight_bytes=ROOM * MIB, request_timeout_s=LIMIT_S)),
        )

    async def awake(self, *models: str) -> None:
        """These models are pulled."""
        await self.intake.follow(models)
        for model in models:
            self.intake.redeliver(model)
        async with asyncio.timeout(LIMIT_S):
            while set(self.intake.asking()) != set(models):
                self.changed.clear()
                await self.changed.wait()

    def ask(self, name: str) -> int:
        """Ask for jobs of a model; returns how many were asked for of each class and have not come."""
        versions = (Version(version=1, path="/nowhere", joined=("serving_default",)),)
        model = Model(name=name, versions=versions, batching=Batching(rows_independent=True))
        self.supply.ask(model, NONE_WAIT, UnexaminedJobs(), is_running=False)
        return self.intake.ask(name, 0, NONE_WAIT)


@pytest.fixture
async def holder(bus: Bus) -> AsyncIterator[Holder]:
    holder = Holder(bus)
    await holder.awake("a", "b", "c")
    yield holder
    await holder.intake.close()


async def test_what_was_asked_of_all_models_fits_the_room_and_each_has_one(holder: Holder) -> None:
    assert [holder.ask(name) for name in "abc"] == [ROOM, 1, 1]
    assert holder.ask("a") == ROOM, "what it has asked for itself does not count against it"


async def test_models_are_asked_for_again_when_there_is_room_again(holder: Holder) -> None:
    for name in "abc":
        holder.ask(name)
    assert holder.supply.take_short() == [], "there is none"
    holder.supply.forget("a")
    assert holder.supply.take_short() == ["a", "b", "c"]
    assert holder.ask("b") == ROOM - 1, "one of c was asked for"
    assert holder.supply.take_short() == []


async def test_jobs_in_flight_take_room(holder: Holder) -> None:
    holder.ready.ready_bytes = (ROOM - 2) * MIB
    assert holder.ask("a") == 2
