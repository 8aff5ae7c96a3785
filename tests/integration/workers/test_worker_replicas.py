"""Replicas take effect: two workers, each on a virtual GPU of its own, and models that live on one or both."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import pytest
import pytest_asyncio
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching, Model
from signalbox.wire.names import Bucket, token
from signalbox.wire.placement import homes_of
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker, workerhouse
from tests.rigs.streams import counted
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from workers.serving.supply import LONG_RUN_S

pytestmark = pytest.mark.asyncio(loop_scope="module")

BOTH = {"w1", "w2"}


class Presence:
    """What the workers tell about themselves, now and ever since the start."""

    def __init__(self, bus: Bus) -> None:
        self.table = Table(bus, Bucket.WORKERS, Worker)
        self.ever: set[tuple[str, str]] = set()
        self._changed = asyncio.Event()
        self.table.on_change(self._note)

    def _note(self, _key: str, worker: Worker | None, _revision: int) -> None:
        if worker is not None:
            self.ever.update((worker.id, resident.model) for resident in worker.models)
        self._changed.set()

    @property
    def workers(self) -> list[Worker]:
        return list(self.table.items().values())

    def ready(self, model: str) -> set[str]:
        """Ids of the workers that have the model in memory, ready to run."""
        return {w.id for w in self.workers for r in w.models if (r.model, r.state) == (model, "ready")}

    async def until(self, condition: Callable[[], object], timeout_s: float = 60.0) -> None:
        """Wait until ``condition()`` holds, looked at after each document."""
        async with asyncio.timeout(timeout_s):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    async def resident(self, model: str, workers: set[str]) -> None:
        """Wait until exactly these workers say that the model is ready."""
        await self.until(lambda: self.ready(model) == workers)


class Pair(NamedTuple):
    """A connection that may do all, a ledger and the presence of two workers that hold their GPUs."""

    bus: Bus
    ledger: Ledger
    presence: Presence


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def pair(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Pair]:
    folder = tmp_path_factory.mktemp("replicas")
    async with workerhouse.declared(folder) as (url, bus):
        presence = Presence(bus)
        await presence.table.start()
        async with (
            WorkerProcess(url, folder, "w1", program=lightworker.PROGRAM, worker_device="cpu:0"),
            WorkerProcess(url, folder, "w2", program=lightworker.PROGRAM, worker_device="cpu:1"),
        ):
            await presence.until(lambda: {w.id for w in presence.workers if w.token and w.state == "ready"} == BOTH)
            yield Pair(bus, await Ledger(bus).start(), presence)
        await presence.table.close()


async def register_slow(pair: Pair, name: str, *, replicas: int) -> Model:
    """A model whose jobs run one by one, so that work has to be shared."""
    return await register(pair.bus, name, lightworker.version("slow"), batching=Batching(max_size=1), replicas=replicas)


async def scale(pair: Pair, model: Model, replicas: int) -> None:
    """What the console publishes when an operator changes the number."""
    await put(pair.bus, Bucket.MODELS, token(model.name), replace(model, replicas=replicas))


def homes(pair: Pair, model: Model) -> set[str]:
    """Ids of the workers at the devices that placement gives the model."""
    devices = homes_of(model, pair.presence.workers)
    return {w.id for w in pair.presence.workers if w.device.id in devices}


async def run(pair: Pair, model: str, jobs: int = 24) -> set[str]:
    """Let jobs of a twentieth of a second run at once; ids of the workers that did them."""
    ids = [await pair.ledger.submit(model, floats(0.05, name="seconds")) for _ in range(jobs)]
    records = await pair.ledger.ended(*ids)
    assert {record.state for record in records} == {State.SUCCEEDED}
    return {record.worker for record in records}


async def test_a_model_with_two_replicas_is_ready_on_both_gpus_and_both_work(pair: Pair) -> None:
    assert len({w.device.id for w in pair.presence.workers}) == 2
    await register_slow(pair, "double", replicas=2)
    await pair.presence.resident("double", BOTH)
    assert await run(pair, "double") == BOTH


async def test_a_model_with_one_replica_lives_at_its_home_only_until_it_is_given_a_second(pair: Pair) -> None:
    model = await register_slow(pair, "single", replicas=1)
    home = homes(pair, model)
    assert len(home) == 1
    await pair.presence.resident("single", home)
    assert await run(pair, "single") == home
    # Workers heed changes in their order: who has a later model everywhere has passed the earlier one.
    await register_slow(pair, "later", replicas=2)
    await pair.presence.resident("later", BOTH)
    assert {worker for worker, name in pair.presence.ever if name == "single"} == home
    await scale(pair, model, 2)
    await pair.presence.resident("single", BOTH)
    assert await run(pair, "single") == BOTH
    await scale(pair, model, 1)
    await pair.presence.resident("single", home)  # in the other's memory perhaps, but no replica
    await register_slow(pair, "last", replicas=2)
    await pair.presence.resident("last", BOTH)
    assert await run(pair, "single") == home


async def test_jobs_of_a_model_without_replicas_wait_until_it_has_one(pair: Pair) -> None:
    model = await register_slow(pair, "none", replicas=0)
    waiting = await pair.ledger.submit("none", floats(0.0, name="seconds"))
    await register_slow(pair, "after", replicas=2)
    await pair.presence.resident("after", BOTH)
    assert not {worker for worker, name in pair.presence.ever if name == "none"}
    await counted(pair.bus, "none", "mid", waiting=1)
    await scale(pair, model, 1)
    (record,) = await pair.ledger.ended(waiting)
    assert (record.state, {record.worker}) == (State.SUCCEEDED, homes(pair, replace(model, replicas=1)))


async def test_jobs_do_not_wait_behind_a_long_run_while_another_gpu_is_idle(pair: Pair) -> None:
    """Of a model whose runs are quick, so that jobs were asked for beside the one that turns out to be long."""
    await register_slow(pair, "mixed", replicas=2)
    await pair.presence.resident("mixed", BOTH)
    for _ in range(4):
        assert await run(pair, "mixed", jobs=4)
    long = await pair.ledger.submit("mixed", floats(12.0, name="seconds"))
    await pair.ledger.until(lambda: pair.ledger.last(long) is not None)
    await asyncio.sleep(2 * LONG_RUN_S)  # then its worker has made way, of which it tells nobody
    for _ in range(20):
        (record,) = await pair.ledger.ended(await pair.ledger.submit("mixed", floats(0.0, name="seconds")))
        running = pair.ledger.last(long)
        assert running is not None
        assert (running.state, record.worker != running.worker) == (State.RUNNING, True)
    await pair.ledger.ended(long)
