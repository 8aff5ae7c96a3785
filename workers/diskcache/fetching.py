"""Fetches one version into the disk cache: lock, list, room, bytes, digest. One try; whoever asks tries again."""

import asyncio
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Final, TypeVar

from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import Conflict, Unavailable
from signalbox.wire.manifests import ManifestFile
from signalbox.wire.modeldocs import Version
from workers.diskcache import pinned
from workers.diskcache.cachedversion import CachedVersion, Facts, VersionLock
from workers.diskcache.download import Download, Store
from workers.diskcache.pinned import OtherBytes
from workers.diskcache.place import Key
from workers.diskcache.progress import Progress
from workers.diskcache.room import Evicted, Room
from workers.diskcache.settings import CacheSettings
from workers.host import gauges
from workers.host.identity import boot_id
from workers.runner import savedmodel

_THREADS: Final = 8
OpenStore = Callable[[str, str], tuple[Store, str]]
"""Of a version's URL and its repository's name: the store, and the version's folder in it."""
OnEvicted = Callable[[Sequence[Evicted]], None]
T = TypeVar("T")


class Fetcher:
    """The fetches of one worker. host: what ``digests`` names as the first one. on_evicted: told what has left."""

    def __init__(
        self, bus: Bus, settings: CacheSettings, host: str, *, open_store: OpenStore, on_evicted: OnEvicted
    ) -> None:
        self.room = Room(settings.folder, settings.limit_bytes)
        self._bus = bus
        self._settings = settings
        self._host = host
        self._open_store = open_store
        self._on_evicted = on_evicted
        self._boot = boot_id()
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="disk cache")
        self._is_closed = threading.Event()
        self._slots: defaultdict[str, asyncio.Semaphore] = defaultdict(lambda: asyncio.Semaphore(settings.fetches))
        self._changed: dict[Key, set[str]] = {}
        """Files that were found to have changed since they were listed."""
        self._refused: dict[Key, tuple[tuple[ManifestFile, ...], OtherBytes]] = {}

    async def in_thread(self, act: Callable[..., T], *args: object) -> T:
        """Run what blocks."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, act, *args)

    def close(self) -> None:
        """Begin nothing more, and end what reads files in a thread: the process waits for its threads."""
        self._is_closed.set()
        self._threads.shutdown(wait=False, cancel_futures=True)

    def clean(self) -> None:
        """Make the cache's folder, and remove what ended workers have left. Blocking."""
        self.room.make()
        self.room.clean(self._boot)

    async def fetch(self, one: CachedVersion, version: Version, progress: Progress) -> Facts:
        """Have a version whole in the cache: it is, another worker of this host brings it, or this one does.

        progress: is told where this one does.

        Raises :class:`OtherBytes`, :class:`TooLargeForCache`, what the store and the bus raise, and ``OSError``.
        """
        await self.in_thread(self.room.make)
        while True:
            if facts := await self.in_thread(one.is_whole, version.path, version.digest):
                return facts
            # A worker has the locks of what it fetches alone: those that wait for a slot are left to others.
            async with self._slots[version.repository]:
                if (lock := await self.in_thread(one.lock)) is not None:
                    try:
                        if facts := await self.in_thread(one.is_whole, version.path, version.digest):
                            return facts
                        return await self._bring(one, version, lock, progress)
                    finally:
                        lock.close()
            await one.freed()

    async def digest(self, folder: Path, known: Mapping[str, str] = MappingProxyType({})) -> str:
        """The digest of the files below a folder. known: sha256 of some.

        Raises ``OSError``; :class:`Unavailable` where the worker ends meanwhile.
        """
        return (await self.in_thread(partial(savedmodel.manifest, folder, known, check=self._go_on)))[1]

    def _go_on(self) -> None:
        if self._is_closed.is_set():
            raise Unavailable("The worker ends.")

    async def _bring(self, one: CachedVersion, version: Version, lock: VersionLock, progress: Progress) -> Facts:
        model, number = one.key
        manifest = await pinned.manifest(self._bus, one.key, version)
        refused = self._refused.get(one.key)
        if refused is not None and refused[0] == manifest.files:
            raise refused[1]
        began_s = asyncio.get_running_loop().time()
        facts = Facts(url=version.path, size_bytes=sum(file.size_bytes for file in manifest.files))
        self._on_evicted(await self.in_thread(self.room.reserve, one, lock, facts))
        store, prefix = self._open_store(version.path, version.repository)
        progress.begin(facts.size_bytes, await self.in_thread(one.part_bytes))

        def received(count: int) -> None:
            gauges.CACHE_FETCHED.labels(model).inc(count)
            progress.received(count)

        download = Download(store, prefix, one, self.in_thread, received)
        try:
            known = await download.bring(manifest.files, boot=self._boot, streams=self._settings.streams)
        except Conflict as error:
            if path := error.facts.get("path"):
                self._changed.setdefault(one.key, set()).add(str(path))
            raise
        await self.in_thread(_require_sizes, one.part, manifest.files)
        digest = await self.digest(one.part, known)  # the runner reads all of them once more before it loads
        await self._agree(one, version, manifest.files, digest)
        whole = Facts(url=facts.url, size_bytes=facts.size_bytes, digest=digest)
        await self.in_thread(self.room.complete, one, lock, whole)
        seconds = asyncio.get_running_loop().time() - began_s
        gauges.CACHE_FETCH_SECONDS.labels(model).observe(seconds)
        gauges.THEIR_FETCH_SECONDS.labels(model, number).observe(seconds)
        self._refused.pop(one.key, None)
        self._changed.pop(one.key, None)
        log.info("cache.fetched", model=model, version=number, size_bytes=facts.size_bytes, seconds=round(seconds, 3))
        return whole

    async def _agree(self, one: CachedVersion, version: Version, files: tuple[ManifestFile, ...], digest: str) -> None:
        try:
            await pinned.agree(self._bus, one.key, digest, registered=version.digest, host=self._host)
        except OtherBytes as error:
            changed = ", ".join(sorted(self._changed.pop(one.key, ())))[:500]
            refusal = OtherBytes(f"{error.public_message} Changed in the repository: {changed}.") if changed else error
            self._refused[one.key] = files, refusal
            await self.in_thread(one.remove, self.room.gone())
            raise refusal from error


def _require_sizes(folder: Path, files: tuple[ManifestFile, ...]) -> None:
    """Raises :class:`Unavailable` unless each file has the size that was listed."""
    for file in files:
        found = (folder / file.path).stat().st_size
        if found != file.size_bytes:
            raise Unavailable(f"{file.path} has {found} bytes on the disk, and not {file.size_bytes}.")
