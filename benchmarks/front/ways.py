"""What one small prediction costs on each way behind a Tyk: answered by the post hook, or by the upstream.

Beside it, in turn: a plugin and an upstream that only answer, on the same files and transport. What the plugin takes
beyond that one's is its own. Once for each transport of the hooks. Processor time for the same work differs by up to
three times with what shares the cores, so it is judged at the pace of the one that only answers over grpc.aio, which is
none of our code.
"""

import asyncio
import json
import os
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from benchmarks.front import bare
from benchmarks.front.path import BODY, PATH, costs
from benchmarks.rig.bed import made
from benchmarks.rig.load import Figures, prepare, run
from benchmarks.rig.processes import Cost
from signalbox.ops.up.stack import UpStack
from signalbox.ops.up.tyk import Programs

SETTING: Final = "SIGNALBOX_GATEWAY_TRANSPORT"
KINDS: Final = ("grpc", "native")
IN_FLIGHT: Final = (1, 32)
TURNS: Final = 3
_WARM_S: Final = 1.0
_INFER: Final = "/v2/models/half_plus_two/infer"
_INFERENCE: Final = {"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "data": [1.0]}]}
WAYS: Final = {"post hook": (PATH, BODY), "upstream": (_INFER, json.dumps(_INFERENCE).encode())}
MOST_MS: Final = {"post hook": 0.35, "upstream": 0.45}
"""Processor time that the plugin may take beyond one that only answers, at the most in flight, where that one takes
:data:`PACE_MS` over :data:`PACER`."""
PACE_MS: Final = {"post hook": 0.31, "upstream": 0.33}
"""What it took where the aims were set."""
PACER: Final = "grpc"
_OURS: Final = "ours"
_BARE: Final = "only answers"


class Spent:
    """Requests and the plugin's processor seconds, by way and plugin, over all turns."""

    def __init__(self) -> None:
        self._requests: Counter[tuple[str, str]] = Counter()
        self._cpu_s: dict[tuple[str, str], float] = {}

    def add(self, way: str, whose: str, requests: int, cpu_s: float) -> None:
        """One turn."""
        self._requests[way, whose] += requests
        self._cpu_s[way, whose] = self._cpu_s.get((way, whose), 0.0) + cpu_s

    def ms(self, way: str, whose: str) -> float:
        """Milliseconds a request."""
        return self._cpu_s[way, whose] / self._requests[way, whose] * 1e3


async def measure(folder: Path, programs: Programs, *, seconds: float) -> None:
    """Print rates, latencies and processor time of both ways, in turn, and what the plugin adds, by transport."""
    given = os.environ.get(SETTING)
    spent: dict[str, Spent] = {}
    for kind in KINDS:
        os.environ[SETTING] = kind
        print(f"hooks over {kind}", flush=True)
        spent[kind] = await _measure(folder / kind, programs, seconds)
    os.environ.pop(SETTING)
    if given is not None:
        os.environ[SETTING] = given
    for kind, found in spent.items():
        for way in WAYS:
            _judge(kind, way, found, spent[PACER])


async def _measure(folder: Path, programs: Programs, seconds: float) -> Spent:
    spent = Spent()
    async with made(folder / _OURS, tyk=programs) as bed, bare.running(folder / "bare", programs) as answering:
        stacks: dict[str, tuple[UpStack, Mapping[str, str]]] = {
            _OURS: (bed.stack, bed.headers),
            _BARE: (answering, bare.HEADERS | {"Content-Type": "application/json"}),
        }
        targets = {
            (way, whose): prepare(stack.front_url, path, body, headers)
            for way, (path, body) in WAYS.items()
            for whose, (stack, headers) in stacks.items()
        }
        for target in targets.values():
            await asyncio.to_thread(run, target, IN_FLIGHT[-1], seconds=_WARM_S, warm_s=0.0)
        for _ in range(TURNS):
            for in_flight in IN_FLIGHT:
                for (way, whose), target in targets.items():
                    stack, _ = stacks[whose]
                    before = costs(stack)
                    # Warm already: requests that are not counted would count in the processor time.
                    figures = await asyncio.to_thread(run, target, in_flight, seconds=seconds, warm_s=0.0)
                    after = costs(stack)
                    _print(way, whose, figures, before, after)
                    if in_flight == IN_FLIGHT[-1]:
                        cpu_s = after["gateway"].cpu_s - before["gateway"].cpu_s
                        spent.add(way, whose, sum(figures.statuses.values()), cpu_s)
    return spent


def _judge(kind: str, way: str, found: Spent, pacer: Spent) -> None:
    ours, least = found.ms(way, _OURS), found.ms(way, _BARE)
    slower = pacer.ms(way, _BARE) / PACE_MS[way]
    most = MOST_MS[way] * slower
    verdict = "as promised" if ours - least <= most else "NOT MET"
    print(
        f"{kind}, {way}, {IN_FLIGHT[-1]} in flight: the plugin takes {ours:.2f} ms of CPU a request, one that only "
        f"answers {least:.2f}: {ours - least:.2f} more (at most {MOST_MS[way]}, at this pace, {slower:.1f} times "
        f"slower, {most:.2f}: {verdict})",
        flush=True,
    )


def _print(way: str, whose: str, figures: Figures, before: Mapping[str, Cost], after: Mapping[str, Cost]) -> None:
    jobs = max(1, sum(figures.statuses.values()))
    spent = {name: after[name].cpu_s - before[name].cpu_s for name in ("tyk", "gateway", "nats") if name in before}
    listed = ", ".join(f"{name} {cpu_s / jobs * 1000:.2f}" for name, cpu_s in spent.items())
    print(
        f"{way:<10}{whose:<13}{figures.in_flight:>4} in flight {figures.rate:>6.0f}/s  p50 "
        f"{figures.quantile_ms(0.5):.2f} ms  {dict(figures.statuses)}  CPU, ms a request: {listed}",
        flush=True,
    )
