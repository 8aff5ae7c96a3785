"""What a holder is given by the modelled server: every job that waits, also one whose delivery was lost."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, cast

import pytest

from signalbox.bus.client import Delivery
from signalbox.jobs import delivery
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.names import PRIORITIES
from signalbox.wire.workerdocs import Worker
from verification.simulation.loop import EPOCH, running
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.nats.server import Server
from workers.queue import intake
from workers.queue.intake import JobIntake

MODEL = "half"
LONG_S = 12.0
"""More than a pull request waits, and time enough to see that it is not answered."""


class Fleet:
    """One worker's tables. others: whether another one holds a device of the model, and comes first."""

    def __init__(self) -> None:
        self.number = 0
        self.others = False

    def generation(self) -> int:
        return self.number

    def next_generation(self) -> None:
        self.number += 1

    def is_alone(self, _: str) -> bool:
        return not self.others

    def is_first(self, _: str) -> bool:
        return not self.others

    def served_too(self, _: Worker, models: Iterable[str]) -> list[str]:
        return [] if self.others else list(models)


class Holder:
    """The intake of one session, which asks for all it can get. taken: jobs, and whether they may be known."""

    def __init__(self, bus: ModelBus, fleet: Fleet) -> None:
        self.bus = bus
        self.fleet = fleet
        self.taken: list[tuple[str, bool]] = []
        self.intake = JobIntake(bus, cast("Any", fleet), self._take, self._ask)
        bus.on_reconnect(self.intake.reconnected)

    def _take(self, _: str, delivered: Delivery, is_known: bool) -> None:
        self.taken.append((names.job_of(delivered.subject), is_known))
        self._ask(MODEL)

    def _ask(self, model: str) -> None:
        asyncio.get_running_loop().call_soon(self.intake.ask, model, 8, dict.fromkeys(PRIORITIES, 0))

    def jobs(self) -> list[str]:
        """The jobs that came, in their order."""
        return [job for job, _ in self.taken]


class Scene:
    """A modelled server, whoever accepts jobs, and holders."""

    def __init__(self, seed: int = 1) -> None:
        loop = asyncio.get_running_loop()
        self.server = Server(clock=lambda: EPOCH + loop.time(), rng=random.Random(seed))
        self.server.declare()
        self.holders: list[Holder] = []

    async def open(self) -> None:
        """Connect the one that accepts."""
        self.gateway = await self.join()

    async def join(self) -> ModelBus:
        """One connection more."""
        return await ModelBus(self.server, Link(self.server), settings=Wire(request_timeout_s=1.0)).open()

    async def hold(self, fleet: Fleet | None = None) -> Holder:
        """A hold begins."""
        holder = Holder(await self.join(), fleet or Fleet())
        self.holders.append(holder)
        await holder.intake.follow([MODEL])
        await asyncio.sleep(1.0)
        return holder

    async def accept(self, *jobs: str, priority: str = "hi") -> None:
        """Queue jobs of the model."""
        for job in jobs:
            await self.gateway.write(f"jobs.{MODEL}.{priority}.k.0.{job}", b"x")
        await asyncio.sleep(0.1)

    async def close(self) -> None:
        """End them."""
        for holder in self.holders:
            await holder.intake.close()
            await holder.bus.close()
        await self.gateway.close()


def play(script: Callable[[Scene], Awaitable[None]]) -> None:
    async def run() -> None:
        scene = Scene()
        await scene.open()
        try:
            await script(scene)
        finally:
            await scene.close()

    with running(1) as loop:
        loop.run_until_complete(run())


def test_a_new_holder_is_given_what_another_one_had_and_reads_of_it_first() -> None:
    async def script(scene: Scene) -> None:
        first = await scene.hold()
        await scene.accept("a")
        await scene.accept("b")
        assert first.taken == [("a", True), ("b", False)]  # who woke to the first cannot know who had it before
        await first.intake.close()  # as a worker that is killed: it gives nothing back
        await scene.accept("c")
        second = await scene.hold()
        assert second.taken == [("a", True), ("b", True), ("c", False)]

    play(script)


def test_a_model_sleeps_until_its_first_job_and_again_after_the_last() -> None:
    async def script(scene: Scene) -> None:
        consumers = scene.server.streams["JOBS"].consumers
        holder = await scene.hold()
        assert not consumers
        await scene.accept("a")
        assert holder.jobs() == ["a"]
        assert {len(consumer.waiting) for consumer in consumers.values()} == {1}
        while holder.intake.is_asking(MODEL):
            await asyncio.sleep(1.0)
            await holder.intake.rest()
        assert [consumer.info()["num_waiting"] for consumer in consumers.values()] == [0, 0, 0]
        await scene.accept("b", priority="lo")
        assert "b" in holder.jobs()

    play(script)


def test_a_job_that_nobody_learned_of_comes_when_its_queue_is_looked_at() -> None:
    async def script(scene: Scene) -> None:
        fleet = Fleet()
        holder = await scene.hold(fleet)
        scene.server.lost_hints = 1.0
        await scene.accept("a")
        assert holder.taken == []
        fleet.others = True  # another one acts for all
        await scene.gateway.publish(names.redeliver(MODEL))
        await asyncio.sleep(1.0)
        assert holder.taken == []
        fleet.others = False
        await scene.gateway.publish(names.redeliver(MODEL))
        await asyncio.sleep(1.0)
        assert holder.jobs() == ["a"]

    play(script)


@pytest.mark.parametrize("how", ["reconnect", "worker gone", "look"])
def test_a_lost_delivery_comes_again(how: str) -> None:
    async def script(scene: Scene) -> None:
        holder = await scene.hold()
        await scene.accept("a")
        scene.server.lost_deliveries = 1.0
        await scene.accept("b")
        scene.server.lost_deliveries = 0.0
        assert holder.jobs() == ["a"]
        if how == "reconnect":
            holder.bus.link.cut()
            await asyncio.sleep(5.0)
        elif how == "worker gone":
            holder.intake.redeliver_lost(cast("Any", None))
        else:
            await scene.gateway.publish(names.redeliver(MODEL))
        await asyncio.sleep(1.0)
        assert holder.taken[1:] == [("a", True), ("b", True)]

    play(script)


def test_what_a_holder_lets_go_comes_to_another() -> None:
    async def script(scene: Scene) -> None:
        fleet = Fleet()
        first = await scene.hold(fleet)
        await scene.accept("a")
        fleet.others = True
        second = await scene.hold(fleet)
        await asyncio.sleep(LONG_S)
        had = len(second.taken)
        await first.intake.close()
        await first.intake.give_back([MODEL])
        await asyncio.sleep(LONG_S)
        assert ("a", True) in second.taken[had:]

    play(script)


def test_what_comes_again_as_another_made_the_queue_anew_is_known() -> None:
    async def script(scene: Scene) -> None:
        holder = await scene.hold()
        await scene.accept("a", "b")
        made = await delivery.make_anew(scene.gateway, MODEL, "hi", 0)
        assert made.num_pending == 2
        await asyncio.sleep(LONG_S)
        assert all(is_known for _, is_known in holder.taken[2:])
        assert holder.jobs()[2:] == ["a", "b"]

    play(script)


@pytest.mark.parametrize("priority", PRIORITIES)
@pytest.mark.parametrize("is_new", [False, True])
def test_a_queue_whose_node_is_cut_off_is_read_under_another_name(priority: str, is_new: bool) -> None:
    """By who waits there, and by who begins then."""

    async def script(scene: Scene) -> None:
        fleet = Fleet()
        holder = await scene.hold(fleet)
        await asyncio.sleep(intake.STARTING_S)
        await scene.accept("a")
        scene.server.streams["JOBS"].consumers[f"{MODEL}_{priority}_0"].led_anew(away_s=600.0)
        await scene.accept("b", priority=priority)
        assert holder.jobs() == ["a"]
        if is_new:
            await holder.intake.close()
            holder = await scene.hold(fleet)
        await asyncio.sleep(2 * LONG_S)
        await holder.intake.follow([MODEL])  # as the session does when the generation changes
        await asyncio.sleep(LONG_S)
        assert fleet.number == 1
        assert "b" in holder.jobs()

    play(script)


@pytest.mark.parametrize("fault", ["lost_requests", "lost_answers"])
def test_no_job_stays_where_requests_and_answers_are_lost(fault: str) -> None:
    async def script(scene: Scene) -> None:
        holder = await scene.hold()
        setattr(scene.server, fault, 0.5)
        scene.server.publish(None, f"jobs.{MODEL}.hi.k.0.a", b"", b"", b"x")
        await asyncio.sleep(LONG_S)
        setattr(scene.server, fault, 0.0)
        await asyncio.sleep(LONG_S)
        await holder.intake.follow([MODEL])
        await asyncio.sleep(LONG_S)
        assert "a" in holder.jobs()

    play(script)


def test_no_job_stays_where_the_server_was_killed() -> None:
    async def script(scene: Scene) -> None:
        holder = await scene.hold()
        await scene.accept("a")
        scene.server.kill()
        await asyncio.sleep(3.0)
        scene.server.start()
        await asyncio.sleep(10.0)
        await scene.accept("b")
        await asyncio.sleep(LONG_S)
        assert ("a", True) in holder.taken[1:]
        assert "b" in holder.jobs()

    play(script)
