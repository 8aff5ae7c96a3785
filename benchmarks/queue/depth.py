"""Measures what a job costs where very many wait, against a queue that is as good as empty.

NATS as ``signalbox up`` starts it (``sync_interval: always``), one worker whose runner is a toy, inputs of 4 KB. On
both sides a job is accepted for each that ends, so that both do the same work a job and only the depth differs: on the
one a batch for each model waits, on the other a million jobs, which came faster than a worker ran them. The worker that
was there as the million came runs on. First it is measured alone: single acceptances over a connection of their own are
timed beside it. Then both sides are at the same time, so that whatever makes the machine slower for a while (by half
within ten minutes, on some) meets both.

Where the jobs are of many models the sides are measured in turn: each takes all that the machine has.

Then, one side at a time, the worker is started anew (``anew``), and at last NATS too, as after an orderly end and as
after a crash (``again``). Where nobody knows any more what was delivered (the consumer goes a minute after its last
reader), each job's record is looked up before it runs; and who begins to remove what has ended reads a minute's records
once more.
"""

import asyncio
import statistics
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

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
"""As their ids say, jobs that wait came at this rate, however fast they are put there: a slot's jobs came in its time.
"""
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


class Side:
    """One of the two stacks, and what was measured of it in all its turns.

    waiting: jobs. cpu_s: by program. accepted_ms: the single acceptances. rss: at the end of the last turn, by program.
    """

    def __init__(self, what: str, stack: UpStack, jobs: Jobs, waiting: int) -> None:
        self.what = what
        self.stack = stack
        self.jobs = jobs
        self.waiting = waiting
        self.ended = 0
        self.took_s = 0.0
        self.cpu_s: Counter[str] = Counter()
        self.accepted_ms: list[float] = []
        self.rss: Mapping[str, int] = {}

    def anew(self, what: str) -> "Side":
        """This stack, with nothing measured yet."""
        return Side(what, self.stack, self.jobs, self.waiting)

    @property
    def rate(self) -> float:
        """Jobs a second."""
        return self.ended / self.took_s

    @property
    def job_cpu_s(self) -> float:
        """Processor seconds per job of all programs."""
        return self.cpu_s.total() / max(1, self.ended)


async def measure(
    folder: Path, *, depth: int, models: Sequence[int], seconds: float, warm_s: float, turns: int
) -> None:
    """Print both sides and their ratio, for each number of models that the jobs are of."""
    for count in models:
        await _of(folder / str(count), depth, count, seconds, warm_s, turns)


async def _of(folder: Path, depth: int, models: int, seconds: float, warm_s: float, turns: int) -> None:
    names = [f"toy{number}" for number in range(models)]
    print(f"\n{depth:,} jobs of {models:,} model(s), {INPUT_BYTES} bytes each; one worker", flush=True)
    async with standing(folder / "empty") as empty_stack, standing(folder / "deep") as deep_stack:
        few = min(depth, max(FEW, BATCH * models))
        deep = await _made("deep", deep_stack, names, depth)
        worker, alone = await _fill(deep), deep.anew("alone")
        await _measure(alone, worker, seconds, warm_s)
        deep.jobs.forget()
        empty = await _made("empty", empty_stack, names, few)
        await empty.jobs.put(few, over_s=few / ACCEPTED_PER_S)
        if models == 1:
            workers = {deep: worker, empty: await _begun(empty)}
            await asyncio.gather(*(_measure(side, of_it, seconds, warm_s) for side, of_it in workers.items()))
            await asyncio.gather(*(of_it.stopped(side.stack) for side, of_it in workers.items()))
            _compare(deep, empty, alone)
        else:
            await worker.stopped(deep_stack)
            await _turn(empty, seconds, warm_s)
            _compare(alone, empty)
        beside, anew = empty.anew("empty"), deep.anew("anew")
        for _ in range(turns):
            for side in (anew, beside):
                await _turn(side, seconds, warm_s)
        _compare(anew, beside)
        await _restart(deep_stack)
        beside, again = empty.anew("empty"), deep.anew("again")
        for side in (beside, again):
            await _turn(side, seconds, warm_s)
    _compare(again, beside)


def _compare(deep: Side, empty: Side, alone: Side | None = None) -> None:
    """Print what a job costs. alone: the deep side with nothing beside it, of whose acceptances to tell."""
    for side in filter(None, (empty, deep, alone)):
        _print(side)
    cpu, wall = deep.job_cpu_s / empty.job_cpu_s, empty.rate / deep.rate
    slowest_ms = max((alone or deep).accepted_ms)
    print(
        f"cost of a job, {deep.what} to empty: CPU {cpu:.2f}, wall {wall:.2f} (at most {GOAL}: "
        f"{_verdict(cpu <= GOAL)}, {_verdict(wall <= GOAL)}); slowest acceptance {slowest_ms:.0f} ms (below "
        f"{SLOWEST_MS:.0f}: {_verdict(slowest_ms < SLOWEST_MS)})",
        flush=True,
    )


async def _made(what: str, stack: UpStack, names: Sequence[str], waiting: int) -> Side:
    await register(stack, names, max_batch=BATCH)
    return Side(what, stack, await Jobs(stack.bus, names, body_of(1.0, INPUT_BYTES)).start(), waiting)


async def _fill(side: Side) -> ToyWorker:
    """Accept jobs while a worker runs them, until as many wait as shall. Returns the worker, which runs on."""
    stack, jobs, depth = side.stack, side.jobs, side.waiting
    began, put = time.monotonic(), 0
    worker = await ToyWorker.started(stack, "worker")
    await limit_jobs(stack, -1)
    while missing := depth + jobs.count - put:
        put += missing
        await jobs.put(missing, over_s=missing / ACCEPTED_PER_S)
    used, took = costs(stack)["nats"], time.monotonic() - began
    info = (await stack.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}"))["state"]
    print(
        f"filled beside a worker in {took:.1f} s: {put:,} accepted, {jobs.count:,} ended; {info['messages']:,} "
        f"messages, {info['bytes'] / 2**30:.2f} GiB, nats {used.rss_bytes / 1e6:.0f} MB resident",
        flush=True,
    )
    jobs.forget()
    return worker


async def _turn(side: Side, seconds: float, warm_s: float) -> None:
    """Start a worker at the queue and measure it."""
    worker = await _begun(side)
    await _measure(side, worker, seconds, warm_s)
    await worker.stopped(side.stack)


async def _begun(side: Side) -> ToyWorker:
    """Start a worker at the queue; it has ended a job."""
    stack, jobs = side.stack, side.jobs
    jobs.forget()
    began = time.monotonic()
    await limit_jobs(stack, JOBS["max_msgs"])
    worker = await ToyWorker.started(stack, "worker")
    await limit_jobs(stack, -1)  # what has ended stays there for some seconds
    await jobs.until(1, BEGUN_S)
    print(f"{side.what:<6}first end after {time.monotonic() - began:.1f} s", flush=True)
    return worker


async def _measure(side: Side, worker: ToyWorker, seconds: float, warm_s: float) -> None:
    """Accept a job for each that has ended since they were last forgotten, and see what that costs."""
    stack, jobs = side.stack, side.jobs
    prober = await connected(stack)
    is_over = asyncio.Event()
    feeding = asyncio.create_task(_feed(jobs, is_over))
    try:
        await asyncio.sleep(warm_s)
        probing = asyncio.create_task(_probe(jobs, prober, side.accepted_ms))
        before, count, began = costs(stack), jobs.count, time.monotonic()
        await asyncio.sleep(seconds)
        after, ended, took = costs(stack), jobs.count - count, time.monotonic() - began
        probing.cancel()
        counted = await worker.counted()
    finally:
        is_over.set()
        await feeding
        await prober.close()
    used = {name: after[name].cpu_s - before[name].cpu_s for name in after if name in before}
    side.cpu_s.update(used)  # a counter adds
    side.rss = {name: each.rss_bytes for name, each in after.items()}
    side.ended += ended
    side.took_s += took
    print(
        f"{side.what:<6}{ended / took:.0f} jobs/s, CPU s per 1000 jobs "
        f"{sum(used.values()) / max(1, ended) * 1e3:.3f}; {dict(jobs.ended)} in all, "
        f"{counted[f'{_BATCHES}_sum'] / max(1, counted[f'{_BATCHES}_count']):.1f} a batch; repeated deliveries "
        f"{counted[REPEATED]}",
        flush=True,
    )


async def _feed(jobs: Jobs, is_over: asyncio.Event) -> None:
    """One for each that has ended."""
    fed = 0
    while True:
        is_last = is_over.is_set()
        if owed := jobs.count - fed:
            fed += owed
            await jobs.put(owed)
        if is_last:
            return
        await asyncio.sleep(FEED_EVERY_S)


async def _probe(jobs: Jobs, bus: Bus, accepted: list[float]) -> None:
    """Time single acceptances, until cancelled."""
    while True:
        began = time.perf_counter()
        await jobs.put_one(bus)
        accepted.append((time.perf_counter() - began) * 1e3)
        await asyncio.sleep(PROBE_EVERY_S)


def _print(side: Side) -> None:
    cpu = ", ".join(f"{name} {used / max(1, side.ended) * 1e3:.3f}" for name, used in side.cpu_s.items())
    rss = ", ".join(f"{name} {size / 1e6:.0f}" for name, size in side.rss.items())
    print(
        f"{side.waiting:>12,} waiting {side.rate:>6.0f} jobs/s; acceptance p50 "
        f"{statistics.median(side.accepted_ms):.1f} ms, max {max(side.accepted_ms):.0f} ms\n"
        f"{'':<12}CPU s per 1000 jobs: {cpu}; all {side.job_cpu_s * 1e3:.3f}\n"
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
