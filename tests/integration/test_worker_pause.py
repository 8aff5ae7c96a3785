"""Pausing and disabling: jobs that were handed to a worker and have not begun are back in the queue at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from signalbox.bus import Bus
from signalbox.messages import Batching, Desired, Model, State
from signalbox.names import Bucket, token
from signalbox.table import put
from tests import workerhouse
from tests.submit import floats, register
from tests.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
Decide = Callable[[Bus, Model], Coroutine[Any, Any, None]]
WAITING = 8
ROUNDS = 30
LIMIT_S = 60.0
LONG_S = 3_600.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A worker whose deliveries come back by themselves only long after every test has failed."""
    folder = tmp_path_factory.mktemp("pause")
    async with workerhouse.house(
        folder, program="tests.chaos.toyworker", worker_ack_wait_s=LONG_S
    ) as made:
        yield made


async def disable(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.MODELS, token(model.name), replace(model, is_enabled=False))


async def enable(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.MODELS, token(model.name), model)


async def pause(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.DESIRED, f"model.{token(model.name)}", Desired(is_paused=True))


async def resume(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.DESIRED, f"model.{token(model.name)}", Desired(is_paused=False))


@pytest.mark.parametrize(("stop", "go"), [(disable, enable), (pause, resume)])
async def test_what_waits_in_a_worker_is_handed_back_when_its_model_stops(
    house: House, tmp_path: Path, stop: Decide, go: Decide
) -> None:
    bus, ledger, _ = house
    model = await register(bus, "slow", tmp_path, batching=Batching(max_size=1))
    running = await ledger.submit("slow", floats(3.0))
    await ledger.until(
        lambda: (r := ledger.last(running)) is not None and r.state is State.RUNNING,
        timeout_s=LIMIT_S,
    )
    waiting = [await ledger.submit("slow", floats(0.15)) for _ in range(WAITING)]
    await stop(bus, model)
    await ledger.ended(running, timeout_s=LIMIT_S)
    assert ledger.open(waiting) == waiting, "none begins after its model was stopped"
    await go(bus, model)
    ended = await ledger.ended(*waiting, timeout_s=LIMIT_S)
    assert {record.state for record in ended} == {State.SUCCEEDED}


@pytest.mark.parametrize(("stop", "go"), [(disable, enable), (pause, resume)])
async def test_what_is_on_its_way_to_a_worker_is_not_lost_when_its_model_stops(
    house: House, tmp_path: Path, stop: Decide, go: Decide
) -> None:
    """The server is about to deliver what was asked for, at the moment at which nothing is asked for any more."""
    bus, ledger, _ = house
    model = await register(bus, "half", tmp_path, batching=Batching(max_size=1))
    for _ in range(ROUNDS):
        await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=LIMIT_S)
        stopping = asyncio.create_task(stop(bus, model))
        jobs = await asyncio.gather(*(ledger.submit("half", floats(1.0)) for _ in range(WAITING)))
        await stopping
        await go(bus, model)
        ended = await ledger.ended(*jobs, timeout_s=LIMIT_S)
        assert {record.state for record in ended} == {State.SUCCEEDED}
