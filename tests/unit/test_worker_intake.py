"""A holder pulls what it is given, also where NATS did not answer when it asked."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from signalbox.jobs.commits import persist
from signalbox.program.errors import Unavailable
from signalbox.wire.names import PRIORITIES
from workers.queue.intake import JobIntake


class Puller:
    """One that is open or closed."""

    outstanding = 0
    on_idle: Callable[[], None]

    def __init__(self) -> None:
        self.is_open = True

    async def drain(self) -> None:
        """Nothing is on its way."""

    async def close(self) -> None:
        self.is_open = False


class Bus:
    """Every ``silent_at``-th request is lost once."""

    def __init__(self, silent_at: int) -> None:
        self.silent_at = silent_at
        self.asked = 0
        self.pullers: list[Puller] = []

    async def pull(self, _consumer: str, _on_delivery: object) -> Puller:
        self.asked += 1
        if self.asked == self.silent_at:
            raise Unavailable("NATS did not answer.")
        self.pullers.append(Puller())
        return self.pullers[-1]


@pytest.mark.parametrize("silent_at", range(1, 2 * len(PRIORITIES) + 1))
async def test_one_request_that_nobody_answered_leaves_no_model_without_pullers(silent_at: int) -> None:
    bus = Bus(silent_at)
    intake = JobIntake(cast("Any", bus), lambda *_: None, lambda _: None)
    async with asyncio.timeout(5):
        await persist(lambda: intake.follow(["half", "slow"]))
    assert intake.models == {"half", "slow"}
    assert sum(puller.is_open for puller in bus.pullers) == 2 * len(PRIORITIES)
    await intake.close()
    assert not any(puller.is_open for puller in bus.pullers)
