"""Pausing and disabling: jobs that were handed to a worker and have not begun are back in the queue at once."""

from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.wire import names
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching, Model
from signalbox.wire.names import Bucket, token
from signalbox.wire.steering import Desired
from tests.rigs import workerhouse
from tests.rigs.outage import becomes
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House

Decide = Callable[[Bus, Model], Coroutine[Any, Any, None]]
WAITING = 8
LIMIT_S = 60.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("pause")
    async with workerhouse.house(folder, program="verification.chaos.rig.toyworker") as made:
        yield made


async def disable(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.MODELS, token(model.name), replace(model, is_enabled=False))


async def enable(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.MODELS, token(model.name), model)


async def pause(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.DESIRED, f"model.{token(model.name)}", Desired(is_paused=True))


async def resume(bus: Bus, model: Model) -> None:
    await put(bus, Bucket.DESIRED, f"model.{token(model.name)}", Desired(is_paused=False))


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("stop", "go"), [(disable, enable), (pause, resume)])
async def test_what_waits_in_a_worker_is_handed_back_when_its_model_stops(
    house: House, tmp_path: Path, stop: Decide, go: Decide
) -> None:
    bus, ledger, _ = house
    model = await register(bus, "slow", tmp_path, batching=Batching(max_size=1))
    running = await ledger.submit("slow", floats(3.0))
    await ledger.begun(running)
    waiting = [await ledger.submit("slow", floats(0.15)) for _ in range(WAITING)]
    await stop(bus, model)
    await ledger.ended(running, timeout_s=LIMIT_S)
    assert ledger.open(waiting) == waiting, "none begins after its model was stopped"
    await go(bus, model)
    ended = await ledger.ended(*waiting, timeout_s=LIMIT_S)
    assert {record.state for record in ended} == {State.SUCCEEDED}


async def asks(bus: Bus, model: str) -> None:
    """Wait until a worker waits for jobs of the model."""

    async def is_asked() -> bool:
        found = await bus.consumer_info(names.consumer(model, "mid", 0))
        return found.num_waiting > 0

    await becomes(is_asked, limit_s=LIMIT_S)


@pytest.mark.asyncio(loop_scope="module")
@pytest.mark.parametrize(("stop", "go"), [(disable, enable), (pause, resume)])
async def test_what_comes_to_a_worker_after_its_model_has_stopped_is_handed_back(
    house: House, tmp_path: Path, stop: Decide, go: Decide
) -> None:
    """It was asked for before."""
    bus, ledger, _ = house
    model = await register(bus, "half", tmp_path)
    await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=LIMIT_S)
    await asks(bus, "half")
    await stop(bus, model)
    other = f"other-{stop.__name__}"
    await register(bus, other, tmp_path)
    # So the worker has learned of what was said before.
    await ledger.ended(await ledger.submit(other, floats(1.0)), timeout_s=LIMIT_S)
    late = await ledger.submit("half", floats(1.0))
    await ledger.ended(await ledger.submit(other, floats(1.0)), timeout_s=LIMIT_S)
    assert ledger.open([late]) == [late]
    await go(bus, model)
    (record,) = await ledger.ended(late, timeout_s=LIMIT_S)
    assert record.state is State.SUCCEEDED
