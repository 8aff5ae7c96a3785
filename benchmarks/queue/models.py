"""Measures what models cost that nobody calls: two embedded stacks, one of them with very many models, few are busy.

Both are as ``make up`` starts them, without its demonstration, behind the edge, and stand beside one another: load goes
to one and the other in turn, and then both are left alone. Models are not loaded ahead of their first job
(``SIGNALBOX_WORKER_IS_WARM=false``): how many lie in memory is the placement's matter, and would be all that is seen.
"""

import asyncio
import json
import math
import os
import statistics
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.queue.rows import name_of
from benchmarks.rig.bed import headers_of
from benchmarks.rig.load import Figures, Target, in_turn, prepare, run
from benchmarks.rig.processes import Cost, by_program, cost
from signalbox.client import AsyncClient
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, key, token
from signalbox.wire.workerdocs import Worker

MODEL: Final = "half_plus_two"
BODY: Final = json.dumps({"instances": [1.0]}).encode()
IN_FLIGHT: Final = 64
ANSWERED_S: Final = 300.0
"""Until a stack that has learnt of all models answers for the first of them."""
LOADED_S: Final = 240.0
"""Until both workers of a stack, which take turns at its device, have all busy models in memory."""
WARM_S: Final = 2.0
MARGIN: Final = 0.1
GRAIN: Final = 0.05
"""A program that takes less processor time per 1000 jobs, in seconds, is not compared: the kernel counts in 10 ms."""
IDLE_S: Final = 30.0
IDLE_CPU: Final = 0.05
IDLE_BYTES: Final = 60e6
_IS_WARM: Final = "SIGNALBOX_WORKER_IS_WARM"


class Side:
    """One of the two stacks. costs: of its programs under load, per job, a figure for each turn."""

    def __init__(self, stack: UpStack, registered: int, target: Target) -> None:
        self.stack = stack
        self.registered = registered
        self.target = target
        self.rates: list[float] = []
        self.p50s: list[float] = []
        self.cpus: list[Mapping[str, float]] = []

    def spent(self) -> dict[str, Cost]:
        """What its programs have used so far."""
        return by_program(self.stack.pids())

    async def load(self, seconds: float, warm_s: float = WARM_S) -> Figures:
        """One turn of load."""
        return await asyncio.to_thread(run, self.target, IN_FLIGHT, seconds=seconds, warm_s=warm_s)

    async def turn(self, seconds: float) -> None:
        """One that counts; its processor time includes the warm-up."""
        before = self.spent()
        figures = await self.load(seconds)
        after, jobs = self.spent(), max(1.0, figures.rate * (seconds + WARM_S))
        self.rates.append(figures.rate)
        self.p50s.append(figures.quantile_ms(0.5))
        cpu = {name: (after[name].cpu_s - before[name].cpu_s) / jobs * 1e3 for name in after if name in before}
        self.cpus.append(cpu)
        reported = ", ".join(f"{name} {used:.2f}" for name, used in cpu.items() if used >= 0.005)
        statuses = " ".join(f"{status}:{count}" for status, count in sorted(figures.statuses.items()))
        print(
            f"{self.registered:>7,} registered {figures.rate:>6.0f}/s  p50 {self.p50s[-1]:.1f} ms  {statuses}\n"
            f"{'':<19}CPU s per 1000 jobs: {reported}",
            flush=True,
        )

    def cpu(self, name: str) -> float:
        """Median of a program's processor time per 1000 jobs."""
        return statistics.median(each.get(name, 0.0) for each in self.cpus)


async def measure(folder: Path, *, registered: int, busy: int, seconds: float, rounds: int, settle_s: float) -> None:
    """Print both under load, their ratios, and what the idle stacks use.

    settle_s: a model sleeps half a minute after its last job, and its consumers are gone another minute later. An idle
    nats-server collects its garbage, here what reading 10 000 models left, every two minutes.
    """
    print(f"\n{busy} models called, {IN_FLIGHT} in flight; {busy:,} or {registered:,} registered", flush=True)
    with _not_warm():
        async with AsyncExitStack() as held:
            few = await held.enter_async_context(_standing(folder / "few", busy, busy))
            many = await held.enter_async_context(_standing(folder / "many", registered, busy))
            for number in range(rounds):
                for side in (few, many)[:: -1 if number % 2 else 1]:
                    await side.turn(seconds)
            _compare(few, many)
            print(f"\nleft alone for {settle_s:.0f} s, then for {IDLE_S:.0f} s:", flush=True)
            await asyncio.sleep(settle_s)
            await _idle(few, many)


@asynccontextmanager
async def _standing(folder: Path, registered: int, busy: int) -> AsyncIterator[Side]:
    options = UpOptions(data=folder, front="edge", front_port=0, console_port=0, nats_port=0, has_demo=False)
    with DataDir(folder) as data:
        stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
        keeping: asyncio.Task[None] | None = None
        try:
            await bring_up(stack)
            models = data.path / "models"
            env = stack.env("worker")
            await stack.run_to_end("demo-models", "workers.demo_models", str(models), "--only", MODEL, env=env)
            await _register(stack, models / MODEL / "1", registered)
            async with ConsoleClient(stack.console_url, await stack.operator_token()) as console:
                api_key = await console.create_key("bench")
            keeping = asyncio.create_task(stack.keep(lambda: None))
            names = [name_of(registered * number // busy) for number in range(busy)]
            headers = headers_of(api_key)
            paths = [f"/v1/models/{name}:predict" for name in names]
            target = in_turn([prepare(stack.front_url, path, BODY, headers) for path in paths])
            side = Side(stack, registered, target)
            await _answered(stack, api_key, names)
            await _loaded(side, set(names))
            yield side
        finally:
            if keeping is not None:
                keeping.cancel()
                await asyncio.wait([keeping])
            await stack.stop()


async def _register(stack: UpStack, folder: Path, count: int) -> None:
    console = next(child for child in stack.children if child.spec.name == "console")
    began = time.monotonic()
    await stack.run_to_end("rows", "benchmarks.queue.rows", str(folder), str(count), env=dict(console.spec.env))
    print(f"  ({count:,} models registered in {time.monotonic() - began:.1f} s)", flush=True)


async def _answered(stack: UpStack, api_key: str, names: list[str]) -> None:
    """Each of the busy models once."""
    began = time.monotonic()
    async with AsyncClient(stack.front_url, api_key, retries=0) as client, asyncio.timeout(ANSWERED_S):
        for name in names:
            while True:
                with suppress(SignalboxError):
                    await client.predict(name, instances=[1.0])
                    break
                await asyncio.sleep(0.25)
    print(f"  ({len(names)} of them have answered after {time.monotonic() - began:.1f} s)", flush=True)


async def _loaded(side: Side, names: set[str]) -> None:
    """Keep the stack busy until both of its workers have had the device for long enough to load all."""
    end = time.monotonic() + LOADED_S
    lacking = names
    while lacking and time.monotonic() < end:
        await side.load(2.0, 0.0)
        first, second = [await _resident(side.stack, f"worker-{number}") for number in (1, 2)]
        lacking = names - (first & second)
    if lacking:
        print(f"  (a worker has not loaded {len(lacking)} models: turns will differ)", flush=True)


async def _resident(stack: UpStack, worker: str) -> set[str]:
    found = await stack.bus.leader_get(Bucket.WORKERS.stream, key(Bucket.WORKERS, token(worker)))
    try:
        models = decode(Worker, found.data).models if found is not None else ()
    except msgspec.MsgspecError:  # a marker of its expiry
        return set()
    return {residency.model for residency in models if residency.state in {"ready", "spare"}}


# ------------------------------------------------------------------------------ what is told


def _compare(few: Side, many: Side) -> None:
    print(f"\nmedians of {len(few.rates)} turns, {many.registered:,} registered to {few.registered:,}:")
    pairs = [
        ("jobs/s", statistics.median(few.rates), statistics.median(many.rates), False),
        ("p50 ms", statistics.median(few.p50s), statistics.median(many.p50s), True),
    ]
    names = [name for name in few.cpus[0] if name in many.cpus[0]]
    pairs += [(f"CPU {name}", few.cpu(name), many.cpu(name), True) for name in names]
    pairs.append(("CPU all", sum(map(few.cpu, names)), sum(map(many.cpu, names)), True))
    for what, less, more, is_cost in pairs:
        if max(less, more) < GRAIN:
            print(f"  {what:<24}{less:>10.3f} -> {more:>10.3f}        too little to compare", flush=True)
            continue
        ratio = more / less if less else math.inf
        is_met = ratio <= 1 + MARGIN if is_cost else ratio >= 1 - MARGIN
        verdict = "as promised" if is_met else f"NOT WITHIN {MARGIN * 100:.0f} %"
        print(f"  {what:<24}{less:>10.3f} -> {more:>10.3f}  {ratio:.2f}  {verdict}", flush=True)


async def _idle(few: Side, many: Side) -> None:
    """Both at the same time: what else the machine does meets both."""
    before = [side.spent() for side in (few, many)]
    ours = cost(os.getpid()).cpu_s
    began = time.monotonic()
    await asyncio.sleep(IDLE_S)
    after = [side.spent() for side in (few, many)]
    took = time.monotonic() - began
    print(f"{'':<24}{'% of a core':>24}{'resident, MB':>24}")
    totals = [[0.0, 0.0], [0.0, 0.0]]
    for name in [name for name in after[1] if all(name in each for each in (*before, *after))]:
        cpu = [(late[name].cpu_s - early[name].cpu_s) / took for early, late in zip(before, after, strict=True)]
        rss = [late[name].rss_bytes for late in after]
        for place in (0, 1):
            totals[place][0] += cpu[place]
            totals[place][1] += rss[place]
        _print_idle(name, cpu, [float(each) for each in rss])
    _print_idle("all", [total[0] for total in totals], [total[1] for total in totals])
    share, more = totals[1][0], totals[1][1] - totals[0][1]
    print(
        f"idle with {many.registered:,}: {share * 100:.2f} % of a core (below {IDLE_CPU * 100:.0f}: "
        f"{_verdict(share < IDLE_CPU)}), {more / 1e6:+.0f} MB (at most {IDLE_BYTES / 1e6:.0f}: "
        f"{_verdict(more <= IDLE_BYTES)}); up itself, of both, {(cost(os.getpid()).cpu_s - ours) / took * 100:.2f} %",
        flush=True,
    )


def _print_idle(name: str, cpu: list[float], rss: list[float]) -> None:
    print(
        f"  {name:<22}{cpu[0] * 100:>10.2f} -> {cpu[1] * 100:>9.2f} {rss[0] / 1e6:>11.0f} -> {rss[1] / 1e6:>8.0f}",
        flush=True,
    )


def _verdict(is_met: bool) -> str:
    return "as promised" if is_met else "NOT MET"


@contextmanager
def _not_warm() -> Iterator[None]:
    """Workers started here load nothing ahead."""
    before = os.environ.get(_IS_WARM)
    os.environ[_IS_WARM] = "false"
    try:
        yield
    finally:
        os.environ.pop(_IS_WARM)
        if before is not None:
            os.environ[_IS_WARM] = before
