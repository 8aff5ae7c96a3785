"""A runner that is stopped is found, replaced and nobody's fault; one that only takes long is left alone."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching, Limits
from tests.rigs import workerhouse
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")
FROZEN_S = 2.0
LONG_S = 3 * FROZEN_S
LIMITS = Limits(timeout_s=600.0)


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    """A worker whose runner may compute for ten minutes, so that only its silence can be its end here."""
    folder = tmp_path_factory.mktemp("frozen")
    async with workerhouse.house(folder, program="verification.chaos.rig.toyworker", worker_frozen_s=FROZEN_S) as made:
        yield made


def runner(house: House) -> int:
    """The process that runs models now."""
    ready = [line for line in house.worker.lines if line.get("event") == "runner.ready"]
    return int(ready[-1]["pid"])


def frozen(house: House) -> int:
    """How often a runner was found frozen."""
    return sum(line.get("event") == "runner.frozen" for line in house.worker.lines)


async def test_a_stopped_runner_costs_its_jobs_neither_a_strike_nor_their_time(house: House, tmp_path: Path) -> None:
    bus, ledger, worker = house
    await register(bus, "slow", tmp_path, batching=Batching(max_size=1), limits=LIMITS)
    await ledger.ended(await ledger.submit("slow", floats(0.0)))
    job = await ledger.submit("slow", floats(3.0))
    await ledger.begun(job)
    before = frozen(house)
    os.kill(runner(house), signal.SIGSTOP)
    await worker.said("runner.frozen", count=before + 1)
    (record,) = await ledger.ended(job)
    assert (record.state, record.strikes, record.attempt) == (State.SUCCEEDED, 0, 1)


async def test_a_runner_that_is_stopped_while_nobody_needs_it_costs_no_job_anything(
    house: House, tmp_path: Path
) -> None:
    bus, ledger, worker = house
    await register(bus, "half", tmp_path)
    await ledger.ended(await ledger.submit("half", floats(1.0)))
    before = frozen(house)
    os.kill(runner(house), signal.SIGSTOP)
    await worker.said("runner.frozen", count=before + 1)
    (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)))
    assert (record.state, record.strikes, record.attempt) == (State.SUCCEEDED, 0, 1)


@pytest.mark.parametrize("model", ["slow", "grip"])
async def test_a_runner_that_computes_for_long_beats_though_nothing_else_of_it_moves(
    house: House, tmp_path: Path, model: str
) -> None:
    """``grip`` has the interpreter's lock for all of its time."""
    bus, ledger, _ = house
    await register(bus, model, tmp_path, limits=LIMITS)
    pid, before = runner(house), frozen(house)
    (record,) = await ledger.ended(await ledger.submit(model, floats(LONG_S)))
    assert record.state is State.SUCCEEDED
    assert (runner(house), frozen(house)) == (pid, before)


async def test_a_worker_that_was_stopped_and_goes_on_does_not_end_its_runner(house: House, tmp_path: Path) -> None:
    bus, ledger, worker = house
    await register(bus, "slow", tmp_path, limits=LIMITS)
    pid, before = runner(house), frozen(house)
    job = await ledger.submit("slow", floats(LONG_S))
    await ledger.begun(job)
    for process in (worker.pid, pid):  # as the sleep of a machine does it
        os.kill(process, signal.SIGSTOP)
    await asyncio.sleep(LONG_S)  # what is tested: a time in which nobody could beat or receive
    os.kill(worker.pid, signal.SIGCONT)
    os.kill(pid, signal.SIGCONT)
    (record,) = await ledger.ended(job)
    assert record.state is State.SUCCEEDED
    assert (runner(house), frozen(house)) == (pid, before)
