"""What residency asks of the files of a version: whether they are here, and that they be fetched.

Versions with an absolute path are always here. Those of a repository in an object store are here once they lie in the
disk cache; a fetch holds no lease, no load and no claim, and is tried for ever with growing pauses.
"""

import asyncio
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import suppress
from typing import Final

from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import NotServing, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire.messages import Model, Residency, Version
from workers.diskcache import pinned
from workers.diskcache.cachedversion import CachedVersion, Facts, VersionLock
from workers.diskcache.fetching import Fetcher, OpenStore
from workers.diskcache.place import Key, LocalFiles, Place
from workers.diskcache.room import Evicted, NoRoom, TooLargeForCache
from workers.diskcache.settings import CacheSettings
from workers.host import gauges
from workers.runner import savedmodel

FIRST_PAUSE_S: Final = 1.0
LONGEST_PAUSE_S: Final = 60.0
"""Between two tries to fetch a version."""


class _Fetch:
    """A fetch that is under way. error: why it cannot go on now. is_refused: trying again alone mends nothing.

    again: set when it is worth trying again before the pause is over. needs_room: what is in use leaves it none.
    """

    __slots__ = ("again", "error", "is_refused", "needs_room")

    def __init__(self) -> None:
        self.error = ""
        self.is_refused = self.needs_room = False
        self.again = asyncio.Event()

    async def pause(self, seconds: float) -> None:
        self.again.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self.again.wait()


class Files(LocalFiles):
    """The files of one worker.

    find_model: the catalog's document of a model. on_change: called with a model when files of it have come, or there
    is something else to tell.
    """

    def __init__(
        self,
        bus: Bus,
        settings: CacheSettings,
        host: str,
        *,
        open_store: OpenStore,
        find_model: Callable[[str], Model | None],
        on_change: Callable[[str], None],
    ) -> None:
        self._bus = bus
        self._root = settings.folder
        self._is_made = settings.is_made
        self._host = host
        self._find_model = find_model
        self._on_change = on_change
        self._fetcher = Fetcher(bus, settings, host, open_store=open_store, on_evicted=self._evicted)
        self._tasks = Background()
        self._is_closed = False
        self._here: dict[tuple[str, Key], Facts] = {}
        """By repository and version. Another worker of this host may have evicted it."""
        self._fetches: dict[Key, _Fetch] = {}
        self._loaded: dict[Key, VersionLock] = {}
        self._is_new: set[Key] = set()
        """Fetched and not loaded since."""

    async def start(self) -> None:
        """Find what is in the cache, where its folder was chosen.

        Raises :class:`Misconfigured` where another user could have written to it.
        """
        if not self._is_made:
            return
        await self._fetcher.in_thread(self._fetcher.clean)
        for one, facts in (await self._fetcher.in_thread(self._fetcher.room.whole)).items():
            self._here[one.repository, one.key] = facts
        await self._measure()

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
                yield Residency(model=key[0], version=key[1], state=state, error=fetch.error)

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
            self._fetches[key] = _Fetch()
            self._tasks.start(self._fetch(model, version), name="fetch a version")
            self._on_change(model)

    def is_fetching(self, model: str, version: Version) -> bool:
        """Tell whether a version is on its way (:meth:`LocalFiles.is_fetching`)."""
        return (model, version.version) in self._fetches

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
        self._loaded[key] = lock
        if key not in self._is_new:
            gauges.CACHE_HITS.labels(model).inc()
        self._is_new.discard(key)
        return Place(str(one.folder), facts.digest)

    async def settle(self, model: str, version: Version, digest: str) -> None:
        """Compare or write a version's digest (:meth:`LocalFiles.settle`)."""
        if digest and version.repository and not version.digest and version.path.startswith("/"):
            await pinned.agree(self._bus, (model, version.version), digest, registered="", host=self._host)

    def doubt(self, model: str, version: Version) -> None:
        """Examine cached files (:meth:`LocalFiles.doubt`)."""
        if not version.path.startswith("/") and not self._is_closed:
            self._tasks.start(self._examine(model, version), name="examine cached files")

    def release(self, key: Key) -> None:
        """Let go of a version's files (:meth:`LocalFiles.release`)."""
        lock = self._loaded.pop(key, None)
        if lock is not None:
            lock.touch()
            lock.close()
            for fetch in self._fetches.values():
                if fetch.needs_room:
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
                self._on_change(model)
                await self._fetches[key].pause(pause_s)
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)
                if not self._is_wanted(model, version):
                    return
            self._here[version.repository, key] = facts
            self._is_new.add(key)
            await self._measure()
        finally:
            del self._fetches[key]
            self._on_change(model)

    async def _try(self, model: str, version: Version) -> Facts | None:
        """What came of one try; None: its fault is noted."""
        fetch = self._fetches[model, version.version]
        try:
            if not version.repository:
                raise NotServing("It names no repository, whose credentials would be used.")
            return await self._fetcher.fetch(self._of(model, version), version)
        except SignalboxError as error:
            fetch.error = error.public_message
            fetch.is_refused = isinstance(error, NotServing | TooLargeForCache)
            fetch.needs_room = isinstance(error, NoRoom)
        except OSError as error:
            fetch.error = f"The disk cache cannot be written: {error.strerror}. Its folder is {self._root}."
            fetch.is_refused = False
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("cache.fetch_failed", model=model, version=version.version)
            fetch.error = "An unforeseen error; the worker's log has it."
        gauges.CACHE_FAILURES.inc()
        log.warning("cache.not_fetched", model=model, version=version.version, why=fetch.error)
        return None

    async def _examine(self, model: str, version: Version) -> None:
        """Discard files that are not what they were when they were fetched."""
        one = self._of(model, version)
        if await self._fetcher.in_thread(_is_damaged, one, version) and await self._fetcher.in_thread(
            self._fetcher.room.discard, one
        ):
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
            gauges.CACHE_EVICTIONS.labels(reason).inc()
            log.info("cache.evicted", model=key[0], version=key[1], reason=reason)
            for repository in [known[0] for known in self._here if known[1] == key]:
                del self._here[repository, key]

    async def _measure(self) -> None:
        gauges.CACHE_BYTES.set(await self._fetcher.in_thread(self._fetcher.room.used_bytes))


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


def _is_damaged(one: CachedVersion, version: Version) -> bool:
    facts = one.is_whole(version.path, version.digest)
    return facts is not None and savedmodel.manifest(one.folder)[1] != facts.digest
