"""The disk cache's room, locks and downloads on a real disk."""

import asyncio
import os
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import TypeVar

import pytest

from signalbox.program.errors import Conflict, Misconfigured, Unavailable
from signalbox.wire.messages import ManifestFile
from workers.diskcache.cachedversion import CachedVersion, Facts
from workers.diskcache.download import Download
from workers.diskcache.room import NoRoom, Room, TooLargeForCache

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
    assert cache.room.used_bytes() == 100


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
    assert not cache.room.discard(one)
    exclusive.close()
    assert cache.room.discard(one)
    assert cache.names() == set()


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
    """A store of files that ends after some pieces. asked: where each stream began."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.ends_after: int | None = None
        self.asked: list[tuple[str, int]] = []

    async def stream(self, path: str, *, etag: str, start: int = 0) -> AsyncIterator[bytes]:
        self.asked.append((path, start))
        if etag != "etag":
            raise Conflict("It is another one.")
        data = self.files[path][start:]
        for number, at in enumerate(range(0, len(data), 4)):
            if number == self.ends_after:
                raise Unavailable("The store is away.")
            yield data[at : at + 4]


async def in_thread(act: Callable[..., T], *args: object) -> T:
    return await asyncio.to_thread(act, *args)


async def bring(store: Pieces, one: CachedVersion, files: tuple[ManifestFile, ...], boot: str = BOOT) -> int:
    """How many bytes came."""
    received: list[int] = []
    try:
        await Download(store, "half/1", one, in_thread, received.append).bring(files, boot=boot, streams=1)
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
