"""Measures what an account that floods a model costs another with one job at a time, with shares and without."""

import asyncio
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from benchmarks.rig.bed import Bed, headers_of, made, mint
from benchmarks.rig.load import Figures, Target, prepare, run
from gateway_plugin.settings import PREFIX
from signalbox.client import AsyncClient

PATH: Final = "/v1/models/slow:predict"
RUN_S: Final = 0.01
"""A job's time on the device. One runs at a time, so that a hundred a second are a full house."""
FLOOD: Final = 200
BODY: Final = json.dumps({"inputs": [RUN_S]}).encode()
_ROOM: Final = f"{PREFIX}FAIR_ROOM"


async def measure(folder: Path, *, seconds: float) -> None:
    """Print the waits of one account beside those of the other."""
    print(f"\n{'the other account':<34}{'answers':>8}{'p50 ms':>9}{'p95 ms':>9}  statuses")
    for room in (0, 32):
        with _setting(room):
            await _measure(folder / f"room-{room}", room, seconds)


async def _measure(folder: Path, room: int, seconds: float) -> None:
    async with made(folder, models=("half_plus_two", "slow"), max_batch=1) as bed:
        flooder = await mint(bed.stack)
        for key in (bed.key, flooder):
            await _answered(bed, key)
        mine, theirs = (_target(bed, key) for key in (bed.key, flooder))
        if not room:
            _print("nobody", await asyncio.to_thread(run, mine, 1, seconds=seconds))
            _print("sends one by one too", await _beside(mine, theirs, 1, seconds))
        name = f"floods, {FLOOD} in flight, {'room ' + str(room) if room else 'no shares'}"
        _print(name, await _beside(mine, theirs, FLOOD, seconds))


async def _beside(mine: Target, theirs: Target, in_flight: int, seconds: float) -> Figures:
    """Figures of ``mine``, one at a time, while ``theirs`` keep so many in flight, before and after as well."""
    async with asyncio.TaskGroup() as group:
        group.create_task(asyncio.to_thread(run, theirs, in_flight, seconds=seconds + 2.0, warm_s=0.0))
        measured = group.create_task(asyncio.to_thread(run, mine, 1, seconds=seconds, warm_s=2.0))
    return measured.result()


async def _answered(bed: Bed, key: str) -> None:
    """The model is resident and the key known."""
    async with AsyncClient(bed.stack.front_url, key, retries=0) as client:
        await client.predict("slow", inputs=[RUN_S])


def _target(bed: Bed, key: str) -> Target:
    return prepare(bed.stack.front_url, PATH, BODY, headers_of(key))


def _print(what: str, figures: Figures) -> None:
    statuses = " ".join(f"{status}:{count}" for status, count in sorted(figures.statuses.items()))
    print(
        f"{what:<34}{len(figures.latencies_s):>8}{figures.quantile_ms(0.5):>9.1f}"
        f"{figures.quantile_ms(0.95):>9.1f}  {statuses}",
        flush=True,
    )


@contextmanager
def _setting(room: int) -> Iterator[None]:
    """The room that gateways started here keep."""
    before = os.environ.get(_ROOM)
    os.environ[_ROOM] = str(room)
    try:
        yield
    finally:
        os.environ.pop(_ROOM)
        if before is not None:
            os.environ[_ROOM] = before
