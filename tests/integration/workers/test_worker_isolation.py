"""Jobs that do harm, and requests that get lost: one real worker around a toy, a real nats-server."""

import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from signalbox.bus.client import Bus
from signalbox.jobs import life
from signalbox.jobs.records import Records
from signalbox.wire import names
from signalbox.wire.messages import Record, State, header
from signalbox.wire.modeldocs import Batching, Limits
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
    await house.worker.said("intake.newer", lambda line: line.get("job") == job.id)
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
