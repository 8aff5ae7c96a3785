"""The disk cache's room, locks and downloads on a real disk."""

import asyncio
import hashlib
import os
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import TypeVar, cast

import pytest

from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, Misconfigured, Unavailable
from signalbox.program.tasks import end
from signalbox.wire.manifests import ManifestFile
from workers.diskcache import download
from workers.diskcache.cachedversion import CachedVersion, Facts
from workers.diskcache.contents import InThread
from workers.diskcache.download import Download
from workers.diskcache.dropped import DroppedVersions
from workers.diskcache.fetching import Fetcher
from workers.diskcache.room import Evicted, NoRoom, Room, TooLargeForCache
from workers.diskcache.settings import CacheSettings
from workers.diskcache.stores import Stores

T = TypeVar("T")
URL = "s3://bucket/models"
BOOT = "boot"


class Cache:
    """A cache of 100 bytes, used second by second."""

    def __init__(self, root: Path) -> None:
        self.room = Room(root, 100)
        self.room.make()
        self._second = 1_000_000_000

    def version(self, name: str) -> CachedVersion:
        return CachedVersion(self.room.root, "shop", name, 1)

    def put(self, name: str, size: int) -> list[str]:
        """A version as a fetch leaves it; the names of those that left for it."""
        one = self.version(name)
        lock = one.lock()
        assert lock is not None
        try:
            evicted = self.room.reserve(one, lock, Facts(url=f"{URL}/{name}", size_bytes=size))
            one.part.mkdir()
            (one.part / "weights").write_bytes(b"w" * size)
            self.room.complete(one, lock, Facts(url=f"{URL}/{name}", size_bytes=size, digest="d"))
        finally:
            lock.close()
        self.use(name)
        return [each.key[0] for each in evicted]

    def use(self, name: str) -> None:
        self._second += 1
        os.utime(self.version(name).lock_file, (self._second, self._second))

    def names(self) -> set[str]:
        return {one.key[0] for one in self.room.whole()}


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


def test_the_least_recently_used_leaves_first_and_only_as_many_as_are_needed(cache: Cache) -> None:
    for name in ("a", "b", "c"):
        assert cache.put(name, 30) == []
    cache.use("a")
    assert cache.put("d", 40) == ["b"]
    assert cache.names() == {"a", "c", "d"}
    assert [one.key[0] for one, _, _ in cache.room.contents()] == ["d", "a", "c"], "the last used first"


def test_what_is_loaded_or_being_fetched_stays(cache: Cache) -> None:
    cache.put("loaded", 40)
    cache.put("idle", 20)
    loaded = cache.version("loaded").lock(is_shared=True)
    fetched = cache.version("fetched")
    fetching = fetched.lock()
    assert loaded is not None
    assert fetching is not None
    cache.room.reserve(fetched, fetching, Facts(url=URL, size_bytes=30))
    with pytest.raises(NoRoom, match="30 of the 100"):
        cache.put("large", 50)
    assert cache.names() == {"loaded", "idle"}, "where that does not suffice, none leaves"
    loaded.close()
    assert cache.put("large", 50) == ["loaded"]


def test_what_is_larger_than_the_cache_pushes_nothing_out(cache: Cache) -> None:
    cache.put("a", 100)
    with pytest.raises(TooLargeForCache, match="takes 101 bytes; the disk cache of this host holds 100"):
        cache.put("b", 101)
    assert cache.names() == {"a"}


def test_a_lock_is_shared_by_who_loads_and_excludes_who_fetches(cache: Cache) -> None:
    one = cache.version("a")
    assert one.lock(is_shared=True) is None, "nothing was fetched"
    cache.put("a", 10)
    both = [one.lock(is_shared=True), one.lock(is_shared=True)]
    assert all(both)
    assert one.lock() is None
    for lock in both:
        assert lock is not None
        lock.close()
    exclusive = one.lock()
    assert exclusive is not None
    assert one.lock(is_shared=True) is None
    assert not cache.room.discard(one, "damaged")
    exclusive.close()
    assert cache.room.discard(one, "damaged")
    assert cache.names() == set()


async def test_who_waits_for_a_version_goes_on_when_its_fetch_ends_or_its_loads_do(cache: Cache) -> None:
    one = cache.version("a")
    fetching = one.lock()
    assert fetching is not None
    waiting = [asyncio.create_task(one.freed()) for _ in range(20)]
    given_up = asyncio.create_task(one.freed())
    await asyncio.sleep(0)
    given_up.cancel()
    assert not any(each.done() for each in waiting)
    fetching.close()
    async with asyncio.timeout(10):
        await asyncio.gather(*waiting)
    cache.put("b", 10)
    loaded, other = cache.version("b").lock(is_shared=True), cache.version("b")
    assert loaded is not None
    task = asyncio.create_task(other.freed())
    await asyncio.sleep(0)
    assert not task.done()
    loaded.close()
    async with asyncio.timeout(10):
        await task
        await cache.version("never fetched").freed()


class Dropped:
    """Evicts at once what ``gone`` has the model of."""

    def __init__(self, cache: Cache) -> None:
        self.gone: set[str] = set()
        self.evicted: asyncio.Queue[str] = asyncio.Queue()
        self.refused = asyncio.Event()
        """Set when a version has been found in use."""
        self.made = DroppedVersions(
            cache.room,
            cast("InThread", self._in_thread),
            is_dropped=lambda _, key: key[0] in self.gone,
            on_evicted=self._evicted,
            after_s=0.0,
        )

    async def _in_thread(self, act: Callable[..., object], *given: object) -> object:
        found = await asyncio.to_thread(act, *given)
        if found is False:
            self.refused.set()
        return found

    def _evicted(self, evicted: Sequence[Evicted]) -> None:
        for each in evicted:
            self.evicted.put_nowait(each.key[0])

    def drop(self, *names: str) -> None:
        self.gone |= set(names)
        self.made.changed.set()


async def test_a_dropped_version_in_use_leaves_when_its_last_user_lets_it_go(cache: Cache) -> None:
    for name in "abc":
        cache.put(name, 10)
    used = cache.version("a").lock(is_shared=True)
    assert used is not None
    dropped = Dropped(cache)
    keeping = asyncio.create_task(dropped.made.keep())
    async with asyncio.timeout(10):
        dropped.drop("a", "b")
        assert await dropped.evicted.get() == "b"
        assert cache.names() == {"a", "c"}
        used.close()
        assert await dropped.evicted.get() == "a"
        assert cache.names() == {"c"}
    await end([keeping])


async def test_a_dropped_version_that_the_catalog_has_again_stays(cache: Cache) -> None:
    for name in "ab":
        cache.put(name, 10)
    used = cache.version("a").lock(is_shared=True)
    assert used is not None
    dropped = Dropped(cache)
    keeping = asyncio.create_task(dropped.made.keep())
    async with asyncio.timeout(10):
        dropped.drop("a", "b")
        assert await dropped.evicted.get() == "b"
        await dropped.refused.wait()
        dropped.gone.clear()
        used.close()
        cache.put("b", 10)
        dropped.drop("b")
        assert await dropped.evicted.get() == "b"
        assert cache.names() == {"a"}
    await end([keeping])


def test_a_version_of_another_url_or_digest_is_not_the_one_that_is_here(cache: Cache) -> None:
    cache.put("a", 10)
    one = cache.version("a")
    assert one.is_whole(f"{URL}/a", "")
    assert one.is_whole(f"{URL}/a", "d")
    assert not one.is_whole(f"{URL}/other", "")
    assert not one.is_whole(f"{URL}/a", "another")


def test_a_folder_that_others_may_write_to_is_refused(tmp_path: Path) -> None:
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache").chmod(0o777)
    with pytest.raises(Misconfigured, match="SIGNALBOX_WORKER_CACHE_DIR"):
        Room(tmp_path / "cache", 100).make()


# ------------------------------------------------------------------------------ downloads


class Pieces:
    """A store of files that ends after some pieces. asked: where each stream began. held: streams that wait."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ends_after: int | None = None
        self.asked: list[tuple[str, int]] = []
        self.held: dict[int, asyncio.Event] = {}
        self.etag = "etag"

    async def stream(self, path: str, *, etag: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        self.asked.append((path, start))
        if etag != self.etag:
            raise Conflict("It is another one.")
        if start in self.held:
            await self.held[start].wait()
        data = self.files[path][start:end]
        for number, at in enumerate(range(0, len(data), 4)):
            if number == self.ends_after:
                raise Unavailable("The store is away.")
            yield data[at : at + 4]


async def in_thread(act: Callable[..., T], *args: object) -> T:
    return await asyncio.to_thread(act, *args)


async def bring(
    store: Pieces, one: CachedVersion, files: tuple[ManifestFile, ...], boot: str = BOOT, streams: int = 1
) -> int:
    """How many bytes came."""
    received: list[int] = []
    try:
        await Download(store, "half/1", one, in_thread, received.append).bring(files, boot=boot, streams=streams)
    finally:
        store.asked.sort()
    return sum(received)


async def test_a_download_goes_on_where_it_ended_unless_file_or_machine_changed(cache: Cache) -> None:
    one = cache.version("half")
    lock = one.lock()
    store = Pieces({"half/1/weights": b"0123456789", "half/1/sub/graph": b"graph"})
    files = (ManifestFile("weights", 10, "etag"), ManifestFile("sub/graph", 5, "etag"))
    store.ends_after = 2
    with pytest.raises(Unavailable):
        await bring(store, one, files)
    assert store.asked == [("half/1/weights", 0)]
    store.asked.clear()
    store.ends_after = None
    assert await bring(store, one, files) == 2 + 5
    assert store.asked == [("half/1/sub/graph", 0), ("half/1/weights", 8)]
    assert (one.part / "weights").read_bytes() == b"0123456789"
    assert await bring(store, one, files) == 0, "all of it is here"
    with pytest.raises(Conflict, match="sub/graph has changed in the repository"):
        await bring(store, one, (files[0], ManifestFile("sub/graph", 5, "new")))
    assert await bring(store, one, files[:1]) == 0
    assert not (one.part / "sub/graph").exists()
    assert await bring(store, one, files, boot="another") == 15, "what a power loss left is not trusted"
    assert lock is not None
    lock.close()


async def test_files_of_a_version_come_beside_each_other_so_many_at_a_time(cache: Cache) -> None:
    one, under_way, at_once = cache.version("half"), set[str](), list[int]()
    are_two = asyncio.Event()

    class Slow(Pieces):
        """Sends nothing before two files are asked for."""

        async def stream(self, path: str, *, etag: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
            under_way.add(path)
            at_once.append(len(under_way))
            if len(under_way) == 2:
                are_two.set()
            await are_two.wait()
            async for piece in super().stream(path, etag=etag, start=start, end=end):
                yield piece
            under_way.remove(path)

    names = tuple("abcdefgh")
    store = Slow({f"half/1/{name}": b"0123456789" for name in names})
    lock = one.lock()
    assert lock is not None
    files = tuple(ManifestFile(name, 10, "etag") for name in names)
    async with asyncio.timeout(10):
        assert await bring(store, one, files, streams=2) == 80
    assert max(at_once) == 2
    lock.close()


async def test_a_file_that_comes_slowly_is_helped_by_requests_further_on_and_written_from_its_beginning(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PIECE_BYTES", 8)
    monkeypatch.setattr(download, "HELP_AFTER_S", 0.0)
    data = b"first...second..third"
    one, store = cache.version("half"), Pieces({"half/1/weights": data})
    lock, files = one.lock(), (ManifestFile("weights", len(data), "etag"),)
    weights, came = one.part / "weights", asyncio.Queue[int]()
    store.held = {0: asyncio.Event()}
    coming = Download(store, "half/1", one, in_thread, came.put_nowait).bring(files, boot=BOOT, streams=3)
    bringing = asyncio.create_task(coming)
    async with asyncio.timeout(10):
        assert sum([await came.get() for _ in range(4)]) == len("second..third")
        assert weights.read_bytes() == b""
        store.held[0].set()
        assert await bringing == {"weights": hashlib.sha256(data).hexdigest()}
    assert weights.read_bytes() == data
    assert sorted(store.asked) == [("half/1/weights", 0), ("half/1/weights", 8), ("half/1/weights", 16)]
    weights.unlink()
    store.ends_after = 1
    store.held[0].clear()
    with pytest.raises(Unavailable):
        await bring(store, one, files, streams=3)
    assert weights.read_bytes() == b"", "what came before its turn is not kept"
    store.ends_after = None
    store.held[0].set()
    assert await bring(store, one, files, streams=3) == len(data)
    assert weights.read_bytes() == data
    assert lock is not None
    lock.close()


async def test_a_file_without_an_etag_comes_by_one_request_and_a_longer_one_is_another(
    cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(download, "PIECE_BYTES", 4)
    monkeypatch.setattr(download, "HELP_AFTER_S", 0.0)
    one, store = cache.version("half"), Pieces({"half/1/weights": b"0123456789"})
    lock, store.etag = one.lock(), ""
    assert await bring(store, one, (ManifestFile("weights", 10),), streams=3) == 10
    assert store.asked == [("half/1/weights", 0)]
    with pytest.raises(Conflict, match="weights has changed in the repository"):
        await bring(store, one, (ManifestFile("weights", 9),), streams=3)
    assert lock is not None
    lock.close()


def test_what_ended_workers_left_is_removed_unless_it_may_be_resumed(cache: Cache) -> None:
    cache.put("whole", 10)
    old, resumable = cache.version("old"), cache.version("resumable")
    store = Pieces({"half/1/weights": b"0123456789"})
    files = (ManifestFile("weights", 10, "etag"),)
    for one, boot in ((old, "before"), (resumable, BOOT)):
        lock = one.lock()
        assert lock is not None
        asyncio.run(bring(store, one, files, boot))
        lock.close()
    (cache.room.gone() / "half").mkdir(parents=True)
    cache.room.clean(BOOT)
    assert not old.part.exists()
    assert not old.lock_file.exists()
    assert resumable.part.exists()
    assert cache.names() == {"whole"}
    assert list((cache.room.root / ".gone").iterdir()) == []


class Asked(dict[str, str]):
    """Digests that are known: none. begun: set when that of a file is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self._loop, self.begun = asyncio.get_running_loop(), asyncio.Event()

    def get(self, key: str, default: object = None) -> str:
        self._loop.call_soon_threadsafe(self.begun.set)
        return ""


async def test_a_worker_that_ends_reads_no_file_to_its_end(tmp_path: Path) -> None:
    (tmp_path / "huge").touch()
    os.truncate(tmp_path / "huge", 1 << 40)  # some twenty minutes
    settings, known = CacheSettings(folder=tmp_path / "cache"), Asked()
    fetcher = Fetcher(cast("Bus", None), settings, "h", open_store=Stores(None).open, on_evicted=lambda _: None)
    hashing = asyncio.create_task(fetcher.digest(tmp_path, known))
    await known.begun.wait()
    fetcher.close()
    async with asyncio.timeout(10):
        with pytest.raises(Unavailable, match="The worker ends"):
            await hashing
