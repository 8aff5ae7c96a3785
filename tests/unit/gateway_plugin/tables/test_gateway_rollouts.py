"""When the record of a roll-out cannot be written: how often that is tried, in virtual time."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from gateway_plugin.tables.rollouts import RolloutController
from signalbox.program.errors import Unavailable
from signalbox.wire import rollout
from signalbox.wire.modeldocs import Model, Serving, Version
from signalbox.wire.names import token
from signalbox.wire.workerdocs import Device, Residency, Worker
from verification.simulation.loop import running

MODEL = Model(name="m", versions=(Version(version=1, path="/m"),), default_version=1)
OUTAGE_S = 300.0
MODELS = 100


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


def present(name: str, **versions: str) -> Worker:
    """A holder with version 1 of every model ready, and of ``versions`` the second one in a state."""
    states = {(f"m{number}", 1): "ready" for number in range(MODELS)}
    states |= {(model, 2): state for model, state in versions.items()}
    return Worker(
        id=name,
        boot=name,
        host=name,
        pid=1,
        state="ready",
        started_at=0.0,
        beat_at=0.0,
        token=1,
        device=Device(id=name, kind="cpu", name=name),
        models=tuple(Residency(model=m, version=v, state=state) for (m, v), state in states.items()),
    )


def test_presence_costs_a_check_of_those_models_of_which_it_says_something_new(monkeypatch: pytest.MonkeyPatch) -> None:
    looked: list[str] = []
    decide = rollout.decide

    def noted(model: Model, *rest: Any, **named: Any) -> Any:
        looked.append(model.name)
        return decide(model, *rest, **named)

    monkeypatch.setattr(rollout, "decide", noted)
    names = [f"m{number}" for number in range(MODELS)]
    versions = (Version(version=1, path="/m/1"), Version(version=2, path="/m/2"))
    with running(1) as loop:

        async def run() -> list[list[str]]:
            models = Documents(**{token(n): Model(name=n, versions=versions, default_version=2) for n in names})
            serving = Documents(**{token(n): Serving(publication=1, default=1) for n in names})
            workers = Documents(w=present("w", m7="loading"))
            bus = Bus(Unavailable, loop.time)
            bus.heals_s = 0.0
            made = RolloutController(*(cast("Any", each) for each in (bus, models, serving, workers)))
            made.start()
            found = []

            async def receive(change: Callable[[], None]) -> None:
                change()
                await asyncio.sleep(0.1)
                found.append(sorted(looked))
                looked.clear()

            def publish() -> None:
                for name in names:
                    models.change(token(name))

            def tell(key: str, worker: Worker | None) -> Callable[[], None]:
                workers.docs[key] = worker
                return lambda: workers.change(key, worker, 2)

            await receive(publish)
            await receive(tell("w", present("w", m7="loading")))
            await receive(tell("w", present("w", m7="loading")))
            await receive(tell("w", present("w", m7="failed")))
            await made.close()
            return found

        all_, first, again, failed = loop.run_until_complete(run())
    assert all_ == first == sorted(names), "a worker that was not known concerns every open model"
    assert again == []
    assert failed == ["m7"]
