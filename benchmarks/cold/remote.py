"""Models of one bucket, put there and published as the console would, and what the worker says of them."""

import asyncio
import json
import math
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec

from benchmarks.rig.bed import Bed, inspected, publish
from signalbox.bus.table import put
from signalbox.client import AsyncClient
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore
from signalbox.wire import names
from signalbox.wire.manifests import Manifest, ManifestFile
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket
from tests.rigs.objectstore import ObjectStoreServer

REPOSITORY: Final = "cold"
ANSWER_S: Final = 60.0
PAUSE_S: Final = 0.05


class Remote(NamedTuple):
    """Models of one bucket, all with the files of one version. like: its document."""

    bed: Bed
    store: ObjectStoreServer
    bucket: str
    files: Path
    like: Model

    @classmethod
    async def made(cls, bed: Bed, store: ObjectStoreServer, name: str, files: Path, *kind: int) -> Self:
        """Of a SavedModel that is made now, in a bucket of its own. kind: see :mod:`benchmarks.cold.model`."""
        command = ("benchmarks.cold.model", str(files), *map(str, kind))
        await bed.stack.run_to_end(name, *command, env=bed.stack.env("worker"))
        return cls(bed, store, store.bucket(), files, await inspected(bed.stack, name, files, 1))

    async def add(self, name: str, *, digest: str = "") -> Model:
        """Put a model into the bucket and publish it as the console would. digest: that its bytes shall have."""
        await asyncio.to_thread(self.store.put_folder, self.bucket, f"{name}/1", self.files)
        url = f"s3://{self.bucket}/{name}/1"
        listing = ObjectStore.open(Location.parse(url), None, REPOSITORY).pages()
        files = [ManifestFile(each.path, each.size_bytes, each.etag) async for page in listing for each in page]
        doc = Manifest(repository=REPOSITORY, url=url, files=tuple(files))
        await put(self.bed.stack.bus, Bucket.MANIFESTS, names.version_key(name, 1), doc)
        version = msgspec.structs.replace(self.like.versions[0], path=url, repository=REPOSITORY, digest=digest)
        model = msgspec.structs.replace(self.like, name=name, versions=(version,), updated_at=time.time())
        await publish(self.bed.stack, model)
        return model

    async def download_s(self, name: str) -> float:
        """Seconds that curl takes for the largest file of a model, to the disk; not a number where there is no curl."""
        if (curl := shutil.which("curl")) is None:
            return math.nan
        largest = max((path for path in self.files.rglob("*") if path.is_file()), key=lambda path: path.stat().st_size)
        url = self.store.signed_url(self.bucket, f"{name}/1/{largest.relative_to(self.files).as_posix()}")
        with tempfile.NamedTemporaryFile(dir=self.files.parent) as out:
            began = time.perf_counter()
            await (await asyncio.create_subprocess_exec(curl, "-sSfo", out.name, url)).wait()
            return time.perf_counter() - began

    @property
    def size_bytes(self) -> int:
        """Of its files."""
        return sum(path.stat().st_size for path in self.files.rglob("*") if path.is_file())

    async def first_answer_s(self, client: AsyncClient, name: str) -> float:
        """Seconds of the first call of a model."""
        await self.until_known(client, name)
        began = time.perf_counter()
        await client.predict(name, instances=[1.0])
        return time.perf_counter() - began

    async def unload(self, client: AsyncClient, model: Model) -> None:
        """Take it out of the worker's memory: withdrawn, and published again."""
        before = len(self.logged("model.unloaded", model.name))
        await publish(self.bed.stack, msgspec.structs.replace(model, versions=(), default_version=None))
        await until(lambda: len(self.logged("model.unloaded", model.name)) > before)
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

    async def until_known(self, client: AsyncClient, name: str) -> None:
        """Return when the front knows a version of the model."""
        async with asyncio.timeout(ANSWER_S):
            while True:
                if any(one["name"] == name and one["versions"] for one in (await client.models())["details"]):
                    return
                await asyncio.sleep(PAUSE_S)


async def until(is_so: Callable[[], bool]) -> None:
    """Return when it is so."""
    async with asyncio.timeout(ANSWER_S):
        while True:
            if is_so():
                return
            await asyncio.sleep(PAUSE_S)
