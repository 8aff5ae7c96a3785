"""The two transports of the hooks, through a real Tyk: both stacks up at once, under load in turn, in short windows.

So what else the machine does meanwhile meets both.
"""

import asyncio
import os
import statistics
from collections.abc import Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Final

from benchmarks.front.path import IN_FLIGHT, sync_target
from benchmarks.rig.bed import Bed, made
from benchmarks.rig.load import run
from benchmarks.rig.processes import cost
from signalbox.ops.up.tyk import Programs

SETTING: Final = "SIGNALBOX_GATEWAY_TRANSPORT"
KINDS: Final = ("grpc", "native")
ROUNDS: Final = 12
WARM_S: Final = 0.3


async def measure(folder: Path, tyk: Programs, *, seconds: float) -> None:
    """Print rates, their ratio in each pair of windows, and the plugin's processor time."""
    async with AsyncExitStack() as stack:
        beds = {}
        for kind in KINDS:
            os.environ[SETTING] = kind
            beds[kind] = await stack.enter_async_context(made(folder / kind, tyk=tyk))
        print(f"\n{'in flight':>9}{'grpc /s':>9}{'native /s':>11}  native/grpc: median, quartiles, range; plugin's CPU")
        for in_flight in IN_FLIGHT:
            await _turn_about(beds, in_flight, seconds)


async def _turn_about(beds: Mapping[str, Bed], in_flight: int, seconds: float) -> None:
    rates: dict[str, list[float]] = {kind: [] for kind in KINDS}
    cpu_s, jobs = dict.fromkeys(KINDS, 0.0), dict.fromkeys(KINDS, 0)
    for number in range(ROUNDS):
        for kind in KINDS if number % 2 else reversed(KINDS):
            plugin = beds[kind].stack.pids()["gateway"]
            before = cost(plugin).cpu_s
            figures = await asyncio.to_thread(run, sync_target(beds[kind]), in_flight, seconds=seconds, warm_s=WARM_S)
            cpu_s[kind] += cost(plugin).cpu_s - before
            jobs[kind] += sum(figures.statuses.values())
            rates[kind].append(figures.rate)
    ratios = sorted(ours / theirs for ours, theirs in zip(rates["native"], rates["grpc"], strict=True))
    low, median, high = statistics.quantiles(ratios, n=4)
    grpc, native = (statistics.mean(rates[kind]) for kind in KINDS)
    used = ", ".join(f"{kind} {cpu_s[kind] / jobs[kind] * 1000:.2f}" for kind in KINDS)
    print(
        f"{in_flight:>9}{grpc:>9.0f}{native:>11.0f}  {median:.2f}, {low:.2f} to {high:.2f}, {ratios[0]:.2f} to "
        f"{ratios[-1]:.2f}; s per 1000 jobs: {used}",
        flush=True,
    )
