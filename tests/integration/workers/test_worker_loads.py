"""Loads that jobs wait for, beside the runs of other models: a real worker and a real runner around a toy engine."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from signalbox.bus.table import Table, put
from signalbox.jobs.cancel import OWNER, cancel
from signalbox.jobs.records import Records
from signalbox.wire.messages import Record, State, encode
from signalbox.wire.modeldocs import Batching, Limits
from signalbox.wire.names import PRIORITIES, Bucket, ask_evict
from signalbox.wire.steering import Evict, Pin, Prefetch
from signalbox.wire.workerdocs import Worker
from tests.rigs import workerhouse
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House
from tests.rigs.workerprocess import WorkerProcess

pytestmark = pytest.mark.asyncio(loop_scope="module")
PROGRAM = "verification.chaos.rig.toyworker"


class Site:
    """A worker that loads nothing ahead, models whose loads wait in ``folder``, and what the worker's presence says."""

    def __init__(self, house: House, folder: Path) -> None:
        self.bus, self.ledger, self.worker = house
        self.folder = folder
        self.table = Table(self.bus, Bucket.WORKERS, Worker)
        self._changed = asyncio.Event()
        self.table.on_change(lambda *_: self._changed.set())

    async def cold(self, name: str, *files: str, **more: Any) -> Path:
        """Register a model whose load does what the files say, see :mod:`tests.rigs.lightrunner`; its folder."""
        path = self.folder / name
        path.mkdir()
        for file in files:
            (path / file).touch()
        await register(self.bus, name, path, **more)
        return path

    async def warm(self, name: str = "half", **more: Any) -> None:
        """Register a model and have it answer once."""
        await register(self.bus, name, self.folder, **more)
        await self.ledger.ended(await self.ledger.submit(name, floats(0.0)))

    async def until(self, condition: Callable[[Worker], object]) -> None:
        """Wait until the worker's presence is so, looked at after each document."""
        async with asyncio.timeout(60):
            while not any(map(condition, self.table.items().values())):
                self._changed.clear()
                await self._changed.wait()

    async def loads(self, name: str) -> None:
        """Wait until the worker says that it loads the model."""
        await self.until(lambda worker: ("loading", name) in {(r.state, r.model) for r in worker.models})

    async def waits(self, *names: str) -> None:
        """Wait until the worker says that it has jobs of these models which have not begun."""
        await self.until(lambda worker: worker.waiting.keys() >= set(names))

    def seen(self, event: str, field: str = "model") -> list[Any]:
        """A field of the worker's log lines of an event, in order."""
        return [line.get(field) for line in self.worker.lines if line.get("event") == event]


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def site(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Site]:
    folder = tmp_path_factory.mktemp("loads")
    async with workerhouse.house(folder, program=PROGRAM, worker_is_warm=False, worker_cancel_grace_s=0.1) as house:
        made = Site(house, folder)
        await made.table.start()
        yield made
        await made.table.close()


def without_penalty(record: Record) -> bool:
    return (record.state, record.strikes, record.failures, record.attempt) == (State.SUCCEEDED, 0, 0, 1)


async def test_a_load_that_takes_long_delays_no_run_of_another_model(site: Site) -> None:
    await site.warm()
    path = await site.cold("rolling_long", "wait")
    waits = [await site.ledger.submit("rolling_long", floats(1.0)) for _ in range(3)]
    await site.loads("rolling_long")
    for _ in range(10):
        (beside,) = await site.ledger.ended(await site.ledger.submit("half", floats(1.0)))
        assert without_penalty(beside)
        assert beside.parts.get("other-model", 0.0) < 1.0
    assert not any(map(site.ledger.last, waits)), "no attempt of them has begun"
    (path / "wait").unlink()
    for record in await site.ledger.ended(*waits):
        assert without_penalty(record)
        assert record.parts["load"] == max(record.parts.values())
        assert record.phases["loading"] < record.phases["started"]
    assert site.seen("model.loaded").count("rolling_long") == 1


async def test_what_is_asked_for_ahead_of_need_is_loaded_though_no_job_waits(site: Site) -> None:
    await site.cold("asked_late")
    await site.cold("asked")
    await put(site.bus, Bucket.DESIRED, "prefetch.asked_late", Prefetch(model="asked_late", until=time.time() - 1))
    await put(site.bus, Bucket.DESIRED, "prefetch.asked", Prefetch(model="asked", until=time.time() + 600))
    await site.until(lambda worker: ("ready", "asked") in {(r.state, r.model) for r in worker.models})
    assert "asked_late" not in site.seen("model.loaded"), "its time was over"


def in_memory(worker: Worker) -> dict[str, bool]:
    """Models that a worker says it has in memory, and whether they are pinned."""
    return {each.model: each.use.is_pinned for each in worker.models if each.use is not None}


async def test_what_is_pinned_here_is_loaded_and_stays_and_what_else_is_evicted_by_hand_comes_back_for_a_job(
    site: Site,
) -> None:
    for name in ("pinned_here", "pinned_elsewhere", "evicted"):
        await site.cold(name)
    await site.ledger.ended(await site.ledger.submit("evicted", floats(1.0)))
    await site.until(lambda worker: "evicted" in in_memory(worker))
    (worker,) = site.table.items().values()
    hosts = {"pinned_elsewhere": "elsewhere", "pinned_here": worker.host.partition("/")[0]}
    for name, host in hosts.items():
        pin = Pin(model=name, hosts=(host,), at=time.time(), is_on=True)
        await put(site.bus, Bucket.DESIRED, f"pin.{name}", pin)
    await site.until(lambda worker: in_memory(worker).get("pinned_here"))
    for name in ("pinned_here", "evicted"):
        await site.bus.publish(ask_evict("w1"), encode(Evict(model=name, version=1, by="ada")))
    await site.until(lambda worker: "evicted" not in in_memory(worker))
    (worker,) = site.table.items().values()
    assert in_memory(worker)["pinned_here"]
    assert "pinned_elsewhere" not in site.seen("model.loaded")
    await site.ledger.ended(await site.ledger.submit("evicted", floats(1.0)))
    assert site.seen("model.loaded").count("evicted") == 2
    await put(site.bus, Bucket.DESIRED, "pin.pinned_here", Pin(model="pinned_here"))
    await site.until(lambda worker: in_memory(worker).get("pinned_here") is False)


async def test_loads_go_one_at_a_time_the_most_important_head_first(site: Site) -> None:
    first = await site.cold("rolling_first", "wait")
    jobs = [await site.ledger.submit("rolling_first", floats(1.0))]
    await site.loads("rolling_first")
    names = [f"rolling_{priority}" for priority in PRIORITIES]
    for name, priority in list(zip(names, PRIORITIES, strict=True))[::-1]:
        await site.cold(name)
        jobs += [await site.ledger.submit(name, floats(1.0), priority=priority)]
    await site.waits(*names)
    (first / "wait").unlink()
    ended = await site.ledger.ended(*jobs)
    assert all(map(without_penalty, ended))
    assert site.seen("model.loaded")[-4:] == ["rolling_first", *names]
    for record in ended[1:]:
        assert record.parts["other-model"] > record.parts["load"], "it waited for the load of the first"


async def test_a_load_that_fails_ends_the_jobs_that_waited_and_no_other(site: Site) -> None:
    await site.warm()
    path = await site.cold("rolling_broken", "wait", "broken", limits=Limits(max_delivery=1))
    job = await site.ledger.submit("rolling_broken", floats(1.0))
    await site.loads("rolling_broken")
    (beside,) = await site.ledger.ended(await site.ledger.submit("half", floats(1.0)))
    assert without_penalty(beside)
    (path / "wait").unlink()
    (record,) = await site.ledger.ended(job)
    assert record.error is not None
    assert (record.state, record.error.code, record.failures) == (State.FAILED, "not_serving", 1)
    assert "load" in record.parts


async def test_a_run_beside_a_load_that_takes_the_runner_down_runs_again_and_the_version_is_the_cause(
    site: Site,
) -> None:
    await site.warm("slow", batching=Batching(max_size=1))
    deaths = len(site.seen("runner.died"))
    running = await site.ledger.submit("slow", floats(3.0))
    await site.ledger.begun(running)
    await site.cold("rolling_fatal", "fatal", limits=Limits(max_delivery=1))
    fatal, beside = await site.ledger.ended(await site.ledger.submit("rolling_fatal", floats(1.0)), running)
    assert without_penalty(beside)
    assert fatal.error is not None
    assert (fatal.state, fatal.error.code, fatal.strikes) == (State.FAILED, "not_serving", 0)
    assert len(site.seen("runner.died")) == deaths + 2, "once beside the run and once with nothing beside it"


async def test_a_load_beside_a_run_that_takes_the_runner_down_is_made_again_and_the_job_is_the_cause(
    site: Site,
) -> None:
    await site.warm("fatal")
    deaths = len(site.seen("runner.died"))
    path = await site.cold("rolling_beside", "wait")
    loading = await site.ledger.submit("rolling_beside", floats(1.0))
    await site.loads("rolling_beside")
    killer = await site.ledger.submit("fatal", floats(-1000.0), deadline_at=time.time() + 900)
    await site.worker.said("runner.died", count=deaths + 1)
    (path / "wait").unlink()
    loaded, killed = await site.ledger.ended(loading, killer)
    assert without_penalty(loaded)
    assert killed.error is not None
    assert (killed.state, killed.error.code, killed.strikes) == (State.FAILED, "poison", 3)


async def test_a_job_that_waits_for_its_load_is_cancelled_at_once_and_one_that_is_late_never_runs(site: Site) -> None:
    await site.warm("slow", batching=Batching(max_size=1))
    deaths = len(site.seen("runner.died"))
    path = await site.cold("rolling_given_up", "wait")
    cancelled = await site.ledger.submit("rolling_given_up", floats(1.0))
    await site.loads("rolling_given_up")
    late = await site.ledger.submit("rolling_given_up", floats(1.0), deadline_at=time.time() + 0.5)
    stays = await site.ledger.submit("rolling_given_up", floats(1.0))
    records = Records(site.bus)
    found = await records.find(cancelled)
    assert found is not None
    found = await cancel(site.bus, records, found, by=OWNER, clock=time.time)
    assert (found.record.state, found.record.attempt) == (State.CANCELLED, 0)
    await site.ledger.ended(await site.ledger.submit("slow", floats(1.0)))  # a second passes
    (path / "wait").unlink()
    expired, ran = await site.ledger.ended(late, stays)
    assert (expired.state, expired.attempt) == (State.EXPIRED, 0)
    assert without_penalty(ran)
    assert len(site.seen("runner.died")) == deaths


async def test_a_worker_that_ends_while_it_loads_leaves_the_jobs_that_wait_to_another(
    site: Site, tmp_path: Path
) -> None:
    path = await site.cold("rolling_left", "wait")
    job = await site.ledger.submit("rolling_left", floats(1.0))
    await site.loads("rolling_left")
    site.worker.signal(signal.SIGTERM)
    assert await site.worker.ended() == 0
    assert site.ledger.last(job) is None
    (path / "wait").unlink()
    async with WorkerProcess(site.worker.url, tmp_path, "w2", program=PROGRAM) as second:
        (record,) = await site.ledger.ended(job)
        assert without_penalty(record)
        assert record.worker == second.id
