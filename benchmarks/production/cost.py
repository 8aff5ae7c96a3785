"""Measures what three nodes cost: the same calls through the embedded stack and the one of docker-compose.yml."""

import asyncio
import os
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from benchmarks.front.path import BODY, PATH
from benchmarks.production.stack import standing
from benchmarks.rig import bed
from benchmarks.rig.load import Figures, Target, prepare, run
from benchmarks.rig.processes import SyncCounter, by_program
from signalbox.bus.client import Bus
from tests.rigs.runningstack import RunningStack

PREDICTS: Final = (1, 32, 128)
SUBMITS: Final = (1, 32)
SYNC_S: Final = 2.0
WARM_S: Final = 1.0
ENDED_S: Final = 120.0
DRAIN_POLL_S: Final = 0.1
MAX_BATCH: Final = 32
"""As the demonstration's models have it, which the production stack serves."""


class Side:
    """One of the two stacks. pids: of its programs now, by name. nats: how the bus is reached."""

    def __init__(self, name: str, url: str, key: str, bus: Bus) -> None:
        self.name = name
        self.bus = bus
        headers = bed.headers_of(key)
        self.predict = prepare(url, PATH, BODY, headers)
        self.submit = prepare(url, PATH, BODY, {**headers, "Prefer": "respond-async"})

    def pids(self) -> Mapping[str, int]:
        """Process ids of its programs now, by name."""
        raise NotImplementedError

    def nats(self) -> list[int]:
        """Process ids of its NATS nodes."""
        return [pid for name, pid in self.pids().items() if name.startswith("nats")]


class Embedded(Side):
    """``signalbox up``'s programs of a job's path."""

    def __init__(self, made: bed.Bed) -> None:
        super().__init__("embedded", made.stack.front_url, made.key, made.stack.bus)
        self._stack = made.stack

    def pids(self) -> Mapping[str, int]:
        """Process ids by name."""
        return self._stack.pids()


class Production(Side):
    """A production stack, called past the forwarder of the loopback."""

    def __init__(self, running: RunningStack, key: str, bus: Bus, name: str) -> None:
        super().__init__(name, running.facts["direct_front"], key, bus)
        self._running = running

    def pids(self) -> Mapping[str, int]:
        """Process ids by name."""
        return {name: pid for name, pid in self._running.pids().items() if name != "production"}


async def measure_embedded(folder: Path, *, seconds: float) -> None:
    """Print the figures of the embedded stack."""
    _print_load()
    async with bed.made(folder, max_batch=MAX_BATCH) as made:
        await _figures(Embedded(made), seconds)


async def measure(*, seconds: float, up: Path | None, plugins: int, devices: int) -> None:
    """Print the figures of a production stack."""
    async with standing(up, plugins=plugins, devices=devices) as running:
        _print_load()
        bus = await Bus.connect(running.admin(), role="admin", name="bench")
        try:
            names = running.pids()
            count = [sum(name.startswith(stem) for name in names) for stem in ("plugin-", "worker-")]
            label = f"production, {count[0]} plugin(s), {count[1]} worker(s)"
            key = await bed.mint_with(bus, running.secret("key_pepper"))
            side = Production(running, key, bus, label)
            await bed.first_answer(running.facts["direct_front"], key)
            await _figures(side, seconds)
        finally:
            await bus.close()


def _print_load() -> None:
    load = ", ".join(f"{each:.1f}" for each in os.getloadavg())
    print(f"load of the machine before: {load}; {os.cpu_count()} cores", flush=True)


async def _figures(side: Side, seconds: float) -> None:
    print(f"\n{side.name}")
    print(f"{'':<16}{'in flight':>10}{'per s':>9}{'p50 ms':>9}{'p99 ms':>9}  statuses")
    for what, target, counts in (("predict", side.predict, PREDICTS), ("submit (202)", side.submit, SUBMITS)):
        for in_flight in counts:
            before, accepted = _cpu(side.pids()), await accepted_jobs(side.bus)
            figures = await apart(target, in_flight, seconds)
            await drained(side.bus)
            after, accepted = _cpu(side.pids()), await accepted_jobs(side.bus) - accepted
            _print_row(what, figures)
            _print_cpu(before, after, accepted)
    await _count_syncs(side)
    _print_memory(side.pids())


async def apart(target: Target, in_flight: int, seconds: float, warm_s: float = WARM_S) -> Figures:
    """The load comes from a thread of its own; the loop here only keeps our connection to NATS."""
    return await asyncio.to_thread(run, target, in_flight, seconds=seconds, warm_s=warm_s)


async def accepted_jobs(bus: Bus) -> int:
    """Jobs ever accepted: the last sequence of the job stream."""
    answer = await bus.request_json("$JS.API.STREAM.INFO.JOBS")
    return int(answer["state"]["last_seq"])


async def drained(bus: Bus) -> None:
    """Return when every accepted job has ended, so that its cost is counted and the next figure is its own."""
    async with asyncio.timeout(ENDED_S):
        while (await bus.request_json("$JS.API.STREAM.INFO.JOBS"))["state"]["messages"]:  # noqa: ASYNC110  NATS sends no notice of it
            await asyncio.sleep(DRAIN_POLL_S)


def _cpu(pids: Mapping[str, int]) -> dict[str, float]:
    """Processor seconds so far by program."""
    return {name: each.cpu_s for name, each in by_program(pids).items()}


def _print_row(what: str, figures: Figures) -> None:
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(figures.statuses.items()))
    print(
        f"{what:<16}{figures.in_flight:>10}{figures.rate:>9.0f}"
        f"{figures.quantile_ms(0.5):>9.2f}{figures.quantile_ms(0.99):>9.2f}  {statuses}",
        flush=True,
    )


def _print_cpu(before: Mapping[str, float], after: Mapping[str, float], jobs: int) -> None:
    parts = {name: (after[name] - before.get(name, 0.0)) / max(1, jobs) * 1000 for name in after}
    reported = ", ".join(f"{name} {spent:.2f}" for name, spent in parts.items() if spent >= 0.005)
    print(f"{'':<16}CPU s per 1000 jobs ({jobs}): {reported}; all {sum(parts.values()):.2f}", flush=True)


async def _count_syncs(side: Side) -> None:
    if not SyncCounter.is_possible():
        print("disk syncs per job: not counted (strace is missing: apt-get install strace)")
        return
    nodes = side.nats()
    for in_flight in PREDICTS:
        before = await accepted_jobs(side.bus)
        with ExitStack() as held:
            counters = [held.enter_context(SyncCounter(pid)) for pid in nodes]
            await apart(side.predict, in_flight, SYNC_S, warm_s=0.0)
        jobs = max(1, await accepted_jobs(side.bus) - before)
        by_node = [counter.counts() for counter in counters]
        every: Counter[str] = sum(by_node, Counter())
        parts = ", ".join(f"{kind} {count / jobs:.2f}" for kind, count in every.most_common(6))
        by_nodes = " + ".join(f"{counts.total() / jobs:.2f}" for counts in by_node)
        print(
            f"disk syncs per job at {in_flight} in flight, by node: {by_nodes} ({parts}; {jobs} jobs, "
            "under strace, so slower than above)",
            flush=True,
        )


def _print_memory(pids: Mapping[str, int]) -> None:
    reported = ", ".join(f"{name} {each.pss_bytes / 1e6:.0f}" for name, each in by_program(pids).items())
    print(f"memory, MB, what is shared divided by those who share it: {reported}", flush=True)
