"""Measures what the console's programs cost jobs: the whole stack with and without them, in turn, in one run."""

import asyncio
import statistics
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

from benchmarks.front.path import BODY, PATH
from benchmarks.rig.bed import headers_of
from benchmarks.rig.load import Figures, Target, prepare, run
from benchmarks.rig.processes import cost
from signalbox.client import AsyncClient
from signalbox.ops.httppool import ConnectionPool
from signalbox.ops.up.child import Child
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import SignalboxError

PROGRAMS: Final = ("console", "controller", "projector")
IN_FLIGHT: Final = {32: 0.9, 128: 0.85}
"""Callers at once, and the least share of the rate that the console's programs leave."""
ROUNDS: Final = 3
"""Pairs of turns, after a first turn without: A/B/A/B/A/B/A. The medians count: a hand-over of the GPU that falls into
one turn takes seconds of it."""
CURRENT_S: Final = 120.0
POLL_S: Final = 0.2
Rates = dict[int, list[float]]


async def measure(folder: Path, *, seconds: float) -> dict[int, float]:
    """Print both rates and their ratio by number in flight; returns the ratios."""
    options = UpOptions(data=folder, front_port=0, console_port=0, nats_port=0)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        try:
            key = (await bring_up(stack)).api_key
            return await _in_turns(stack, key, seconds)
        finally:
            await stack.stop()


async def _in_turns(stack: UpStack, key: str, seconds: float) -> dict[int, float]:
    target = prepare(stack.front_url, PATH, BODY, headers_of(key))
    await asyncio.to_thread(run, target, 32, seconds=seconds, warm_s=0.0)  # the model is loaded
    without: Rates = defaultdict(list)
    beside: Rates = defaultdict(list)
    async with _stopped(stack):
        await _turn(stack, target, seconds, "without", without)
    for _ in range(ROUNDS):
        await _list_is_current(stack, key)
        await _turn(stack, target, seconds, "with", beside)
        async with _stopped(stack):
            await _turn(stack, target, seconds, "without", without)
    ratios = {}
    for in_flight, least in IN_FLIGHT.items():
        ours, theirs = statistics.median(beside[in_flight]), statistics.median(without[in_flight])
        ratio = ratios[in_flight] = ours / theirs
        verdict = "as promised" if ratio >= least else "TOO LITTLE"
        print(
            f"{in_flight} in flight: the console's programs leave {ratio:.3f} of the rate "
            f"({ours:.0f} of {theirs:.0f}/s; "
            f"promised {least}: {verdict})",
            flush=True,
        )
    return ratios


async def _turn(stack: UpStack, target: Target, seconds: float, what: str, rates: Rates) -> None:
    for in_flight in IN_FLIGHT:
        before = _cpu_s(stack)
        figures = await asyncio.to_thread(run, target, in_flight, seconds=seconds)
        rates[in_flight].append(figures.rate)
        _print(what, figures, before, _cpu_s(stack))


def _print(what: str, figures: Figures, before: Mapping[str, float], after: Mapping[str, float]) -> None:
    jobs = max(1, sum(figures.statuses.values()))
    spent = ", ".join(f"{name} {(after[name] - before[name]) / jobs * 1000:.3f}" for name in after if name in before)
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(figures.statuses.items()))
    print(
        f"{what:<8}{figures.in_flight:>4} in flight {figures.rate:>6.0f}/s  "
        f"p50 {figures.quantile_ms(0.5):.1f} ms  {statuses}\n"
        f"{'':<8}CPU s per 1000 jobs (warm-up included): {spent}",
        flush=True,
    )


def _cpu_s(stack: UpStack) -> dict[str, float]:
    return {name: cost(pid).cpu_s for name, pid in stack.pids().items() if pid}


@asynccontextmanager
async def _stopped(stack: UpStack) -> AsyncIterator[None]:
    """Stop the console's programs within the block, and return when they are ready again."""
    theirs = [child for child in stack.children if child.spec.name in PROGRAMS]
    await asyncio.gather(*(child.stop() for child in theirs))
    yield
    for child in theirs:
        stack.children.remove(child)
    await asyncio.gather(*(_again(stack, child) for child in theirs))


async def _again(stack: UpStack, child: Child) -> None:
    await stack.start(child.spec)


async def _list_is_current(stack: UpStack, key: str) -> None:
    """Return when a job submitted now is in the job list: what was missed meanwhile has been read by then."""
    async with AsyncClient(stack.front_url, key, retries=0) as client:
        job = await client.submit("half_plus_two", instances=[1.0])
    pool = ConnectionPool(stack.console_url, timeout_s=10.0)
    headers = {"Authorization": f"Bearer {await stack.operator_token()}"}
    try:
        async with asyncio.timeout(CURRENT_S):
            while not await _is_listed(pool, job.id, headers):  # noqa: ASYNC110  the list has no event to wait for
                await asyncio.sleep(POLL_S)
    finally:
        await pool.close()


async def _is_listed(pool: ConnectionPool, job_id: str, headers: Mapping[str, str]) -> bool:
    try:
        answer = await pool.request("GET", f"/api/jobs?q=id:{job_id}%20state:succeeded", b"", dict(headers))
    except SignalboxError:
        return False
    return answer.status == 200 and job_id.encode() in answer.body
