"""Pausing and disabling: jobs that were handed to a worker and have not begun are back in the queue at once."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from msgspec.structs import replace

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import Batching, Desired, Model, State
from signalbox.wire.names import PRIORITIES, Bucket, Stream, token
from tests.integration.test_core_majority import done
from tests.rigs import workerhouse
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerhouse import House
from verification.chaos.environment.routes import NodeRoutes
from workers.queue import intake

Decide = Callable[[Bus, Model], Coroutine[Any, Any, None]]
WAITING = 8
LIMIT_S = 60.0
LONG_S = 3_600.0


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A worker whose deliveries come back by themselves only long after every test has failed."""
    folder = tmp_path_factory.mktemp("pause")
    async with workerhouse.house(folder, program="verification.chaos.rig.toyworker", worker_ack_wait_s=LONG_S) as made:
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
    await ledger.until(lambda: (r := ledger.last(running)) is not None and r.state is State.RUNNING, timeout_s=LIMIT_S)
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
        found = await bus.consumer_info(names.consumer(model, "mid"))
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
    await asks(bus, other)  # so the worker has heard of what was said before
    late = await ledger.submit("half", floats(1.0))
    await ledger.ended(await ledger.submit(other, floats(1.0)), timeout_s=LIMIT_S)
    assert ledger.open([late]) == [late]
    await go(bus, model)
    (record,) = await ledger.ended(late, timeout_s=LIMIT_S)
    assert record.state is State.SUCCEEDED


async def test_what_the_server_hands_over_as_its_model_stops_reaches_the_worker(
    three: tuple[list[NatsServer], NodeRoutes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The node that has the queue learns late that nobody listens any more: what it delivers until then must be heard.

    Else such a job waits for its delivery to lapse. On one node the same takes a delivery between two of its threads.
    """
    monkeypatch.setattr(intake, "PARKED_S", LONG_S)
    servers, routes = three
    async with AsyncExitStack() as stack:

        async def connected(server: NatsServer) -> Bus:
            bus = await Bus.connect(Wire(nats_url=server.url, request_timeout_s=1.0), role="admin")
            stack.push_async_callback(bus.close)
            return bus

        everywhere = [await connected(server) for server in servers]
        await becomes(done(lambda: topology.apply(everywhere[0])), limit_s=LIMIT_S)
        await becomes(done(lambda: topology.ensure_consumers(everywhere[0], "half")), limit_s=LIMIT_S)
        info = await everywhere[0].request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        there = next(i for i, s in enumerate(servers) if s.name == info["cluster"]["leader"])
        here = (there + 1) % len(servers)
        ledger, heard = Ledger(everywhere[there]), asyncio.Event()
        worker = intake.JobIntake(everywhere[here], lambda *_: heard.set(), lambda _: None)
        await worker.follow(["half"])
        worker.ask("half", 1, dict.fromkeys(PRIORITIES, 0))
        await asks(everywhere[there], "half")
        routes.hold(here, there)
        await worker.follow([])
        await ledger.submit("half", floats(1.0))
        await asyncio.wait_for(heard.wait(), LIMIT_S)
        routes.release()
        await worker.close()
