"""Compares a stack that has turned over with a fresh one beside it, both asked in turn.

The pace of a machine that others share changes by a third within an hour, so a stack's first turn is no measure for
its last.
"""

import sys
import time
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Final, NamedTuple

from benchmarks.day import stacks
from benchmarks.day.load import Load
from benchmarks.day.samples import Site
from benchmarks.rig.processes import by_program

LEAST: Final = 0.95
"""Of the fresh one's rate."""
FILL_S: Final = 240.0
"""Most of what is kept for five minutes is there then."""
ROUNDS: Final = 12
WINDOW_S: Final = 40.0


class Window(NamedTuple):
    """rate: good answers a second. cpu_ms: of each program, an answer."""

    rate: float
    cpu_ms: Mapping[str, float]


async def share(aged: Site, settings: Mapping[str, str], load: Load) -> float:
    """Bring up a fresh stack, and print what both do, for twenty minutes; the aged one's rate by the fresh one's.

    settings: those of the aged one. Raises :class:`SignalboxError` where the fresh one does not come up.
    """
    found: dict[str, list[Window]] = {"aged": [], "fresh": []}
    async with stacks.running(settings) as fresh:
        await load.drive(fresh, FILL_S)
        sites = {"aged": aged, "fresh": fresh}
        for number in range(ROUNDS):
            for name in reversed(sites) if number % 2 else sites:
                window = await _window(sites[name], load)
                print(f"{time.strftime('%H:%M:%S')} {name}: {window.rate:.0f} jobs/s", flush=True)
                found[name].append(window)
    print(f"\nbeside a fresh stack, {ROUNDS} windows of {WINDOW_S:g} s each in turn:")
    for name, windows in found.items():
        print(f"  {name:<6} {_reported(windows)}")
    sys.stdout.flush()
    aged_rate, fresh_rate = (fmean(one.rate for one in windows) for windows in found.values())
    return aged_rate / fresh_rate


async def _window(site: Site, load: Load) -> Window:
    pids = {name: pid for name, pid in site.read()["processes"].items() if pid}
    before = by_program(pids)
    figures = await load.drive(site, WINDOW_S)
    after = by_program(pids)
    answers = max(1, sum(sum(one.statuses.values()) for one in figures.values()))
    spent = {name: (after[name].cpu_s - was.cpu_s) / answers * 1e3 for name, was in before.items() if name in after}
    return Window(sum(one.rate for one in figures.values()), spent)


def _reported(windows: Sequence[Window]) -> str:
    programs = [name for name in windows[0].cpu_ms if all(name in one.cpu_ms for one in windows)]
    cpu = ", ".join(f"{name} {fmean(one.cpu_ms[name] for one in windows):.2f}" for name in programs)
    rates = " ".join(f"{one.rate:.0f}" for one in windows)
    return f"{fmean(one.rate for one in windows):.0f} jobs/s ({rates}); CPU, ms a job: {cpu}"
