"""Keeps the files of uploaded versions in the default repository, where that is an object store.

A row says which files are written, before the first of them is. Each version gets a folder in which nothing lies, and
``saved_model.pb`` last, so that whoever notices models there finds no half of one. What is not kept in the end is
removed: at once, or by the controller, where the store or this program is away.
"""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec
from asgiref.sync import async_to_sync, sync_to_async
from django.conf import settings
from django.db import IntegrityError, transaction
from django.db.models import QuerySet
from django.utils import timezone

from console.accounts.rights import Actor
from console.bounds import MOST_NUMBER
from console.catalog import inspection
from console.catalog.inspection import Inspection
from console.catalog.models import ModelVersion, ServedModel, StoredUpload
from console.catalog.names import owned
from console.catalog.tombstones import require_free
from console.catalog.versions import require_replaceable
from console.config import UPLOADS
from console.outbox.services import post_document
from signalbox.program import log
from signalbox.program.errors import Conflict, InvalidRequest, SignalboxError, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.repositories.entry import Entry
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore
from signalbox.repositories.version import SAVED_MODEL, Refused, made
from signalbox.wire.manifests import ManifestFile
from signalbox.wire.names import Bucket, version_key

ABANDONED_S: Final = 300.0
"""A program that writes files says so more often."""
_TOUCH_S: Final = 2.0
_AT_ONCE: Final = 4
_MOST_GRAPH_BYTES: Final = 256 * 1024**2
_MOST_FOLDERS: Final = 8
"""Of one version: the same files are not uploaded again and again without ever being loaded."""


def write(actor: Actor, name: str, number: int | None, folder: Path, found: Inspection) -> StoredUpload:
    """Write the files below ``folder`` into the store; the caller registers them, or drops them.

    number: as ``uploads.upload`` has it. Raises what that raises; then nothing stays.
    """
    row = _begun(actor, name, number, _files_below(folder), found)
    with dropped_on_failure(row):
        row.files = msgspec.to_builtins(async_to_sync(_write)(row, folder))
    return row


def keep(row: StoredUpload) -> None:
    """Keep the files, and publish their list before the model's document. Within the caller's transaction.

    Raises :class:`Conflict` where they are being removed, since this program stood still for too long.
    """
    row.touched_at = timezone.now()
    mine = StoredUpload.objects.filter(pk=row.pk, state=StoredUpload.WRITING)
    if not mine.update(state=StoredUpload.KEPT, files=row.files, touched_at=row.touched_at):
        raise Conflict("The upload stood still for too long, and its files are removed. Upload the archive again.")
    post_document(Bucket.MANIFESTS, version_key(row.model, row.number), row.document(), name=row.model)


@contextmanager
def dropped_on_failure(row: StoredUpload | None) -> Iterator[None]:
    """Remove the files where the body fails, and those that are replaced where it does not. Raises what it raises."""
    try:
        yield
    except BaseException:
        if row is not None:
            StoredUpload.objects.filter(pk=row.pk, state=StoredUpload.WRITING).update(state=StoredUpload.LEAVING)
            sweep(timezone.now(), row)
        raise
    if row is not None:
        sweep(timezone.now(), row)


def read_graph(version: ModelVersion) -> inspection.GraphInspection:
    """What the ``saved_model.pb`` of a version in the store says by the list of operations of today.

    Raises :class:`InvalidRequest` where it is refused, and what the store raises.
    """
    row = StoredUpload.objects.filter(url=version.path).first()
    files = msgspec.convert(row.files, list[ManifestFile]) if row is not None else []
    etag = next((file.etag for file in files if file.path == SAVED_MODEL), "")
    read = async_to_sync(_store(version.path).read)
    data = read(SAVED_MODEL, most_bytes=_MOST_GRAPH_BYTES, etag=etag)
    with tempfile.TemporaryDirectory(prefix="signalbox-graphs-") as temporary:
        (Path(temporary) / "one").mkdir()
        (Path(temporary) / "one" / SAVED_MODEL).write_bytes(data)
        said = inspection.inspect_graphs(Path(temporary))["one"]
    if said.error:
        raise InvalidRequest(said.error)
    return said


def under_way() -> QuerySet[StoredUpload]:
    """Uploads whose files are being written, and those whose files are being removed; newest first."""
    return StoredUpload.objects.exclude(state=StoredUpload.KEPT)


def sweep(now: datetime, of: StoredUpload | None = None) -> None:
    """Remove once. of: only of this version. Of a store that is away the files stay until the next time. Idempotent."""
    for row in _leaving(now, of):
        try:
            async_to_sync(_store(row.url).remove)({file["path"] for file in row.files})
        except SignalboxError as error:
            log.warning("uploads.not_removed", url=row.url, reason=error.public_message)
            continue
        row.delete()
        log.info("uploads.removed", url=row.url)


def _leaving(now: datetime, of: StoredUpload | None) -> list[StoredUpload]:
    old = StoredUpload.objects.filter(state=StoredUpload.WRITING, touched_at__lt=now - timedelta(seconds=ABANDONED_S))
    old.update(state=StoredUpload.LEAVING)
    leaving = StoredUpload.objects.filter(state=StoredUpload.LEAVING)
    return list(leaving if of is None else leaving.filter(model=of.model, number=of.number))


def _files_below(folder: Path) -> tuple[ManifestFile, ...]:
    """The files to write. Raises :class:`InvalidRequest` where no repository may have them."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    folders = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_dir()}
    entries = [Entry(path.relative_to(folder).as_posix(), path.stat().st_size) for path in files]
    return _manifest(entries, folders)


def _manifest(entries: Sequence[Entry], folders: set[str] | None = None) -> tuple[ManifestFile, ...]:
    try:
        return made("", entries, folders or (), is_marked=False).files
    except Refused as refused:
        raise InvalidRequest(f"These files are refused: {refused}") from refused


def _begun(
    actor: Actor, name: str, number: int | None, files: tuple[ManifestFile, ...], found: Inspection
) -> StoredUpload:
    """A row of a folder that no other version has. Raises as ``uploads.upload``."""
    model = ServedModel.objects.filter(name=name).select_related("repository").first()
    if model is not None and model.repository is not None:
        raise Conflict(f"{owned(name, model.repository)} Choose another name.")
    rows = StoredUpload.objects.filter(model=name)
    chosen = number
    if number is None:
        known = ModelVersion.with_deleted.filter(model__name=name).values_list("number", flat=True)
        number = max([0, *known, *rows.values_list("number", flat=True)]) + 1
    if not 1 <= number <= MOST_NUMBER:
        raise InvalidRequest(f"A version is a number from 1 to {MOST_NUMBER}.")
    if model is not None:
        require_free(model, number)
    old = ModelVersion.objects.filter(model__name=name, number=number).select_related("model").first()
    if old is not None:
        require_replaceable(old, found)
    if rows.filter(number=number, state=StoredUpload.WRITING).exists():
        raise Conflict(f"Version {number} of {name} is being uploaded now. Choose another number.")
    taken = set(rows.values_list("url", flat=True))
    # A version that is replaced keeps its files until the new ones are there: "1", and "01" beside it.
    urls = [settings.CONSOLE.uploads.below(name, "0" * zeros + str(number)).url for zeros in range(_MOST_FOLDERS)]
    url = next((url for url in urls if url not in taken), None)
    if url is None:
        raise Conflict(f"Files of version {number} of {name} wait to be removed. Choose another number.")
    row = StoredUpload(
        model=name,
        number=number,
        url=url,
        files=msgspec.to_builtins(files),
        size_bytes=sum(file.size_bytes for file in files),
        added_by=actor.name,
    )
    try:
        with transaction.atomic():
            row.save(force_insert=True)
    except IntegrityError:  # another upload was faster
        return _begun(actor, name, chosen, files, found)
    return row


async def _write(row: StoredUpload, folder: Path) -> tuple[ManifestFile, ...]:
    store = _store(row.url)
    wanted = {file["path"]: file["size_bytes"] for file in row.files}
    if await _listed(store):
        await sync_to_async(StoredUpload.objects.filter(pk=row.pk).update)(files=[])  # they are another's
        raise Conflict(f"There is a folder of version {row.number} already; choose another number.")
    async with _touching(row) as on_bytes:
        paths = iter(sorted(wanted.keys() - {SAVED_MODEL}, key=lambda path: -wanted[path]))

        async def write_some() -> None:
            for path in paths:
                await store.write(path, folder / path, wanted[path], on_bytes)

        try:
            async with TaskGroup() as group:
                for _ in range(_AT_ONCE):
                    group.create_task(write_some())
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        await store.write(SAVED_MODEL, folder / SAVED_MODEL, wanted[SAVED_MODEL], on_bytes)
        entries = await _listed(store)
    if {entry.path: entry.size_bytes for entry in entries} != wanted:
        raise Unavailable("The store does not have the files as they were written. Upload the archive again.")
    return _manifest(entries)


@asynccontextmanager
async def _touching(row: StoredUpload) -> AsyncIterator[Callable[[int], None]]:
    """Say in the row, every now and then, how far its files are. Raises :class:`Conflict` where they are removed."""
    sent = 0

    def on_bytes(count: int) -> None:
        nonlocal sent
        sent += count

    def touch() -> None:
        mine = StoredUpload.objects.filter(pk=row.pk, state=StoredUpload.WRITING)
        if not mine.update(sent_bytes=sent, touched_at=timezone.now()):
            raise Conflict("The upload stood still for too long, and its files are removed. Upload the archive again.")

    async def keep_touched() -> None:
        while True:
            await asyncio.sleep(_TOUCH_S)
            await sync_to_async(touch)()

    try:
        async with TaskGroup() as group:
            task = group.create_task(keep_touched())
            yield on_bytes
            task.cancel()
    except BaseExceptionGroup as errors:
        raise errors.exceptions[0] from None


async def _listed(store: ObjectStore) -> list[Entry]:
    return [entry async for page in store.pages() for entry in page]


def _store(url: str) -> ObjectStore:
    """The store of one version's folder. Raises :class:`Misconfigured`."""
    folder = settings.CONSOLE.repository_credentials
    return ObjectStore.open(Location.parse(url), Path(folder) if folder else None, UPLOADS)
