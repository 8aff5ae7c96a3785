"""Measures everything that ``make up`` starts against the least that could do the same, in turn in one run."""

import asyncio
import json
import statistics
from collections import defaultdict
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks.front.path import costs
from benchmarks.rig.bed import FIRST_ANSWER_S, RETRY_S, headers_of
from benchmarks.rig.load import Figures, Target, prepare, run
from benchmarks.rig.processes import Cost
from benchmarks.shortest.programs import READY
from signalbox.ops import probes
from signalbox.ops.ports import HOST
from signalbox.ops.up.consoleclient import ConsoleClient
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.main import bring_up
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Unavailable

BODIES: Final[Mapping[str, bytes]] = {
    "half_plus_two": json.dumps({"instances": [1.0]}).encode(),
    "mlp": json.dumps({"instances": [[round(pixel % 17 / 17, 4) for pixel in range(784)]]}).encode(),
}
"""The two models, and one row for each."""
IN_FLIGHT: Final = (32, 128)
GOAL: Final = 0.8
READY_S: Final = 300.0
"""TensorFlow is imported in it, which a busy machine makes slow."""
TURNS: Final = ("bare", "whole", "bare")
Rates = dict[tuple[str, int], list[float]]


async def measure(folder: Path, *, seconds: float) -> dict[tuple[str, int], float]:
    """Print rates, processor time by program, and the ratios; returns these by model and number in flight."""
    rates: dict[str, Rates] = {what: defaultdict(list) for what in TURNS}
    for what in TURNS:
        # One worker, as the shortest path has: a second one of the device would be handed it now and then.
        options = UpOptions(data=folder / what, workers=1, front="edge", front_port=0, console_port=0, nats_port=0)
        with DataDir(folder / what) as data:
            stack = UpStack(options, data, lambda sentence: print(f"  ({sentence})", flush=True))
            try:
                key = await (_bare(stack) if what == "bare" else _whole(stack))
                await _turn(stack, what, key, seconds, rates[what])
            finally:
                await stack.stop()
    ratios = {}
    for (model, in_flight), bare in rates["bare"].items():
        least, ours = statistics.median(bare), statistics.median(rates["whole"][model, in_flight])
        ratio = ratios[model, in_flight] = ours / least
        verdict = "as aimed at" if ratio >= GOAL else "TOO LITTLE"
        print(f"{model}, {in_flight} in flight: {ours:.0f} of {least:.0f}/s, {ratio:.2f} (aim {GOAL}: {verdict})")
    return ratios


async def _bare(stack: UpStack) -> str:
    """Start the short way."""
    models = stack.data.path / "models"
    await stack.start_nats()
    await _export(stack, models)
    await stack.run_to_end(
        "demo-models", "workers.demo_models", str(models), "--only", "half_plus_two", env=stack.env("worker")
    )
    gateway = stack.spec(
        "gateway",
        "benchmarks.shortest.programs",
        "gateway",
        f"{HOST}:{stack.front_port}",
        env=stack.env("gateway"),
        ready=partial(probes.http, stack.front_url, "/"),
    )
    await stack.start(gateway)
    is_ready = models / READY.decode()
    is_ready.unlink(missing_ok=True)

    async def ready() -> bool:
        return is_ready.exists()

    worker = stack.spec(
        "worker",
        "benchmarks.shortest.programs",
        "worker",
        str(models),
        *BODIES,
        env=stack.env("worker"),
        ready=ready,
        ready_s=READY_S,
    )
    await stack.start(worker)
    return ""


async def _whole(stack: UpStack) -> str:
    """Start everything, and register the second model."""
    models = stack.data.path / "models"
    await _export(stack, models)
    key = (await bring_up(stack)).api_key
    async with ConsoleClient(stack.console_url, await stack.operator_token()) as console:
        if not await console.has("mlp"):
            await console.register("mlp", models / "mlp", "784-128-10.", rows_independent=True)
    return key


async def _export(stack: UpStack, models: Path) -> None:
    path = models / "mlp" / "1"
    if not path.exists():
        await stack.run_to_end("mlp", "benchmarks.shortest.programs", "mlp", str(path), env=stack.env("worker"))


async def _turn(stack: UpStack, what: str, key: str, seconds: float, rates: Rates) -> None:
    for model, body in BODIES.items():
        target = prepare(stack.front_url, f"/v1/models/{model}:predict", body, headers_of(key))
        await _answers(target)
        await asyncio.to_thread(
            run, target, max(IN_FLIGHT), seconds=seconds / 2, warm_s=0.0
        )  # every batch size was run
        for in_flight in IN_FLIGHT:
            before = costs(stack)
            figures = await asyncio.to_thread(run, target, in_flight, seconds=seconds)
            rates[model, in_flight].append(figures.rate)
            _print(f"{what} {model}", figures, before, costs(stack))


async def _answers(target: Target) -> None:
    """Return when the model is loaded."""
    try:
        async with asyncio.timeout(FIRST_ANSWER_S):
            while not (await asyncio.to_thread(run, target, 1, seconds=RETRY_S, warm_s=0.0)).rate:
                pass
    except TimeoutError:
        raise Unavailable(f"No prediction within {FIRST_ANSWER_S:g} s.") from None


def _print(what: str, figures: Figures, before: Mapping[str, Cost], after: Mapping[str, Cost]) -> None:
    jobs = max(1, sum(figures.statuses.values()))
    used = {name: (after[name].cpu_s - before[name].cpu_s) / jobs * 1000 for name in after if name in before}
    spent = ", ".join(f"{name} {cpu_s:.2f}" for name, cpu_s in used.items() if cpu_s >= 0.005)
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(figures.statuses.items()))
    print(
        f"{what:<20}{figures.in_flight:>4} in flight {figures.rate:>6.0f}/s  p50 {figures.quantile_ms(0.5):.1f} ms  "
        f"{statuses}\n{'':<8}CPU s per 1000 jobs (warm-up included): {spent}",
        flush=True,
    )
