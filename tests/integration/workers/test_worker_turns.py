"""Errors nobody foresaw in a worker: they cost a turn, a batch or a look, and no job its one end."""

import asyncio
import re
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from signalbox.ops.ports import free_port
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import Stream
from tests.rigs import lightworker, workerhouse
from tests.rigs.submit import floats, register
from tests.rigs.workerhouse import House

pytestmark = pytest.mark.asyncio(loop_scope="module")


class Faulty:
    """A house whose worker fails where it is told to. port: of its metrics."""

    def __init__(self, made: House, folder: Path, port: int) -> None:
        self.bus, self.ledger, self.worker = made
        self._folder, self._port = folder, port

    def fail(self, place: str) -> None:
        """Once."""
        (self._folder / f"unforeseen-{place}").touch()

    async def caught(self) -> dict[str, float]:
        """Errors nobody foresaw that the worker has counted, by event."""

        def read() -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics") as page:
                return str(page.read().decode())

        text = await asyncio.to_thread(read)
        found = re.findall(r'signalbox_unforeseen_errors_total\{event="(.+)"\} (.+)', text)
        return {event: float(count) for event, count in found}

    async def queued(self) -> int:
        """Jobs in the queue."""
        info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        return int(info["state"]["messages"])


@pytest_asyncio.fixture(loop_scope="module", scope="module")
async def faulty(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Faulty]:
    folder, port = tmp_path_factory.mktemp("turns"), free_port()
    async with workerhouse.house(folder, program="tests.rigs.unforeseen", metrics_port=port) as made:
        await register(made.bus, "half", lightworker.version("half"))
        await register(made.bus, "slow", lightworker.version("slow"), batching=Batching(max_size=1))
        yield Faulty(made, folder, port)


async def test_an_error_nobody_foresaw_costs_a_turn_and_no_job(faulty: Faulty) -> None:
    ledger, worker = faulty.ledger, faulty.worker
    await ledger.ended(await ledger.submit("half", floats(1.0)))
    tokens = [line["token"] for line in worker.lines if line.get("event") == "lease.acquired"]
    jobs = [await ledger.submit("slow", floats(0.3, name="seconds")) for _ in range(6)]
    await ledger.until(lambda: ledger.last(jobs[0]) is not None)  # it runs, the others wait here
    before = await faulty.caught()
    faulty.fail("keep_warm")
    await register(faulty.bus, "half", lightworker.version("half"))  # a change of the catalog: warm up
    failed = await worker.said("worker.turn_failed")
    assert "ZeroDivisionError: keep_warm" in failed["error"]
    ends = await ledger.ended(*jobs)
    assert {end.state for end in ends} == {State.SUCCEEDED}
    assert {end.attempt for end in ends} == {1}  # what ran was let end, what waited had not begun
    for job in jobs:
        assert sum(record.state.is_terminal for record in ledger.records[job]) == 1
    again = await worker.said("lease.acquired", count=len(tokens) + 1)
    assert again["token"] > tokens[-1]
    assert {end.token for end in ends} == {tokens[-1], again["token"]}
    assert await faulty.caught() == before | {"worker.turn_failed": 1.0}
    assert worker.returncode is None


async def test_an_error_nobody_foresaw_costs_a_batch_one_attempt_and_a_read_a_delivery(faulty: Faulty) -> None:
    """The batch is tried again where its results are committed; so is the job where its record is looked at."""
    ledger = faulty.ledger
    before = await faulty.caught()
    faulty.fail("success")
    faulty.fail("examine")
    job = await ledger.submit("half", floats(2.0))
    (end,) = await ledger.ended(job)
    assert end.state is State.SUCCEEDED
    assert sum(record.state.is_terminal for record in ledger.records[job]) == 1
    assert await faulty.caught() == before | {"session.batch_failed": 1.0, "session.examination_failed": 1.0}


async def test_a_removal_that_fails_is_made_again(faulty: Faulty) -> None:
    ledger, worker = faulty.ledger, faulty.worker
    faulty.fail("_check")
    await ledger.ended(await ledger.submit("half", floats(3.0)))
    await worker.said("reconciler.turn_failed", lambda line: line["level"] == "error")
    assert (await faulty.caught())["reconciler.turn_failed"] == 1.0
    async with asyncio.timeout(60):
        while await faulty.queued():
            pass
