"""Measures what a job costs where very many wait, against a queue that is as good as empty.

NATS as ``signalbox up`` starts it (``sync_interval: always``), one worker whose runner is a toy, inputs of 4 KB. On
both sides a job is accepted for each that ends, so that both do the same work a job and only the depth differs: on the
one a batch for each model waits, on the other a million jobs. Beside it single acceptances over a connection of their
own are timed. With the million in it NATS is started again, as after an orderly end and as after a crash.
"""

import asyncio
import math
import statistics
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.queue.jobs import Jobs, body_of
from benchmarks.queue.toys import REPEATED, ToyWorker, connected, costs, limit_jobs, register, standing
from signalbox.bus.client import Bus
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire.assets import JOBS
from signalbox.wire.names import Stream

INPUT_BYTES: Final = 4096
BATCH: Final = 32
ACCEPTED_PER_S: Final = 1_600
"""As their ids say, jobs that wait came at this rate, however fast they are put there: a job's slot is its second."""
FEW: Final = 1_000
"""At least so many wait on the side that is as good as empty, so that its worker is never idle either."""
PROBE_EVERY_S: Final = 0.05
FEED_EVERY_S: Final = 0.02
BEGUN_S: Final = 300.0
"""A worker that finds a million jobs must have ended one within it."""
_BATCHES: Final = "signalbox_worker_batch_jobs"
GOAL: Final = 1.2
SLOWEST_MS: Final = 250.0
RESTART_S: Final = 10.0


class Spent(NamedTuple):
    """One side. waiting: jobs. cpu_s: per job, by program. accepted_ms: the single acceptances, sorted.

    rss: at the end, by program.
    """

    waiting: int
    rate: float
    cpu_s: Mapping[str, float]
    accepted_ms: list[float]
    rss: Mapping[str, int]

    @property
    def all_cpu_s(self) -> float:
        """Processor seconds per job of all programs."""
        return sum(self.cpu_s.values())


async def measure(folder: Path, *, depth: int, models: Sequence[int], seconds: float, warm_s: float) -> None:
    """Print both sides and their ratio, for each number of models that the jobs are of."""
    for count in models:
        await _of(folder / str(count), depth, count, seconds, warm_s)


async def _of(folder: Path, depth: int, models: int, seconds: float, warm_s: float) -> None:
    names = [f"toy{number}" for number in range(models)]
    print(f"\n{depth:,} jobs of {models:,} model(s), {INPUT_BYTES} bytes each; one worker", flush=True)
    async with standing(folder) as stack:
        await register(stack, names, max_batch=BATCH)
        jobs = await Jobs(stack.bus, names, body_of(1.0, INPUT_BYTES)).start()
        few = min(depth, max(FEW, BATCH * models))
        await jobs.put(few, over_s=few / ACCEPTED_PER_S)
        empty = await _side(stack, jobs, "empty", few, seconds, warm_s)
        for stream in (Stream.JOBS, Stream.STATE):
            await stack.bus.request_json(f"$JS.API.STREAM.PURGE.{stream}")
        await limit_jobs(stack, JOBS["max_msgs"])
        await _fill(stack, jobs, depth)
        await _restart(stack)
        deep = await _side(stack, jobs, "deep", depth, seconds, warm_s)
    cpu, wall = deep.all_cpu_s / empty.all_cpu_s, empty.rate / deep.rate
    print(
        f"cost of a job, deep to empty: CPU {cpu:.2f}, wall {wall:.2f} (at most {GOAL}: {_verdict(cpu <= GOAL)}, "
        f"{_verdict(wall <= GOAL)}); slowest acceptance {deep.accepted_ms[-1]:.0f} ms (below {SLOWEST_MS:.0f}: "
        f"{_verdict(deep.accepted_ms[-1] < SLOWEST_MS)})",
        flush=True,
    )


async def _fill(stack: UpStack, jobs: Jobs, depth: int) -> None:
    began, before = time.monotonic(), costs(stack)["nats"].cpu_s
    await jobs.put(depth, over_s=depth / ACCEPTED_PER_S)
    took = time.monotonic() - began
    used = costs(stack)["nats"]
    info = (await stack.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}"))["state"]
    print(
        f"filled without a worker in {took:.1f} s, {depth / took:.0f}/s, nats {(used.cpu_s - before) / depth * 1e3:.3f}"
        f" CPU s per 1000; {info['messages']:,} messages, {info['bytes'] / 2**30:.2f} GiB, nats "
        f"{used.rss_bytes / 1e6:.0f} MB resident",
        flush=True,
    )


async def _side(stack: UpStack, jobs: Jobs, what: str, waiting: int, seconds: float, warm_s: float) -> Spent:
    """Start a worker at a queue in which ``waiting`` are, and keep as many there."""
    jobs.forget()
    began = time.monotonic()
    worker = await ToyWorker.started(stack, "worker")
    await limit_jobs(stack, -1)  # what has ended stays there for some seconds
    prober = await connected(stack)
    feeding = asyncio.create_task(_feed(jobs))
    try:
        await jobs.until(1, BEGUN_S)
        first_s = time.monotonic() - began
        await asyncio.sleep(warm_s)
        accepted: list[float] = []
        probing = asyncio.create_task(_probe(jobs, prober, accepted))
        before, count, began = costs(stack), jobs.count, time.monotonic()
        await asyncio.sleep(seconds)
        after, ended, took = costs(stack), jobs.count - count, time.monotonic() - began
        probing.cancel()
    finally:
        feeding.cancel()
        await asyncio.wait([feeding])
        await prober.close()
    if feeding.done() and not feeding.cancelled() and (error := feeding.exception()):
        raise error
    counted = await worker.counted()
    await worker.stopped(stack)
    cpu_s = {name: (after[name].cpu_s - before[name].cpu_s) / max(1, ended) for name in after if name in before}
    rss = {name: each.rss_bytes for name, each in after.items()}
    spent = Spent(waiting, ended / took, cpu_s, sorted(accepted) or [math.nan], rss)
    print(
        f"{what}: first end {first_s:.1f} s after the worker's start; {dict(jobs.ended)} in all, "
        f"{counted[f'{_BATCHES}_sum'] / max(1, counted[f'{_BATCHES}_count']):.1f} a batch; repeated deliveries "
        f"{counted[REPEATED]}",
        flush=True,
    )
    _print(spent)
    return spent


async def _feed(jobs: Jobs) -> None:
    """One for each that has ended, until cancelled."""
    fed = 0
    while True:
        if owed := jobs.count - fed:
            fed += owed
            await jobs.put(owed)
        await asyncio.sleep(FEED_EVERY_S)


async def _probe(jobs: Jobs, bus: Bus, accepted: list[float]) -> None:
    """Time single acceptances, until cancelled."""
    while True:
        began = time.perf_counter()
        await jobs.put_one(bus)
        accepted.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PROBE_EVERY_S)


def _print(spent: Spent) -> None:
    cpu = ", ".join(f"{name} {used * 1e3:.3f}" for name, used in spent.cpu_s.items())
    rss = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in spent.rss.items())
    print(
        f"{spent.waiting:>12,} waiting {spent.rate:>6.0f} jobs/s; acceptance p50 "
        f"{statistics.median(spent.accepted_ms):.1f} ms, max {spent.accepted_ms[-1]:.0f} ms\n"
        f"{'':<12}CPU s per 1000 jobs: {cpu}; all {spent.all_cpu_s * 1e3:.3f}\n"
        f"{'':<12}resident, MB: {rss}",
        flush=True,
    )


async def _restart(stack: UpStack) -> None:
    """Start NATS again with all of them, in order and after a SIGKILL, by ``up``'s own wait for it."""
    server = next(child for child in stack.children if child.spec.name == "nats")
    for how in ("an orderly end", "SIGKILL"):
        began = time.monotonic()
        if how == "SIGKILL":
            server.kill()
            while server.pid:  # noqa: ASYNC110  its end is noticed by the loop
                await asyncio.sleep(0.01)
        else:
            await server.stop()
        ended_s = time.monotonic() - began
        began = time.monotonic()
        is_covered = True
        try:
            await server.start()
        except Unavailable:
            is_covered = False
        held = await _messages(stack)
        took = time.monotonic() - began
        covers = "covers it" if is_covered else "DOES NOT COVER IT"
        print(
            f"nats-server after {how} ({ended_s:.1f} s): answers for JOBS with {held:,} messages after {took:.1f} s "
            f"(within {RESTART_S:.0f}: {_verdict(took <= RESTART_S)}); up waits {server.spec.ready_s:.0f} s, "
            f"which {covers}",
            flush=True,
        )


async def _messages(stack: UpStack) -> int:
    """What is in ``JOBS``, as soon as it answers."""
    async with asyncio.timeout(BEGUN_S):
        while True:
            with suppress(SignalboxError):
                answer = await stack.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
                return int(answer["state"]["messages"])
            await asyncio.sleep(0.02)


def _verdict(is_met: bool) -> str:
    return "as promised" if is_met else "NOT MET"
