"""A repository that is noticed, with a clock of the test's own, and what is published of its models."""

import asyncio
import shutil
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from console.audit.models import AuditEntry
from console.config import ConsoleSettings
from console.noticing.loop import Noticing
from console.outbox.models import OutboxEntry
from console.outbox.publisher import Publisher
from console.repositories.models import Listing, Repository
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire import manifests, messages, modeldocs, names
from signalbox.wire.names import Bucket
from tests.console.conftest import in_thread
from tests.rigs.models import half_plus_two
from tests.unit.workers.runner.test_model_gate import field

GRAPH = "saved_model.pb"
LIMIT_S = 60.0


class Rig:
    """A repository and what notices it, with a clock of the test's own."""

    def __init__(self, bus: Bus, console: ConsoleSettings, url: str) -> None:
        self.bus = bus
        self.url = url
        self.now = float(int(time.time()) + 3600)  # a database rounds
        self.noticing = Noticing(bus, console, clock=lambda: self.now)

    async def listed(self, **values: Any) -> Listing:
        """What the listing says after one more of it; values: of the repository."""
        return await in_thread(self._found, await self._notice(values))

    async def _notice(self, values: dict[str, Any]) -> Repository:
        row = await in_thread(self.row, **values)
        await self.noticing.notice(row)
        return row

    def row(self, **values: Any) -> Repository:
        """The repository ``zoo``, which waits for nothing."""
        defaults = {"url": self.url, "settle_s": 0.0, "added_by": "ann", "changed_by": "ann", **values}
        return Repository.objects.update_or_create(name="zoo", defaults=defaults)[0]

    def _found(self, row: Repository) -> Listing:
        return Listing.objects.get(repository=row)

    async def manifest(self, model: str, version: int) -> manifests.Manifest:
        """Of a version, as hosts read it."""
        subject = names.key(Bucket.MANIFESTS, names.version_key(model, version))
        stored = await self.bus.direct_get(Bucket.MANIFESTS.stream, subject)
        assert stored is not None
        return messages.decode(manifests.Manifest, stored.data)


class Published:
    """The documents of models, as NATS has them."""

    def __init__(self, table: Table[modeldocs.Model]) -> None:
        self._table = table
        self._changed = asyncio.Event()
        table.on_change(lambda *_: self._changed.set())

    async def of(self, count: int) -> None:
        """Return when there are so many."""
        while len(self._table.items()) < count:
            self._changed.clear()
            await self._changed.wait()

    async def where(self, is_so: Callable[[modeldocs.Model], bool]) -> modeldocs.Model:
        """The first for which it is so."""
        async with asyncio.timeout(LIMIT_S):
            while True:
                self._changed.clear()
                for doc in self._table.items().values():
                    if is_so(doc):
                        return doc
                await self._changed.wait()


@asynccontextmanager
async def running(*parts: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Parts of a program, meanwhile."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@asynccontextmanager
async def documents(bus: Bus) -> AsyncIterator[Published]:
    """What is published, with what publishes it."""
    table = Table(bus, Bucket.MODELS, modeldocs.Model)
    published = Published(table)
    await table.start()
    try:
        async with running(Publisher(bus, 0.1).run()):
            yield published
    finally:
        await table.close()


def lay(folder: Path, model: Path, version: Path | None = None) -> Path:
    """Copy a SavedModel to ``folder``."""
    shutil.copytree(version or half_plus_two(), folder / model)
    return folder / model


def document(name: str = "half") -> modeldocs.Model:
    """The newest decision on a model."""
    return messages.decode(modeldocs.Model, OutboxEntry.objects.filter(key=name).latest("pk").body)


def served(name: str = "half") -> list[int]:
    """Versions that the newest decision has."""
    return [version.version for version in document(name).versions]


def failures() -> list[str]:
    """What the audit says of registrations that failed."""
    return list(AuditEntry.objects.filter(result=AuditEntry.FAILED).values_list("message", flat=True))


def files_of(folder: str) -> dict[str, bytes]:
    """A SavedModel of its own in ``folder``: its graph is like no other."""
    model = half_plus_two()
    files = {path.relative_to(model).as_posix(): path.read_bytes() for path in model.rglob("*") if path.is_file()}
    files[GRAPH] += field(15, folder.encode())
    return {f"{folder}/{path}": data for path, data in files.items()}


def write(folder: Path, files: dict[str, bytes]) -> None:
    """Write them below ``folder``."""
    for path, data in files.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
