"""When the record of a roll-out cannot be written: how often that is tried, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway_plugin.tables.rollouts import RolloutController
from signalbox.program.errors import Unavailable
from signalbox.wire.messages import Model, Version
from verification.simulation.loop import running

MODEL = Model(name="m", versions=(Version(version=1, path="/m"),), default_version=1)
OUTAGE_S = 300.0


class Bus:
    """Takes no write until ``heals_s``, and notes when each came."""

    def __init__(self, error: type[Exception], now_s: Callable[[], float]) -> None:
        self.error = error
        self.now_s = now_s
        self.heals_s = OUTAGE_S
        self.tries: list[float] = []

    async def write(self, *_: object, **__: object) -> int:
        self.tries.append(round(self.now_s()))
        if self.now_s() < self.heals_s:
            raise self.error
        return 1


class Documents:
    """A table as it stands; ``change`` tells of one key."""

    def __init__(self, **docs: object) -> None:
        self.docs = docs
        self.change: Callable[..., None] = lambda *_: None

    def on_change(self, callback: Callable[..., None]) -> None:
        self.change = callback

    def get(self, key: str) -> object:
        return self.docs.get(key)

    def items(self) -> dict[str, object]:
        return self.docs

    def revision(self, key: str) -> int:
        return int(key in self.docs)


@pytest.mark.parametrize("error", [Unavailable, ZeroDivisionError])
def test_a_record_that_cannot_be_written_is_tried_ever_more_rarely_but_always_again(error: type[Exception]) -> None:
    with running(1) as loop:

        async def run() -> list[float]:
            bus, models = Bus(error, loop.time), Documents(m=MODEL)
            began_s = loop.time()
            bus.heals_s += began_s
            made = RolloutController(
                cast("Any", bus), cast("Any", models), cast("Any", Documents()), cast("Any", Documents())
            )
            made.start()
            models.change("m")
            models.change("m")
            await asyncio.sleep(10.0)
            models.change("m")  # does not begin a second row of tries
            await asyncio.sleep(2 * OUTAGE_S)
            await made.close()
            return [at_s - round(began_s) for at_s in bus.tries]

        tries = loop.run_until_complete(run())
    assert tries == [0, 1, 3, 7, 10, 26, 58, 118, 178, 238, 298, 358], "and then no more"
