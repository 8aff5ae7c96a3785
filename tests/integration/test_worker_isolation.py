"""Jobs that do harm, and wishes that get lost: one real worker, a real nats-server, real SavedModels."""

import asyncio
import os
import random
import signal
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway_plugin.admission.ownedjobs import OwnedJobs
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.program.errors import Conflict
from signalbox.wire import names
from signalbox.wire.messages import Batching, Limits, Record, State, Worker, header
from signalbox.wire.names import Bucket, Header, Stream, token
from tests.rigs import models, workerhouse
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("isolation")
    async with workerhouse.house(folder, worker_cancel_grace_s=0.5) as made:
        yield made


async def wish_to_cancel(bus: Bus, job_id: str) -> None:
    """What the gateway writes; the message it sends as well is lost."""
    records = Records(bus)
    found = await records.read(job_id)
    assert found is not None
    await records.write(life.cancel_asked(found[0]), expect=found[1])


async def test_a_lost_wish_to_cancel_is_found_and_is_no_strike_for_the_batch_before(house: House) -> None:
    bus, ledger, worker = house
    await register(bus, "behind", models.slow(), batching=Batching(max_size=1))
    for _ in range(30):  # quick runs: from now on the runner is given a second batch ahead
        await ledger.ended(await ledger.submit("behind", floats(0.0, name="seconds")))
    deaths = sum(line.get("event") == "runner.died" for line in worker.lines)
    before = await ledger.submit("behind", floats(12.0, name="seconds"))
    behind = await ledger.submit("behind", floats(0.01, name="seconds"))
    await ledger.begun(before)
    await ledger.begun(behind)
    await wish_to_cancel(bus, behind)
    await worker.said("runner.died", count=deaths + 1)
    ended = await ledger.ended(before, behind, timeout_s=120)
    assert [r.state for r in ended] == [State.SUCCEEDED, State.CANCELLED]
    assert [(r.strikes, r.attempt) for r in ended] == [(0, 1), (0, 1)]


async def test_what_a_canceller_is_told_is_what_stays(house: House) -> None:
    """500 cancels of jobs that wait, run and end meanwhile, each by the gateway's own code (S11)."""
    bus, ledger, _ = house
    await register(bus, "raced", models.half_plus_two(), batching=Batching(max_size=8, rows_independent=True))
    jobs = OwnedJobs(bus, Records(bus))
    dice = random.Random(7)

    async def race(number: int) -> tuple[str, State]:
        job_id = await ledger.submit("raced", floats(float(number)))
        if number % 5 == 0:
            await ledger.ended(job_id)
        else:
            await asyncio.sleep(dice.random() * 0.03)  # what is tested: any moment of a job's life
        try:
            told = (await jobs.cancel(job_id, "test")).record
        except Conflict as error:
            return job_id, State(str(error.facts["state"]))
        assert told.state is State.CANCELLED or told.cancel_requested
        return job_id, State.CANCELLED

    told: list[tuple[str, State]] = []
    for wave in range(20):
        told += await asyncio.gather(*(race(wave * 25 + number) for number in range(25)))
    ended = await ledger.ended(*(job_id for job_id, _ in told), timeout_s=120)
    assert [(r.id, r.state) for r in ended] == told
    assert {state for _, state in told} == {State.SUCCEEDED, State.CANCELLED}, "not all were in time"
    for job_id, _ in told:
        assert sum(r.state.is_terminal for r in ledger.records[job_id]) == 1


async def test_a_run_over_its_time_in_a_batch_fails_the_one_that_takes_too_long(house: House) -> None:
    bus, ledger, _ = house
    await register(
        bus,
        "timed",
        models.slow(),
        batching=Batching(max_size=4, max_delay_ms=500.0, rows_independent=True),
        limits=Limits(timeout_s=4.0),
    )
    quick = [await ledger.submit("timed", floats(0.05, name="seconds")) for _ in range(2)]
    endless = await ledger.submit("timed", floats(90.0, name="seconds"))
    ended = await ledger.ended(endless, *quick, timeout_s=120)
    assert [r.state for r in ended] == [State.FAILED, State.SUCCEEDED, State.SUCCEEDED]
    assert ended[0].error is not None
    assert ended[0].error.code == "deadline_exceeded"
    assert [r.strikes for r in ended[1:]] == [0, 0]


async def test_a_stopped_runner_with_tensorflow_is_replaced_and_nobodys_fault(house: House) -> None:
    bus, ledger, worker = house
    await register(bus, "stopped", models.slow(), batching=Batching(max_size=1), limits=Limits(timeout_s=600.0))
    await ledger.ended(await ledger.submit("stopped", floats(0.0, name="seconds")))
    job = await ledger.submit("stopped", floats(4.0, name="seconds"))
    await ledger.begun(job)
    ready = [line for line in worker.lines if line.get("event") == "runner.ready"]
    os.kill(ready[-1]["pid"], signal.SIGSTOP)
    (record,) = await ledger.ended(job, timeout_s=120)
    assert (record.state, record.strikes, record.attempt) == (State.SUCCEEDED, 0, 1)
    assert any(line.get("event") == "runner.frozen" for line in worker.lines)


async def test_a_batch_that_uses_the_memory_up_runs_in_smaller_parts_and_the_ceiling_is_told(house: House) -> None:
    bus, ledger, _ = house
    full = Batching(max_size=8, max_delay_ms=20_000.0, rows_independent=True)  # it leaves when it is full, however slow
    await register(bus, "greedy", models.greedy(), batching=full)
    workers = Table(bus, Bucket.WORKERS, Worker)
    changed = asyncio.Event()
    workers.on_change(lambda _, __, ___: changed.set())
    await workers.start()

    def ceiling() -> int:
        found = workers.get(token("w1"))
        return {r.model: r.max_rows for r in found.models}.get("greedy", 0) if found else 0

    async with asyncio.timeout(150):
        while not ceiling():  # a batch that ran beside a load ahead says nothing of its own memory
            ids = [await ledger.submit("greedy", floats(float(i))) for i in range(8)]
            records = await ledger.ended(*ids, timeout_s=120)
            assert {r.state for r in records} == {State.SUCCEEDED}
            assert {(r.strikes, r.attempt) for r in records} == {(0, 1)}
            changed.clear()
            await changed.wait()
    assert ceiling() == 4
    await workers.close()
    ids = [await ledger.submit("greedy", floats(float(i))) for i in range(8)]
    records = await ledger.ended(*ids)
    assert max(r.batch for r in records) <= 4


async def test_a_job_of_a_newer_version_is_given_back_and_not_thrown_away(house: House) -> None:
    bus, ledger, _ = house
    await register(bus, "future", models.half_plus_two())
    job = ledger.job("future", floats(1.0), v=2)
    subject = names.job("future", "mid", job.account_id, job.id)
    await bus.write(subject, floats(1.0), headers={Header.JOB: header(job)}, expect=0)
    await house.worker.said("intake.newer", lambda line: line["subject"] == subject)
    assert await bus.leader_get(Stream.JOBS, subject) is not None
    (other,) = await ledger.ended(await ledger.submit("future", floats(1.0)))
    assert other.state is State.SUCCEEDED


async def test_a_record_of_a_newer_version_is_left_alone(house: House) -> None:
    bus, ledger, _ = house
    await register(bus, "newer", models.half_plus_two())
    job = ledger.job("newer", floats(1.0))
    newer = Record(
        v=2,
        id=job.id,
        model="newer",
        version=1,
        signature=job.signature,
        account_id=job.account_id,
        state=State.RUNNING,
        attempt=7,
        created_at=time.time(),
        deadline_at=time.time() + 900,
    )
    revision = await bus.write(names.state(job.id), headers={Header.RECORD: header(newer)})
    await ledger.submit("newer", floats(1.0), id=job.id)
    (other,) = await ledger.ended(await ledger.submit("newer", floats(1.0)))
    assert other.state is State.SUCCEEDED
    found = await bus.leader_get(Stream.STATE, names.state(job.id))
    assert found is not None
    assert found.seq == revision
