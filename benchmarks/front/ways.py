"""What one small prediction costs on each way behind a Tyk: answered by the post hook, or by the upstream."""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.front.path import BODY, PATH, costs
from benchmarks.rig.bed import Bed, made
from benchmarks.rig.load import Figures, Target, prepare, run
from benchmarks.rig.processes import Cost
from signalbox.ops.up.tyk import Programs

IN_FLIGHT: Final = (1, 32)
TURNS: Final = 2
_INFER: Final = "/v2/models/half_plus_two/infer"
_INFERENCE: Final = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}


async def measure(folder: Path, programs: Programs, *, seconds: float) -> None:
    """Print rates, latencies and processor time of both ways, in turn."""
    async with made(folder, tyk=programs) as bed:
        ways = {
            "post hook": _target(bed, PATH, BODY),
            "upstream": _target(bed, _INFER, json.dumps(_INFERENCE).encode()),
        }
        for _ in range(TURNS):
            for in_flight in IN_FLIGHT:
                for way, target in ways.items():
                    before = costs(bed.stack)
                    figures = await asyncio.to_thread(run, target, in_flight, seconds=seconds)
                    _print(way, figures, before, costs(bed.stack))


def _target(bed: Bed, path: str, body: bytes) -> Target:
    return prepare(bed.stack.front_url, path, body, bed.headers)


def _print(way: str, figures: Figures, before: Mapping[str, Cost], after: Mapping[str, Cost]) -> None:
    jobs = max(1, sum(figures.statuses.values()))
    spent = {name: (after[name].cpu_s - before[name].cpu_s) / jobs * 1000 for name in ("tyk", "gateway", "nats")}
    listed = ", ".join(f"{name} {ms:.2f}" for name, ms in spent.items())
    print(
        f"{way:<10}{figures.in_flight:>4} in flight {figures.rate:>6.0f}/s  p50 {figures.quantile_ms(0.5):.2f} ms  "
        f"{dict(figures.statuses)}  ms of CPU a request (warm-up included): {listed}",
        flush=True,
    )
