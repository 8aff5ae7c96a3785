"""Delayed jobs and the worker that reconciles, on a real nats-server: queued when their time has come, and once."""

import asyncio
import time
from collections import Counter
from typing import Any

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus, Message
from signalbox.jobs import cancel, delayed, life, payloads, repair
from signalbox.jobs.message import remove
from signalbox.jobs.records import Records
from signalbox.program import log, metrics
from signalbox.program.errors import Unavailable
from signalbox.wire import names
from signalbox.wire.messages import Job, Record, State, decode
from signalbox.wire.names import Header, Stream
from tests.rigs.submit import Ledger, floats
from workers.host import gauges
from workers.recovery.inputs import ORPHANED_S
from workers.recovery.reconciler import JobReconciler

AHEAD_S = 3_000.0


class Rig:
    """Delayed jobs, and reconcilers whose clocks a test sets ahead."""

    def __init__(self, bus: Bus) -> None:
        self.bus, self.records, self.ledger = bus, Records(bus), Ledger(bus)
        self.ahead_s = 0.0
        self.deadline_s = 5_000.0
        self.messages: Counter[str] = Counter()
        self._changed = asyncio.Event()

    async def start(self) -> "Rig":
        await self.bus.subscribe("evt.jobs.>", self._on_message)
        return self

    def _on_message(self, message: Message) -> None:
        self.messages[names.job_of(message.subject)] += 1
        self._changed.set()

    async def until(self, queued: int, *, timeout_s: float = 60.0) -> None:
        """Wait until so many jobs were queued."""
        async with asyncio.timeout(timeout_s):
            while len(self.messages) < queued:
                self._changed.clear()
                await self._changed.wait()

    def clock(self) -> float:
        return time.time() + self.ahead_s

    def reconciler(self, name: str = "w1", **more: Any) -> JobReconciler:
        settings: dict[str, Any] = {"settled_s": 0.0, "clock": self.clock} | more
        return JobReconciler(self.bus, self.records, workers=tuple, models=dict, worker=name, boot=name, **settings)

    async def delay(self, due_in_s: float = 1_000.0, **more: Any) -> Job:
        """A delayed job as a gateway accepts it."""
        now = time.time()
        frame = floats(1.0)
        job = self.ledger.job(
            "half", frame, not_before=now + due_in_s, deadline_at=now + due_in_s + self.deadline_s, **more
        )
        stored = await payloads.store_input(self.bus, job, frame)
        job = replace(job, ref=stored.ref)
        await delayed.accept(self.bus, self.records, job, now=now)
        return job

    async def record(self, job: Job) -> Record:
        found = await self.records.read(job.id)
        assert found is not None
        return found[0]

    async def job_in_queue(self, job: Job) -> Job | None:
        queued = await self.records.queued(job.id)
        return decode(Job, queued.headers[Header.JOB]) if queued is not None else None

    async def cancel(self, job: Job) -> None:
        found = await self.records.find(job.id)
        assert found is not None
        await cancel.cancel(self.bus, self.records, found, by=cancel.OWNER, clock=self.clock)

    async def run(self, job: Job) -> None:
        """A worker claims the job and ends it; the reconciler removes its message."""
        found, queued = await self.records.read(job.id), await self.records.queued(job.id)
        assert found is not None
        assert queued is not None
        claimed = life.claimed(job, found[0], worker="w", gpu="g", token=1, now=self.clock())
        revision = await self.records.write(claimed, expect=found[1])
        await self.records.write(life.succeeded(claimed, now=self.clock(), batch=1, size_bytes=0), expect=revision)
        await remove(self.bus, queued.seq)

    async def inputs(self) -> int:
        info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.INPUTS}")
        return int(info["state"]["messages"])


@pytest.fixture
async def rig(bus: Bus) -> Rig:
    return await Rig(bus).start()


async def test_a_delayed_job_is_queued_with_its_input_when_its_time_has_come_and_not_before(rig: Rig) -> None:
    job = await rig.delay(tags=("nightly",))
    reconciler = rig.reconciler()
    await reconciler.turn()
    await reconciler.release()
    assert await rig.job_in_queue(job) is None
    rig.ahead_s = 1_001.0
    await reconciler.release()
    queued = await rig.job_in_queue(job)
    assert queued is not None
    assert (queued.ref, queued.tags, queued.not_before) == (job.ref, job.tags, job.not_before)
    assert queued.ref is not None
    assert await payloads.fetch(rig.bus, queued.ref) == floats(1.0)
    found = await rig.records.find(job.id)
    assert found is not None
    assert found.record.state is State.QUEUED
    assert found.seq is not None, "its place in the queue can be told"
    await rig.run(job)


async def test_until_then_it_is_neither_vanished_nor_without_its_input(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    for level in ("info", "warning", "error"):
        monkeypatch.setattr(log, level, lambda event, **_: said.append(event))
    job = await rig.delay(due_in_s=5 * ORPHANED_S)
    reconciler = rig.reconciler()
    for rig.ahead_s in (0.0, 100.0, ORPHANED_S + 100.0, 2 * ORPHANED_S + 200.0):
        await reconciler.turn()
        await reconciler.release()
    assert not said
    assert (await rig.record(job)).state is State.QUEUED
    assert await rig.inputs() == 1
    assert not rig.messages


async def test_its_record_moves_up_so_that_it_keeps_no_older_ones(rig: Rig) -> None:
    job = await rig.delay(due_in_s=90_000.0)
    ended = await rig.delay()
    reconciler = rig.reconciler(outlives_s=0.0)
    await reconciler.turn()
    await rig.cancel(ended)
    for rig.ahead_s in (43_000.0, 86_000.0, 86_500.0, 86_600.0, 86_700.0):
        await reconciler.turn()
    assert await rig.records.read(ended.id) is None, "its time is over, and the older record of the other one moved"
    rig.ahead_s = 90_001.0
    await reconciler.release()
    assert await rig.job_in_queue(job) is not None


async def test_a_cancelled_one_is_not_queued_and_its_input_goes(rig: Rig) -> None:
    job = await rig.delay()
    reconciler = rig.reconciler()
    await reconciler.turn()
    await rig.cancel(job)
    rig.ahead_s = 1_001.0
    await reconciler.release()
    await reconciler.turn()
    assert await rig.job_in_queue(job) is None
    assert (await rig.record(job)).state is State.CANCELLED
    assert await rig.inputs() == 0


async def test_one_whose_deadline_passed_while_nobody_was_there_expires(rig: Rig) -> None:
    rig.deadline_s = 900.0
    job = await rig.delay()
    rig.ahead_s = 2_000.0
    reconciler = rig.reconciler()
    await reconciler.turn()
    await reconciler.release()
    assert (await rig.record(job)).state is State.EXPIRED
    assert not rig.messages


async def test_another_reconciler_queues_what_the_one_before_did_not_and_nothing_twice(rig: Rig) -> None:
    jobs = [await rig.delay() for _ in range(4)]
    first = rig.reconciler("w1")
    await first.turn()
    rig.ahead_s = 1_001.0
    await first.release()
    await rig.run(jobs[0])  # its end is not read by anybody yet
    late = await rig.delay(due_in_s=-1.0)
    await first.close()
    second = rig.reconciler("w2")
    await second.turn()
    await second.release()
    await second.release()
    await rig.run(jobs[1])
    await first.release()
    await second.turn()
    await second.release()
    assert rig.messages == {job.id: 1 for job in (*jobs, late)}


async def test_who_does_not_reconcile_any_more_counts_none(rig: Rig) -> None:
    await rig.delay()
    await rig.reconciler("w1").turn()
    assert metrics.REGISTRY.get_sample_value("signalbox_reconciler_delayed") == 1
    gauges.RECONCILER_OPEN.set(1)
    assert not await rig.reconciler("w2").turn()
    for name in ("delayed", "open"):
        assert metrics.REGISTRY.get_sample_value(f"signalbox_reconciler_{name}") == 0


async def test_one_that_was_queued_and_lost_is_queued_again(rig: Rig) -> None:
    job = await rig.delay()
    reconciler = rig.reconciler()
    await reconciler.turn()
    rig.ahead_s = 1_001.0
    await reconciler.release()
    queued = await rig.records.queued(job.id)
    assert queued is not None
    await remove(rig.bus, queued.seq)
    rig.ahead_s = 1_100.0
    await reconciler.turn()
    assert await rig.job_in_queue(job) is not None


async def test_one_that_was_queued_before_another_could_not_be_is_remembered(
    rig: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, other = await rig.delay(1_000.0), await rig.delay(1_001.0)
    reconciler = rig.reconciler()
    await reconciler.turn()
    release, is_queued = repair.release, asyncio.Event()

    async def broken(bus: Bus, records: Records, record: Record, revision: int, *, now: float) -> repair.Repair:
        if record.id == other.id:
            await is_queued.wait()
            raise Unavailable("NATS is away.")
        done = await release(bus, records, record, revision, now=now)
        is_queued.set()
        return done

    rig.ahead_s = 1_002.0
    with monkeypatch.context() as patch:
        patch.setattr(repair, "release", broken)
        with pytest.raises(Unavailable):
            await reconciler.release()
    queued = await rig.records.queued(job.id)
    assert queued is not None
    await remove(rig.bus, queued.seq)
    rig.ahead_s = 1_100.0
    await reconciler.turn()
    assert await rig.job_in_queue(job) is not None, "lost, and queued again"
    await reconciler.release()
    assert await rig.job_in_queue(other) is not None


async def test_a_job_that_is_due_soon_is_queued_within_two_seconds_of_its_time(rig: Rig) -> None:
    reconciler = rig.reconciler(period_s=600.0)
    await reconciler.turn()
    keeping = asyncio.create_task(reconciler.keep())
    try:
        jobs = [await rig.delay(due_in_s=due_in_s) for due_in_s in (8.0, 3.0, 1.0, 0.2)]
        await rig.until(len(jobs))
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])
    for job in jobs:
        queued = await rig.records.queued(job.id)
        assert queued is not None
        assert 0.0 <= queued.time - job.not_before <= 2.0
