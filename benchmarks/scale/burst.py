"""Measures a fleet that goes from no worker to four, by 200 jobs, and back: the first answer, changes, and losses.

Each burst lies between two starts of a worker alone, since what else runs on the machine changes them.
"""

import asyncio
import statistics
import time
from collections import Counter
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple

from benchmarks.scale.fleet import MODEL, ScaledStack, Seen, standing
from signalbox.client import AsyncClient

JOBS: Final = 200
DEVICES: Final = 4
RUN_S: Final = 0.25
BURSTS: Final = 3
UP_S: Final = 5.0
DOWN_S: Final = 10.0
GOAL: Final = 1.5
LIMIT_S: Final = 600.0
_AT_ONCE: Final = 16


class Burst(NamedTuple):
    """Seconds since the first job was sent. start_s: of the worker that was ready first, as its host measured it.

    back: changes that were taken back within the windows. processes: of workers that were started.
    """

    first_s: float
    last_s: float
    idle_s: float
    start_s: float
    ended: Counter[str]
    back: int
    processes: int


async def measure(folder: Path) -> None:
    """Print all of it."""
    async with standing(folder) as scaled:
        await scaled.scale(
            autoscale_min=0,
            autoscale_max=DEVICES,
            scale_up_window_s=UP_S,
            scale_down_window_s=DOWN_S,
            scale_to_zero_grace_s=DOWN_S,
        )
        alone_s, bursts = [await scaled.start_worker(0)], []
        await scaled.start_host(DEVICES)
        for number in range(1, BURSTS + 1):
            seen = await Seen(scaled.stack.bus).start()
            try:
                bursts.append(await _burst(scaled, seen))
            finally:
                await seen.close()
            alone_s.append(await scaled.start_worker(number))
    _report(alone_s, bursts)


async def _burst(scaled: ScaledStack, seen: Seen) -> Burst:
    """All jobs at once at a fleet without a worker, until it has none again."""
    await seen.until(lambda: seen.is_idle, LIMIT_S)
    ends: list[tuple[float, str]] = []
    left = iter(range(JOBS))
    began = time.monotonic()
    async with AsyncClient(scaled.stack.front_url, scaled.key, connections=_AT_ONCE, retries=0) as client:

        async def call() -> None:
            for job in [await client.submit(MODEL, instances=[RUN_S]) for _ in left]:
                ended = await client.wait(job, timeout_s=LIMIT_S)
                ends.append((time.monotonic() - began, str(ended.state)))

        await asyncio.gather(*(call() for _ in range(_AT_ONCE)))
    await seen.until(lambda: seen.is_idle, LIMIT_S)
    for what, series in (("devices of the model", seen.needed), ("wanted", seen.wanted), ("ready", seen.ready)):
        print(f"{what + ':':<22}{series.words(began)}", flush=True)
    return Burst(
        first_s=min(at for at, _ in ends),
        last_s=max(at for at, _ in ends),
        idle_s=time.monotonic() - began,
        start_s=seen.first_start_s,
        ended=Counter(state for _, state in ends),
        back=sum(len(each.reversals(up_s=UP_S, down_s=DOWN_S)) for each in (seen.needed, seen.wanted)),
        processes=len(seen.pids),
    )


def _report(alone_s: list[float], bursts: list[Burst]) -> None:
    pairs = list(zip(pairwise(alone_s), bursts, strict=True))
    for (before_s, after_s), one in pairs:
        print(
            f"first answer {one.first_s:.1f} s, last {one.last_s:.1f} s, no worker {one.idle_s:.1f} s; a worker's "
            f"start {one.start_s:.1f} s then, alone {before_s:.1f} s before and {after_s:.1f} s after"
        )
    alone = [one.first_s / ((before_s + after_s) / 2) for (before_s, after_s), one in pairs]
    for what, ratios in (("alone", alone), ("then", [one.first_s / one.start_s for one in bursts])):
        ratio = statistics.median(ratios)
        each = ", ".join(f"{one:.2f}" for one in ratios)
        verdict = _verdict(ratio <= GOAL)
        print(f"first answer by a worker's start {what}: {ratio:.2f} (median of {each}; at most {GOAL}: {verdict})")
    ended = sum((one.ended for one in bursts), Counter[str]())
    print(f"jobs: {dict(ended)} ({_verdict(ended == {'succeeded': JOBS * BURSTS})})")
    back = sum(one.back for one in bursts)
    started = [one.processes for one in bursts]
    verdict = _verdict(not back and max(started) <= DEVICES)
    print(
        f"changes taken back within {UP_S:g} and {DOWN_S:g} s: {back}; workers started: {started} ({verdict})",
        flush=True,
    )


def _verdict(is_met: bool) -> str:
    return "as promised" if is_met else "NOT MET"
