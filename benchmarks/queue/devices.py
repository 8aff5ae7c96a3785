"""Measures devices that share a model: four of them with a long queue, and an idle one beside one in a long run.

Workers are processes of their own on ``cpu:0`` to ``cpu:3``, their runners toys; jobs are put straight into the queue.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from benchmarks.queue.jobs import Jobs, body_of
from benchmarks.queue.toys import REPEATED, ToyWorker, register, standing, summed
from signalbox.ops.up.stack import UpStack

DEVICES: Final = 4
SHARED: Final = "shared"
SLOW: Final = "slow"
"""The toy that computes for as many seconds as it is told."""
BEGUN_S: Final = 0.5
"""A long run is under way so long after it was accepted."""
LONE: Final = 5
"""Lone jobs beside each long run."""
LIMIT_S: Final = 600.0
SETTLED_S: Final = 1.0
LOST_GOAL: Final = 0.01
LONE_MS: Final = 50.0
_COMMITS: Final = "signalbox_worker_commits_total"
_ENDED_BEFORE: Final = "signalbox_worker_redelivery_skipped_terminal_total"
_ANEW: Final = "signalbox_worker_queues_read_anew_total"


async def measure(folder: Path, *, queued: int, run_s: float, runs: int) -> None:
    """Print both. runs: long ones, of ``run_s``."""
    async with standing(folder / "four") as stack:
        await _four(stack, queued)
    async with standing(folder / "two") as stack:
        await _beside(stack, run_s, runs)


async def _four(stack: UpStack, queued: int) -> None:
    """A queue that four devices find at once, then one that comes while they hold."""
    jobs = await Jobs(stack.bus, [SHARED], body_of(1.0)).start()
    print(f"\n{DEVICES} devices, one model, {queued:,} queued", flush=True)
    await jobs.put(queued)
    workers = await _started(stack, DEVICES)
    began = time.monotonic()
    await register(stack, [SHARED], replicas=DEVICES)  # so that all find the queue at the same moment
    await jobs.until(queued, LIMIT_S)
    before = await _report("found by all at once", jobs, workers, jobs.last_at - began, Counter())
    jobs.forget()
    began = time.monotonic()
    await jobs.put(queued)
    await jobs.until(queued, LIMIT_S)
    await _report("put in while they hold", jobs, workers, jobs.last_at - began, before)


async def _report(
    what: str, jobs: Jobs, workers: Sequence[ToyWorker], took_s: float, before: Counter[str]
) -> Counter[str]:
    await asyncio.sleep(SETTLED_S)
    counted = summed([await worker.counted() for worker in workers])
    new = Counter({name: counted[name] - before[name] for name in counted})
    won, lost = new[f"{_COMMITS} won"], new[f"{_COMMITS} lost_race"]
    share = lost / max(1, won + lost)
    verdict = "as promised" if share < LOST_GOAL else "TOO MANY"
    shares = ", ".join(f"{name} {count}" for name, count in sorted(jobs.by_worker.items()))
    print(
        f"{what:<24}{jobs.count / took_s:>6.0f} jobs/s  lost claims {share * 100:.2f} % ({lost} of {won + lost}; below "
        f"{LOST_GOAL * 100:.0f} %: {verdict})  repeated deliveries {new[REPEATED]}, of ended jobs "
        f"{new[_ENDED_BEFORE]}; consumers made anew {new[_ANEW]}\n"
        f"{'':<24}{dict(jobs.ended)}; {shares}",
        flush=True,
    )
    return counted


async def _beside(stack: UpStack, run_s: float, runs: int) -> None:
    """Lone jobs while one of two devices is in a run of ``run_s``."""
    print(f"\none device in a run of {run_s:g} s, one idle; {runs} runs, {LONE} lone jobs beside each", flush=True)
    jobs = await Jobs(stack.bus, [SLOW], body_of(0.0)).start()
    await register(stack, [SLOW], replicas=2, max_batch=1)
    await _started(stack, 2)
    lone = body_of(0.0)
    await asyncio.gather(*(jobs.run_one(body_of(0.2)) for _ in range(8)))  # both hold, and have it in memory
    started: list[float] = []
    ended: list[float] = []
    for _ in range(runs):
        long = await jobs.begin_one(body_of(run_s))
        await asyncio.sleep(BEGUN_S)
        for _ in range(LONE):
            began = time.perf_counter()
            end = await jobs.run_one(lone)
            ended.append((time.perf_counter() - began) * 1e3)
            started.append(end.phases["started"])
            await asyncio.sleep(BEGUN_S)
        await jobs.ended_of(long)
    for what, ms in (("accepted to started", started), ("accepted to ended", ended)):
        reported = "" if what.endswith("ended") else f" (below {LONE_MS:.0f}: {_verdict(max(ms) < LONE_MS)})"
        print(
            f"a lone job, {what}: p50 {statistics.median(ms):.1f} ms, max {max(ms):.1f} ms{reported}, n {len(ms)}",
            flush=True,
        )


async def _started(stack: UpStack, count: int) -> list[ToyWorker]:
    return await asyncio.gather(
        *(ToyWorker.started(stack, f"worker-{number + 1}", f"cpu:{number}") for number in range(count))
    )


def _verdict(is_met: bool) -> str:
    return "as promised" if is_met else "NOT MET"
