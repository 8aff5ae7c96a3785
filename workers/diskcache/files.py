"""What residency asks of the files of a version: whether they are here, and that they be fetched.

Versions with an absolute path are always here. Those of a repository in an object store are here once they lie in the
disk cache; a fetch holds no lease, no load and no claim, and is tried for ever with growing pauses.
"""

import asyncio
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Final

from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import NotServing, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.workerdocs import Residency
from workers.diskcache import pinned
from workers.diskcache.cachedversion import CachedVersion, Facts, VersionLock
from workers.diskcache.contents import Contents
from workers.diskcache.dropped import DroppedVersions
from workers.diskcache.fetching import Fetcher, OpenStore
from workers.diskcache.place import Key, LocalFiles, Place
from workers.diskcache.progress import Progress
from workers.diskcache.room import Evicted, NoRoom, TooLargeForCache
from workers.diskcache.settings import CacheSettings
from workers.host import gauges
from workers.statistics.byterate import ByteRate
from workers.statistics.lru import Lru

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Between two tries to fetch a version."""
_MOST_REMEMBERED: Final = 1024
_MOST_RATES: Final = 32
"""Repositories whose rate is kept: those that were fetched from last."""


class _Fetch:
    """A fetch that is under way. error: why it cannot go on now. is_refused: trying again alone mends nothing.

    again: set when it is worth trying again before the pause is over. lacking_bytes: of the room that what is in use
    leaves it.
    """

    __slots__ = ("again", "began", "error", "is_refused", "lacking_bytes", "progress", "repository")

    def __init__(self, repository: str) -> None:
        self.repository = repository
        self.began = time.time()
        self.progress = Progress(time.monotonic)
        self.error = ""
        self.is_refused = False
        self.lacking_bytes = 0
        self.again = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        self.again.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.again.wait()


class Files(LocalFiles):
    """The files of one worker.

    host: what ``digests`` calls it. host_id: as in ``caches``. find_model: the catalog's document of a model.
    is_removed: whether the catalog had a model and has it no more.
    on_change: called with a model when files of it have come, or there is something else to tell.
    """

    def __init__(
        self,
        bus: Bus,
        settings: CacheSettings,
        host: str,
        *,
        host_id: str,
        open_store: OpenStore,
        find_model: Callable[[str], Model | None],
        is_removed: Callable[[str], bool],
        on_change: Callable[[str], None],
    ) -> None:
        self._bus = bus
        self._root = settings.folder
        self._is_made = settings.is_made
        self._host = host
        self._find_model = find_model
        self._is_removed = is_removed
        self._on_change = on_change
        self._fetcher = Fetcher(bus, settings, host, open_store=open_store, on_evicted=self._evicted)
        self._contents = Contents(bus, self._fetcher.room, host_id, self._fetcher.in_thread)
        self._dropped = DroppedVersions(
            self._fetcher.room,
            self._fetcher.in_thread,
            is_dropped=self._is_dropped,
            on_evicted=self._evicted,
            after_s=settings.dropped_s,
        )
        self._is_reported = False
        self._tasks = Background()
        self._is_closed = False
        self._here: dict[tuple[str, Key], Facts] = {}
        """By repository and version. Another worker of this host may have evicted it."""
        self._fetches: dict[Key, _Fetch] = {}
        self._fetched: Lru[Key, tuple[float, float]] = Lru(_MOST_REMEMBERED)
        self._rates: Lru[str, ByteRate] = Lru(_MOST_RATES)
        self._loaded: dict[Key, tuple[VersionLock, int]] = {}
        """Versions that are loaded from the cache: their locks, and their bytes there."""
        self._is_new: set[Key] = set()
        """Fetched and not loaded since."""

    async def start(self) -> None:
        """Find what is in the cache, where its folder was chosen.

        Raises :class:`Misconfigured` where another user could have written to it.
        """
        self._tasks.start(self._dropped.keep(), name="evict what the catalog dropped")
        self._dropped.changed.set()  # something was, perhaps, while this worker was away
        if not self._is_made:
            return
        await self._fetcher.in_thread(self._fetcher.clean)
        for one, facts in (await self._fetcher.in_thread(self._fetcher.room.whole)).items():
            self._here[one.repository, one.key] = facts
        self._report()

    def catalog_changed(self, model: str) -> None:
        """A model was published, or removed: what it has no more is not fetched on, and leaves the cache."""
        self._dropped.changed.set()
        for (name, number), fetch in self._fetches.items():
            if name == model and self._is_dropped(fetch.repository, (name, number)):
                fetch.progress.forsake()
                fetch.again.set()

    async def close(self) -> None:
        """End the fetches; what they have brought stays for the next worker. Idempotent."""
        self._is_closed = True
        await self._tasks.cancel()
        self.release_all()
        self._fetcher.close()

    def residencies(self, but: Collection[Key]) -> Iterator[Residency]:
        """What presence tells of fetches, where it does not say more of the version."""
        for key, fetch in self._fetches.items():
            if key not in but:
                state = "failed" if fetch.is_refused else "fetching"
                progress = fetch.progress
                yield Residency(
                    model=key[0],
                    version=key[1],
                    state=state,
                    error=fetch.error if not progress.received_bytes else "",  # it goes on
                    fetch_bytes=progress.size_bytes,
                    fetched_bytes=progress.fetched_bytes,
                    fetch_rate=float(f"{progress.per_s:.3g}"),
                )

    def rates(self) -> dict[str, float]:
        """Bytes a second that fetches bring, by repository."""
        return {repository: rate.per_s for repository, rate in self._rates.items()}

    # ------------------------------------------------------------------------------ see LocalFiles

    def find(self, model: str, version: Version) -> Place | None:
        """Find a version in its place or in the cache (:meth:`LocalFiles.find`). Asks no disk."""
        if version.path.startswith("/"):
            return Place(version.path, version.digest)
        facts = self._here.get((version.repository, (model, version.version)))
        if facts is None or facts.url != version.path or version.digest not in {"", facts.digest}:
            return None
        return Place(str(self._of(model, version).folder), facts.digest)

    def request(self, model: str, version: Version) -> None:
        """Have a version fetched (:meth:`LocalFiles.request`)."""
        key = model, version.version
        if key not in self._fetches and not self._is_closed and self.find(model, version) is None:
            self._fetches[key] = _Fetch(version.repository)
            self._tasks.start(self._fetch(model, version), name="fetch a version")
            self._on_change(model)

    def is_fetching(self, model: str, version: Version) -> bool:
        """Tell whether a version is on its way (:meth:`LocalFiles.is_fetching`)."""
        return (model, version.version) in self._fetches

    def fetched(self, key: Key) -> tuple[float, float] | None:
        """Tell when a version was fetched last (:meth:`LocalFiles.fetched`)."""
        return self._fetched.get(key)

    def refusal(self, model: str, version: Version) -> str:
        """Tell why a fetch is refused (:meth:`LocalFiles.refusal`)."""
        fetch = self._fetches.get((model, version.version))
        return fetch.error if fetch is not None and fetch.is_refused else ""

    async def open(self, model: str, version: Version) -> Place:
        """Open a version for its load (:meth:`LocalFiles.open`)."""
        key = model, version.version
        if version.path.startswith("/"):
            return Place(version.path, await self._digest_of(key, version))
        if refusal := self.refusal(model, version):
            raise NotServing(f"Version {key[1]} of model {model} cannot be fetched: {refusal}")
        one = self._of(model, version)
        found = await self._fetcher.in_thread(_shared, one, version)
        if found is None:
            self._here.pop((version.repository, key), None)
            self.request(model, version)
            raise Unavailable(f"Version {key[1]} of model {model} is being fetched.")
        lock, facts = found
        self.release(key)
        self._loaded[key] = lock, facts.size_bytes
        if key not in self._is_new:
            gauges.CACHE_HITS.labels(model).inc()
        self._is_new.discard(key)
        self._report()
        return Place(str(one.folder), facts.digest)

    async def settle(self, model: str, version: Version, digest: str) -> None:
        """Compare or write a version's digest (:meth:`LocalFiles.settle`)."""
        if not (digest and version.repository and not version.digest and version.path.startswith("/")):
            return
        key, agree = (model, version.version), partial(pinned.agree, self._bus, registered="", host=self._host)
        if await pinned.digest(self._bus, key) is None:
            # What is written stands for ever, and the runner, in which models run, could say anything.
            await agree(key, await self._fetcher.digest(Path(version.path)))
        await agree(key, digest)

    def doubt(self, model: str, version: Version) -> None:
        """Examine cached files (:meth:`LocalFiles.doubt`)."""
        if not version.path.startswith("/") and not self._is_closed:
            self._tasks.start(self._examine(model, version), name="examine cached files")

    def shortage(self) -> tuple[str, int]:
        """Tell of a fetch that lacks room (:meth:`LocalFiles.shortage`)."""
        return next(
            ((key[0], fetch.lacking_bytes) for key, fetch in self._fetches.items() if fetch.lacking_bytes), ("", 0)
        )

    def held_bytes(self, key: Key) -> int:
        """Tell what would come free (:meth:`LocalFiles.held_bytes`)."""
        return self._loaded[key][1] if key in self._loaded else 0

    def release(self, key: Key) -> None:
        """Let go of a version's files (:meth:`LocalFiles.release`)."""
        lock, size_bytes = self._loaded.pop(key, (None, 0))
        if lock is not None:
            lock.touch()
            lock.close()
            self._report()
            for fetch in self._fetches.values():
                if fetch.lacking_bytes:
                    fetch.lacking_bytes = max(0, fetch.lacking_bytes - size_bytes)
                    fetch.again.set()

    def release_all(self, but: Collection[Key] = ()) -> None:
        """Let go of all files but these (:meth:`LocalFiles.release_all`)."""
        for key in [key for key in self._loaded if key not in but]:
            self.release(key)

    # ------------------------------------------------------------------------------ fetching

    async def _fetch(self, model: str, version: Version) -> None:
        """Until it is here, or the catalog has it no more."""
        key = model, version.version
        gauges.CACHE_MISSES.labels(model).inc()
        pause_s = FIRST_PAUSE_S
        try:
            while (facts := await self._try(model, version)) is None:
                self._note(key)
                self._on_change(model)
                await self._fetches[key].pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                if not self._is_wanted(model, version):
                    return
                if self._fetches[key].progress.is_forsaken:  # it was deleted, and that was undone
                    self._fetches[key].progress = Progress(time.monotonic)
            self._here[version.repository, key] = facts
            self._note(key)
            self._measure_rate(self._fetches[key])
            self._is_new.add(key)
            self._report()
        finally:
            del self._fetches[key]
            self._on_change(model)

    def _note(self, key: Key) -> None:
        self.fetched_until = time.time()
        self._fetched[key] = self._fetches[key].began, self.fetched_until

    def _measure_rate(self, fetch: _Fetch) -> None:
        if seconds := fetch.progress.seconds:
            rate = self._rates[fetch.repository] = self._rates.get(fetch.repository) or ByteRate()
            rate.measured(fetch.progress.received_bytes, seconds)

    async def _try(self, model: str, version: Version) -> Facts | None:
        """What came of one try; None: its fault is noted."""
        fetch = self._fetches[model, version.version]
        fetch.lacking_bytes = 0
        try:
            if not version.repository:
                raise NotServing("It names no repository, whose credentials would be used.")
            return await self._fetcher.fetch(self._of(model, version), version, fetch.progress)
        except SignalboxError as error:
            fetch.error = error.public_message
            fetch.is_refused = isinstance(error, NotServing | TooLargeForCache)
            fetch.lacking_bytes = error.lacking_bytes if isinstance(error, NoRoom) else 0
        except OSError as error:
            fetch.error = f"The disk cache cannot be written: {error.strerror}. Its folder is {self._root}."
            fetch.is_refused = False
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("cache.fetch_failed", model=model, version=version.version)
            fetch.error = "An unforeseen error; the worker's log has it."
        fetch.progress.stop()
        gauges.CACHE_FAILURES.labels(model).inc()
        log.warning("cache.not_fetched", model=model, version=version.version, why=fetch.error)
        return None

    async def _examine(self, model: str, version: Version) -> None:
        """Discard files that are not what they were when they were fetched."""
        one = self._of(model, version)
        facts = await self._fetcher.in_thread(one.is_whole, version.path, version.digest)
        if facts is None or await self._fetcher.digest(one.folder) == facts.digest:
            return
        if await self._fetcher.in_thread(self._fetcher.room.discard, one, "damaged"):
            log.warning("cache.damaged", model=model, version=version.version)
            self._evicted([Evicted(one.key, "damaged")])
            self._here.pop((version.repository, one.key), None)
            self._on_change(model)

    def _is_wanted(self, model: str, version: Version) -> bool:
        found = self._find_model(model)
        return found is not None and any(
            (one.version, one.path, one.digest) == (version.version, version.path, version.digest)
            for one in found.versions
        )

    def _is_dropped(self, repository: str, key: Key) -> bool:
        """Whether the catalog has no such version. It has to have known the model: a lost bucket drops nothing."""
        found = self._find_model(key[0])
        if found is None:
            return self._is_removed(key[0])
        return all((one.repository, one.version) != (repository, key[1]) for one in found.versions)

    async def _digest_of(self, key: Key, version: Version) -> str:
        """What a version's files must have that lie in place."""
        if version.digest or not version.repository:
            return version.digest
        known = await pinned.digest(self._bus, key)
        return known.digest if known is not None else ""

    def _of(self, model: str, version: Version) -> CachedVersion:
        return CachedVersion(self._root, version.repository, model, version.version)

    def _evicted(self, evicted: Sequence[Evicted]) -> None:
        for key, reason in evicted:
            gauges.CACHE_EVICTIONS.labels(key[0], reason).inc()
            log.info("cache.evicted", model=key[0], version=key[1], reason=reason)
            for repository in [known[0] for known in self._here if known[1] == key]:
                del self._here[repository, key]
        self._report()

    def _report(self) -> None:
        """Have the console see what is in the cache now."""
        self._contents.changed.set()
        if not (self._is_reported or self._is_closed):
            self._is_reported = True
            self._tasks.start(self._contents.keep(), name="report the disk cache")


def _shared(one: CachedVersion, version: Version) -> tuple[VersionLock, Facts] | None:
    """A version's lock, shared, and its facts; None where it is not whole."""
    lock = one.lock(is_shared=True)
    if lock is None:
        return None
    facts = one.is_whole(version.path, version.digest)
    if facts is None:
        lock.close()
        return None
    lock.touch()
    return lock, facts
