"""A load that lasts, a fault every ten seconds, and whether the programs that live through it stay as they were."""

import asyncio
import os
import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from prometheus_client.parser import text_string_to_metric_families

from signalbox.client.pool import ConnectionPool
from signalbox.ops.ports import HOST, free_port
from tests.rigs.processes import resident_bytes
from verification.chaos.faults.catalogue import catalogue
from verification.chaos.faults.fault import measured
from verification.chaos.rig.rig import Rig, rig
from verification.chaos.scenarios.scene import finished, loaded, settled
from verification.chaos.traffic.load import Load

FAULT_EVERY_S: Final = 10.0
LOOK_EVERY_S: Final = 2.0
GROWTH: Final = 0.5 * 2**20 / 1000
"""Bytes a job that a program may grow by: half a MiB in a thousand."""
MORE_FILES: Final = 8
"""A connection here and there; one a fault would be more."""
LAG_S: Final = 0.05
KINDS: Final = frozenset(
    {
        "kill guard",
        "kill runner",
        "ask release",
        "delete lease",
        "reset",
        "hang up",
        "refuse",
        "half open",
        "one way",
        "latency",
    }
)
"""Faults that a program must live through; a stopped one would be late through no fault of its own."""


class Look(NamedTuple):
    """One program at one moment. jobs: accepted up to then."""

    jobs: int
    resident_bytes: int
    files: int


class GrowthWatch:
    """Looks at programs until it is cancelled. pids: of those watched."""

    def __init__(self, made: Rig, load: Load, names: Sequence[str]) -> None:
        self.pids = {name: made.child(name).pid for name in names}
        self.looks: dict[str, list[Look]] = {name: [] for name in names}
        self._made, self._load = made, load

    async def keep(self) -> None:
        """One look after another."""
        while True:
            for name, pid in self.pids.items():
                if self._made.child(name).pid != pid:
                    continue  # judged at the end
                files = len(os.listdir(f"/proc/{pid}/fd"))  # noqa: PTH208  only how many
                look = Look(len(self._load.accepted), resident_bytes(pid), files)
                self.looks[name].append(look)
            await asyncio.sleep(LOOK_EVERY_S)


async def soak(folder: Path, rounds: int, seed: int) -> None:
    """rounds: seconds."""
    names = ("gateway", "worker-1", "worker-2", "worker-3")
    ports = dict(zip(names, (free_port() for _ in names), strict=True))
    programs = {name: {"SIGNALBOX_METRICS_PORT": str(port)} for name, port in ports.items()}
    async with rig(folder, workers=3, engine="mixed", programs=programs) as made:
        load, ledger = await loaded(made, seed)
        watch = GrowthWatch(made, load, names)
        watching = asyncio.create_task(watch.keep())
        await _strike(made, rounds, random.Random(seed))
        watching.cancel()
        for name, port in ports.items():
            if made.child(name).pid == watch.pids[name]:
                measured(made, "soak", name, "loop lag, p99", await _lag_s(port), 1.0)
                _judge(made, name, watch.looks[name])
            else:
                made.finding(f"{name} did not live through it")
        await finished(made, load, ledger)
        await settled(made)


async def _strike(made: Rig, seconds: float, rng: random.Random) -> None:
    usable = [fault for fault in catalogue(nodes=1) if fault.kind in KINDS]
    loop = asyncio.get_running_loop()
    began = loop.time()
    for number in range(int(seconds / FAULT_EVERY_S)):
        await asyncio.sleep(max(0.0, began + number * FAULT_EVERY_S - loop.time()))
        (fault,) = rng.choices(usable, [fault.weight for fault in usable])
        await fault.strike(made, rng)
    await asyncio.sleep(max(0.0, began + seconds - loop.time()))


def _judge(made: Rig, name: str, looks: Sequence[Look]) -> None:
    """Its memory and its files, from when a third has passed: by then it has everything it needs."""
    warm = looks[len(looks) // 3 :]
    growth = _slope([(look.jobs, look.resident_bytes) for look in warm])
    half = len(warm) // 2
    files = tuple(max(look.files for look in part) for part in (warm[:half], warm[half:]))
    print(
        f"{name}: {warm[-1].resident_bytes / 2**20:.1f} MiB, {growth * 1000 / 2**20:+.3f} MiB in 1 000 jobs,"
        f" files at most {files[0]}, then {files[1]}"
    )
    if growth > GROWTH:
        made.finding(f"{name} grows by {growth:.0f} bytes a job")
    if files[1] > files[0] + MORE_FILES:
        made.finding(f"{name} had {files[0]} files open, and then {files[1]}")


def _slope(points: Sequence[tuple[float, float]]) -> float:
    """Of the line of least squares."""
    mean_x = sum(x for x, _ in points) / len(points)
    mean_y = sum(y for _, y in points) / len(points)
    spread = sum((x - mean_x) ** 2 for x, _ in points)
    return sum((x - mean_x) * (y - mean_y) for x, y in points) / spread


async def _lag_s(port: int) -> float:
    """The bound below which 99 of 100 of a program's beats came."""
    pool = ConnectionPool(f"http://{HOST}:{port}", size=1, timeout_s=10.0)
    try:
        text = (await pool.request("GET", "/metrics", b"", {})).body.decode()
    finally:
        await pool.close()
    below = _buckets(text, "signalbox_loop_lag_seconds_bucket")
    return next(bound for bound, count in below.items() if count >= 0.99 * below[float("inf")])


def _buckets(text: str, name: str) -> Mapping[float, float]:
    found = {
        float(sample.labels["le"]): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == name
    }
    return dict(sorted(found.items()))
