"""A supervisor that is frozen, and a NATS that dies in the middle of the load."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signalbox.bus.client import Bus
from signalbox.jobs.records import Records
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.messages import Batching, State
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import is_alive
from tests.rigs.streams import emptied
from tests.rigs.submit import Ledger, floats, read_floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.evidence import intervals


@pytest.fixture
async def admin(own_nats: NatsServer) -> AsyncIterator[Bus]:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    yield bus
    await bus.close()


async def death_of(pid: int, timeout_s: float) -> float:
    """Seconds until a process that is not our child has ended."""
    began = time.monotonic()
    async with asyncio.timeout(timeout_s):
        while is_alive(pid):  # noqa: ASYNC110  the end of a process that is not our child is not told
            await asyncio.sleep(0.02)
    return time.monotonic() - began


@pytest.mark.slow
async def test_a_frozen_worker_loses_its_runner_and_its_late_commits_are_refused(
    own_nats: NatsServer, admin: Bus, tmp_path: Path
) -> None:
    ledger = await Ledger(admin).start()
    await register(admin, "slow", models.slow(), batching=Batching(max_size=1))
    async with WorkerProcess(own_nats.url, tmp_path, "w1") as first:
        await first.said("lease.acquired")
        runner_pid = (await first.said("runner.ready"))["pid"]
        async with WorkerProcess(own_nats.url, tmp_path, "w2") as second:
            await second.said("runner.ready")
            # The run ends while its supervisor is frozen, before the guard acts: the result lies in
            # the thawed one's socket, and only the compare-and-set keeps it from being committed.
            short = await ledger.submit("slow", floats(4.0, name="seconds"))
            await ledger.until(lambda: ledger.last(short) is not None)
            waiting = [await ledger.submit("slow", floats(0.1, name="seconds")) for _ in range(5)]
            first.signal(signal.SIGSTOP)
            frozen_at = time.monotonic()
            died_after = await death_of(runner_pid, 16)
            assert died_after <= 15, died_after
            await second.said("lease.acquired", timeout_s=60)
            records = await ledger.ended(short, *waiting, timeout_s=45)
            assert {(r.state, r.worker) for r in records} == {(State.SUCCEEDED, "w2")}
            await asyncio.sleep(max(0.0, 60 - (time.monotonic() - frozen_at)))  # the minute itself
            first.signal(signal.SIGCONT)
            await first.said("lease.lost", timeout_s=60)
            await first.said("session.ended", timeout_s=60)
            after = await ledger.submit("slow", floats(0.1, name="seconds"))
            await ledger.ended(after)
            # It rejoins: when the other goes, it takes over.
            await first.said("runner.ready", count=2)
            second.signal(signal.SIGTERM)
            assert await second.ended() == 0
            (record,) = await ledger.ended(await ledger.submit("slow", floats(0.1, name="seconds")))
            assert (record.state, record.worker) == (State.SUCCEEDED, "w1")
    for job_id in ledger.submitted:
        ends = [r for r in ledger.records[job_id] if r.state.is_terminal]
        assert len(ends) == 1, ends
    assert read_floats(await ledger.result(short)) == (4.0,)
    assert intervals.violations(intervals.read(tmp_path / "intervals.log")) == []


async def test_every_accepted_job_ends_although_nats_is_killed_in_mid_load(
    own_nats: NatsServer, admin: Bus, tmp_path: Path
) -> None:
    ledger = await Ledger(admin).start()
    await register(admin, "slow", models.slow(), batching=Batching(max_size=4, rows_independent=True))
    stop = asyncio.Event()
    refused = 0

    async def load() -> None:
        nonlocal refused
        while not stop.is_set():
            try:
                await ledger.submit("slow", floats(0.05, name="seconds"))
            except Unavailable:
                refused += 1  # what was refused or is unknown carries no promise
                await asyncio.sleep(0.1)

    async with WorkerProcess(own_nats.url, tmp_path, "w1") as worker:
        await worker.said("model.loaded")
        loading = asyncio.create_task(load())
        for _ in range(3):
            goal = len(ledger.submitted) + 20
            await ledger.until(lambda goal=goal: len(ledger.submitted) >= goal)
            await own_nats.kill()
            await own_nats.start()
            await ledger.until(lambda goal=goal: len(ledger.submitted) > goal)
        await ledger.until(lambda: len(ledger.submitted) >= 100)
        stop.set()
        await loading
        assert refused > 0
        began = time.monotonic()
        while left := [i for i in ledger.submitted if not await is_done(admin, i)]:
            assert worker.returncode is None
            assert time.monotonic() - began < 60, await what_is_known(admin, ledger, left[:5])
            await asyncio.sleep(0.2)
        await emptied(admin)


async def what_is_known(bus: Bus, ledger: Ledger, left: list[str]) -> list[object]:
    """For a failure: the consumers, and of each open job its records and its place in the queue."""
    records = Records(bus)
    queued = [await records.queued(i) for i in left]
    return [
        await bus.listed("$JS.API.CONSUMER.LIST.JOBS", "consumers"),
        [(stored.seq, stored.time) if stored else None for stored in queued],
        [await records.read(i) for i in left],
        [ledger.records[i][-3:] for i in left],
    ]


async def is_done(bus: Bus, job_id: str) -> bool:
    """Whether a job has succeeded, as STATE says (events are lost while NATS is down)."""
    try:
        found = await Records(bus).read(job_id)
    except Unavailable:
        return False
    return found is not None and found[0].state is State.SUCCEEDED
