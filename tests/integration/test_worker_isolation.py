"""Jobs that do harm, and requests that get lost: one real worker around a toy, a real nats-server."""

import asyncio
import random
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from gateway_plugin.admission.ownedjobs import OwnedJobs
from signalbox.bus.client import Bus
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.program.errors import Conflict
from signalbox.wire import names
from signalbox.wire.messages import Batching, Limits, Record, State, header
from signalbox.wire.names import Header, Stream
from tests.rigs import lightworker, workerhouse
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def house(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[House]:
    folder = tmp_path_factory.mktemp("isolation")
    async with workerhouse.house(folder, program=lightworker.PROGRAM, worker_cancel_grace_s=0.5) as made:
        yield made


async def ask_to_cancel(bus: Bus, job_id: str) -> None:
    """What the gateway writes; the message it sends as well is lost."""
    records = Records(bus)
    found = await records.read(job_id)
    assert found is not None
    await records.write(life.cancel_asked(found[0]), expect=found[1])


async def test_a_lost_request_to_cancel_is_found_and_is_no_strike_for_the_batch_before(house: House) -> None:
    bus, ledger, worker = house
    await register(bus, "behind", lightworker.version("slow"), batching=Batching(max_size=1))
    for _ in range(30):  # quick runs: from now on the runner is given a second batch ahead
        await ledger.ended(await ledger.submit("behind", floats(0.0, name="seconds")))
    deaths = sum(line.get("event") == "runner.died" for line in worker.lines)
    before = await ledger.submit("behind", floats(12.0, name="seconds"))
    behind = await ledger.submit("behind", floats(0.01, name="seconds"))
    await ledger.begun(before)
    await ledger.begun(behind)
    await ask_to_cancel(bus, behind)
    await worker.said("runner.died", count=deaths + 1)
    ended = await ledger.ended(before, behind, timeout_s=120)
    assert [r.state for r in ended] == [State.SUCCEEDED, State.CANCELLED]
    assert [(r.strikes, r.attempt) for r in ended] == [(0, 1), (0, 1)]


async def test_what_a_canceller_is_told_is_what_stays(house: House) -> None:
    """500 cancels of jobs that wait, run and end meanwhile, each by the gateway's own code (S11)."""
    bus, ledger, _ = house
    await register(bus, "raced", lightworker.version("half"), batching=Batching(max_size=8, rows_independent=True))
    jobs = OwnedJobs(bus, Records(bus))
    dice = random.Random(7)

    async def race(number: int) -> tuple[str, State]:
        job_id = await ledger.submit("raced", floats(float(number)))
        if number % 5 == 0:
            await ledger.ended(job_id)
        else:
            await asyncio.sleep(dice.random() * 0.03)  # what is tested: any moment of a job's life
        try:
            reported = (await jobs.cancel(job_id, "test")).record
        except Conflict as error:
            return job_id, State(str(error.facts["state"]))
        assert reported.state is State.CANCELLED or reported.cancel_requested
        return job_id, State.CANCELLED

    reported: list[tuple[str, State]] = []
    for wave in range(20):
        reported += await asyncio.gather(*(race(wave * 25 + number) for number in range(25)))
    ended = await ledger.ended(*(job_id for job_id, _ in reported), timeout_s=120)
    assert [(r.id, r.state) for r in ended] == reported
    assert {state for _, state in reported} == {State.SUCCEEDED, State.CANCELLED}, "not all were in time"
    for job_id, _ in reported:
        assert sum(r.state.is_terminal for r in ledger.records[job_id]) == 1


async def test_a_run_over_its_time_in_a_batch_fails_the_one_that_takes_too_long(house: House) -> None:
    bus, ledger, _ = house
    await register(
        bus,
        "timed",
        lightworker.version("slow"),
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


async def test_a_job_of_a_newer_version_is_given_back_and_not_thrown_away(house: House) -> None:
    bus, ledger, _ = house
    await register(bus, "future", lightworker.version("half"))
    job = ledger.job("future", floats(1.0), v=2)
    subject = names.job("future", "mid", job.account_id, job.id)
    await bus.write(subject, floats(1.0), headers={Header.JOB: header(job)}, expect=0)
    await house.worker.said("intake.newer", lambda line: line["subject"] == subject)
    assert await bus.leader_get(Stream.JOBS, subject) is not None
    (other,) = await ledger.ended(await ledger.submit("future", floats(1.0)))
    assert other.state is State.SUCCEEDED


async def test_a_record_of_a_newer_version_is_left_alone(house: House) -> None:
    bus, ledger, _ = house
    await register(bus, "newer", lightworker.version("half"))
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
