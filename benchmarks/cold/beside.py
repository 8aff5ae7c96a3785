"""A model that is called steadily while another is loaded again and again: what its calls take, and why not longer.

A load stops the runner's other thread for as long as it has Python's interpreter without a pause; that is measured in a
process with nothing else in it (:mod:`benchmarks.cold.stop`).
"""

import asyncio
import json
import statistics
from collections.abc import Sequence
from typing import Final

from benchmarks.cold.remote import Remote
from benchmarks.rig.load import prepare, run
from signalbox.client import AsyncClient

OPERATIONS: Final = 10_000
PAIRS: Final = 5
WINDOW_S: Final = 3.0
_WARM_S: Final = 0.3
_BODY: Final = b'{"instances": [1.0, 2.0, 5.0]}'


async def measure(large: Remote) -> None:
    """Print it for a load of many bytes, ``large``, and for one of many operations."""
    bed = large.bed
    files = large.files.parent.with_name("operations") / "1"
    many = await Remote.made(bed, large.store, "operations", files, 1000, OPERATIONS)
    async with AsyncClient(bed.stack.front_url, bed.key, retries=0) as client:
        for what, remote in ((f"{large.size_bytes / 1e6:.0f} MB", large), (f"{OPERATIONS:,} operations", many)):
            await _beside(what, remote, client)


async def _beside(what: str, remote: Remote, client: AsyncClient) -> None:
    bed = remote.bed
    target = prepare(bed.stack.front_url, "/v1/models/half_plus_two:predict", _BODY, bed.headers)
    model = await remote.add(f"again-{remote.files.parent.name}")
    await remote.first_answer_s(client, model.name)
    alone, beside, loads = list[float](), list[float](), 0
    for _ in range(PAIRS):
        alone += (await asyncio.to_thread(run, target, 1, seconds=WINDOW_S, warm_s=_WARM_S)).latencies_s
        calls = asyncio.create_task(asyncio.to_thread(run, target, 1, seconds=WINDOW_S, warm_s=_WARM_S))
        while not calls.done():
            await remote.unload(client, model)
            await client.predict(model.name, instances=[1.0])
            loads += 1
        beside += (await calls).latencies_s
    stack = bed.stack
    printed = await stack.run_to_end("stop", "benchmarks.cold.stop", str(remote.files), env=stack.env("worker"))
    nothing, *stops = json.loads(printed.strip().splitlines()[-1])
    print(f"{loads} loads of {what}: calls of another model, p50, p99, max: {_ms(beside)}; without loads {_ms(alone)}")
    found = f"{statistics.median(stops):.1f} ms at most, median of {len(stops)} ({stops[0]:.1f} to {stops[-1]:.1f})"
    print(f"  a load stops the interpreter for {found}; a second without one {nothing:.1f}", flush=True)


def _ms(latencies_s: Sequence[float]) -> str:
    found = sorted(latencies_s)
    chosen = (found[int(share * (len(found) - 1))] for share in (0.5, 0.99, 1.0))
    return ", ".join(f"{1e3 * each:.1f}" for each in chosen) + " ms"
