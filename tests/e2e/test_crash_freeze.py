"""A supervisor that is frozen for longer than its lease."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.messages import Batching, State
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import is_alive
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
