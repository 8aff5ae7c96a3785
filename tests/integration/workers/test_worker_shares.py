"""How jobs are shared by workers: by what each can do, at once with one that comes, and with none left idle.

The three experiments by which a load-balancing study found that connections do not balance (S3): servers of which some
are hotter, a new server that gets nothing, and fewer clients than servers. Here workers pull.
"""

import asyncio
import time
from collections import Counter
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack
from pathlib import Path
from statistics import fmean
from typing import Final

import pytest
from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire.messages import Record, State
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import Bucket
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker, slowworker, workerhouse
from tests.rigs.gateway import holds, key, model, rig
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess

JOBS: Final = 240
RUN_S: Final = 0.02
NEAR: Final = 0.1
"""Of a share by capacity that a worker's share may differ by."""
AT_WORK_S: Final = 2.0
"""From a worker's being ready until it runs jobs."""
ALONE: Final = Batching(max_size=1)


@pytest.fixture
async def declared(tmp_path: Path) -> AsyncIterator[tuple[str, Bus]]:
    async with workerhouse.declared(tmp_path) as made:
        yield made


def process(url: str, folder: Path, number: int, program: str = lightworker.PROGRAM) -> WorkerProcess:
    """Worker ``w<number>`` on a device of its own."""
    return WorkerProcess(url, folder, f"w{number}", program=program, worker_device=f"cpu:{number}")


async def hold(*workers: WorkerProcess) -> None:
    """Wait until each has its device."""
    await asyncio.gather(*(worker.said("lease.acquired") for worker in workers))


async def resident(bus: Bus, name: str, count: int) -> None:
    """Wait until so many workers have the model in memory."""
    table = Table(bus, Bucket.WORKERS, Worker)
    await table.start()

    def ready() -> int:
        return sum((r.model, r.state) == (name, "ready") for w in table.items().values() for r in w.models)

    async with asyncio.timeout(60):
        await holds(table, lambda: ready() >= count)
    await table.close()


def run_s(records: Sequence[Record], worker: str) -> float:
    """Seconds of a run of a worker, on average: what it is capable of."""
    return fmean((r.phases["computed"] - r.phases["started"]) / 1000 for r in records if r.worker == worker)


async def test_shares_follow_capacity_where_one_device_is_three_times_as_fast(
    declared: tuple[str, Bus], tmp_path: Path
) -> None:
    url, bus = declared
    ledger = await Ledger(bus).start()
    async with process(url, tmp_path, 1) as fast, process(url, tmp_path, 2, slowworker.PROGRAM) as slow:
        await hold(fast, slow)
        await register(bus, "shared", lightworker.version("slow"), batching=ALONE, replicas=2)
        await resident(bus, "shared", 2)
        jobs = [await ledger.submit("shared", floats(RUN_S, name="seconds")) for _ in range(JOBS)]
        ends = await ledger.ended(*jobs)
    assert {end.state for end in ends} == {State.SUCCEEDED}
    done = Counter(end.worker for end in ends)
    pace = {worker: 1 / run_s(ends, worker) for worker in done}
    fair = {worker: JOBS * pace[worker] / sum(pace.values()) for worker in done}
    print(f"jobs {dict(done)}, by capacity { ({worker: round(share, 1) for worker, share in fair.items()}) }")
    assert set(done) == {"w1", "w2"}
    assert all(abs(done[worker] - fair[worker]) <= NEAR * fair[worker] for worker in done), (done, fair)


async def test_a_worker_that_comes_works_at_once_and_nothing_is_restarted(
    declared: tuple[str, Bus], tmp_path: Path
) -> None:
    url, bus = declared
    ledger = await Ledger(bus).start()
    async with process(url, tmp_path, 1) as first:
        await hold(first)
        await register(bus, "shared", lightworker.version("slow"), batching=ALONE, replicas=2)
        await resident(bus, "shared", 1)
        jobs = [await ledger.submit("shared", floats(RUN_S, name="seconds")) for _ in range(JOBS * 4)]
        async with process(url, tmp_path, 2) as second:
            await second.ready()
            ready_at = time.time()
            await ledger.until(lambda: any(seen.worker == "w2" for job in jobs if (seen := ledger.last(job))))
            after_s = time.time() - ready_at
            ends = await ledger.ended(*jobs)
        assert first.returncode is None
        assert len([line for line in first.lines if line.get("event") == "worker.ready"]) == 1
    share = Counter(end.worker for end in ends)
    print(f"at work {after_s:.2f} s after it was ready; jobs {dict(share)}")
    assert after_s < AT_WORK_S
    assert {end.state for end in ends} == {State.SUCCEEDED}


async def test_one_caller_over_one_connection_leaves_none_of_four_workers_idle(
    declared: tuple[str, Bus], tmp_path: Path
) -> None:
    url, bus = declared
    ledger = await Ledger(bus).start()
    mine = key()
    async with AsyncExitStack() as stack:
        workers = [await stack.enter_async_context(process(url, tmp_path, number)) for number in range(1, 5)]
        await hold(*workers)
        front = await stack.enter_async_context(rig(url, tmp_path))
        made = model(batching=ALONE, replicas=4)
        toy = replace(made.versions[0], path=str(lightworker.version("slow")))
        await front.publish(replace(made, versions=(toy,)), mine)
        await resident(bus, "half", 4)
        calls = [front.call("POST", "/v1/models/half:predict", {"instances": [RUN_S]}, key=mine) for _ in range(JOBS)]
        assert {answer.status for answer in await asyncio.gather(*calls)} == {200}
        ends = [record for each in ledger.records.values() if (record := each[-1]).state is State.SUCCEEDED]
    done = Counter(end.worker for end in ends)
    print(f"jobs {dict(done)}")
    assert done.keys() == {"w1", "w2", "w3", "w4"}
    assert min(done.values()) >= (1 - NEAR) * JOBS / 4
