"""The room of the disk cache: what all versions on this host take, and which leave for others. Blocking.

One lock of the whole cache is held while room is made or a version becomes whole, for as long as that takes.
"""

import fcntl
import os
import secrets
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.program.errors import Misconfigured, Unavailable
from workers.diskcache.cachedversion import CachedVersion, Facts, VersionLock
from workers.diskcache.place import Key

_GONE: Final = ".gone"
_LOCK: Final = ".room"
SPARE_BYTES: Final = 64 << 20
"""Room that a fetch leaves on the disk."""


class TooLargeForCache(Unavailable):
    """The version is larger than the whole cache."""


class NoRoom(Unavailable):
    """What is loaded or being fetched leaves no room for the version. lacking_bytes: so much is missing."""

    def __init__(self, public_message: str, *, lacking_bytes: int) -> None:
        super().__init__(public_message)
        self.lacking_bytes = lacking_bytes


class Evicted(NamedTuple):
    """A version that has left. reason: ``room``, ``disk``, ``changed``, ``damaged`` or ``dropped``."""

    key: Key
    reason: str


class Room:
    """The cache's folder. limit_bytes: of all versions in it together; 0 = half of its file system."""

    def __init__(self, root: Path, limit_bytes: int) -> None:
        self.root = root
        self._limit_bytes = limit_bytes

    @property
    def limit_bytes(self) -> int:
        """The most bytes of all versions together."""
        if self._limit_bytes:
            return self._limit_bytes
        disk = os.statvfs(self.root)
        return disk.f_blocks * disk.f_frsize // 2

    def make(self) -> None:
        """Make the folder. Raises :class:`Misconfigured` where another user could have put something there."""
        try:
            self.root.mkdir(mode=0o711, parents=True, exist_ok=True)
            facts = self.root.lstat()
        except OSError as error:
            raise Misconfigured(f"SIGNALBOX_WORKER_CACHE_DIR: {self.root} cannot be made: {error.strerror}.") from error
        if facts.st_uid != os.geteuid() or facts.st_mode & 0o022 or self.root.is_symlink():
            raise Misconfigured(
                f"SIGNALBOX_WORKER_CACHE_DIR: {self.root} must be a folder of the worker's user that nobody else may"
                " write to."
            )
        self.root.chmod(0o711)  # whatever the umask: the runner's user passes through, and lists nothing
        (self.root / _GONE).mkdir(mode=0o700, exist_ok=True)

    def clean(self, boot: str) -> None:
        """Remove what ended workers have left of evictions, and of fetches before the machine's last start."""
        with self._locked():
            for old in (self.root / _GONE).iterdir():
                shutil.rmtree(old, ignore_errors=True)
            for one in self._versions():
                if one.part.exists() and one.is_of_another(boot) and (lock := one.lock()) is not None:
                    shutil.rmtree(one.part, ignore_errors=True)
                    one.journal.unlink(missing_ok=True)
                    if not one.folder.exists():
                        one.lock_file.unlink(missing_ok=True)
                    lock.close()

    def whole(self) -> dict[CachedVersion, Facts]:
        """The versions that are there."""
        with self._locked():
            found = {one: one.facts() for one in self._versions() if one.folder.is_dir()}
        return {one: facts for one, facts in found.items() if facts is not None and facts.digest}

    def contents(self) -> list[tuple[CachedVersion, Facts, float]]:
        """What is there or being fetched, and when it was last used (UTC unix seconds); what was used last is first."""
        with self._locked():
            found = [
                (one, facts, one.lock_file.stat().st_mtime)
                for one in self._versions()
                if (facts := one.facts()) is not None
            ]
        return sorted(found, key=lambda each: each[2], reverse=True)

    def reserve(self, one: CachedVersion, lock: VersionLock, facts: Facts) -> list[Evicted]:
        """Make room for a version and count it from now on; what left for it.

        Raises :class:`TooLargeForCache`, :class:`NoRoom`, and :class:`Unavailable` where the disk is full of other
        things.
        """
        limit = self.limit_bytes
        if facts.size_bytes > limit:
            raise TooLargeForCache(
                f"The version takes {facts.size_bytes} bytes; the disk cache of this host holds {limit}. Raise"
                " SIGNALBOX_WORKER_CACHE_BYTES, or serve the model elsewhere."
            )
        evicted = []
        with self._locked(), ExitStack() as locks:
            if one.folder.exists():  # from elsewhere: a version of this number was there before
                one.remove(self.gone())
                evicted.append(Evicted(one.key, "changed"))
            others = self._oldest_first(one)
            free = limit - sum(size for _, size in others)
            idle = self._idle(others, locks)
            leaving = []
            while facts.size_bytes > free and (found := next(idle, None)) is not None:
                free += found[1]
                leaving.append(found[0])
            if facts.size_bytes > free:
                raise NoRoom(
                    f"The version takes {facts.size_bytes} bytes; {max(0, free)} of the {limit} of this host's disk"
                    " cache can be made free: the rest is loaded or being fetched. Raise SIGNALBOX_WORKER_CACHE_BYTES.",
                    lacking_bytes=facts.size_bytes - free,
                )
            evicted += [self._remove(other, "room") for other in leaving]
            while self._is_disk_full(one, facts):
                if (found := next(idle, None)) is None:
                    raise Unavailable(
                        f"The disk of the cache is full: the version takes {facts.size_bytes} bytes. Make room on it,"
                        " or choose another one for SIGNALBOX_WORKER_CACHE_DIR."
                    )
                evicted.append(self._remove(found[0], "disk"))
            lock.write(facts)
        return evicted

    def complete(self, one: CachedVersion, lock: VersionLock, facts: Facts) -> None:
        """The files in ``.part`` are all there, and verified: from now on they are the version's."""
        with self._locked():
            lock.write(facts)
            one.part.rename(one.folder)
            one.journal.unlink(missing_ok=True)

    def known(self) -> list[CachedVersion]:
        """What is there, or half of it. Raises as :meth:`make`, where the folder is there."""
        if not self.root.exists():
            return []
        self.make()
        return list(self._versions())

    def discard(self, one: CachedVersion, reason: str) -> bool:
        """Remove a version whose files are damaged, or that the catalog dropped. False where somebody uses it."""
        with self._locked():
            if (lock := one.lock()) is None:
                return False
            self._remove(one, reason)
            lock.close()
            return True

    # ------------------------------------------------------------------------------ within the lock

    def _oldest_first(self, but: CachedVersion) -> list[tuple[CachedVersion, int]]:
        """All others and their sizes, the least recently used first."""
        found = []
        for one in self._versions():
            if one.folder == but.folder:
                continue
            facts = one.facts()
            found.append((one.lock_file.stat().st_mtime_ns, one, facts.size_bytes if facts is not None else 0))
        return [(one, size) for _, one, size in sorted(found, key=lambda each: each[0])]

    @staticmethod
    def _idle(others: list[tuple[CachedVersion, int]], locks: ExitStack) -> Iterator[tuple[CachedVersion, int]]:
        """Those that nobody uses, each locked until ``locks`` end."""
        for other, size in others:
            if (lock := other.lock()) is not None:
                locks.callback(lock.close)
                yield other, size

    def _remove(self, one: CachedVersion, reason: str) -> Evicted:
        """Remove a version that is locked."""
        one.remove(self.gone())
        one.lock_file.unlink(missing_ok=True)
        return Evicted(one.key, reason)

    def _is_disk_full(self, one: CachedVersion, facts: Facts) -> bool:
        there = sum(path.stat().st_size for path in one.part.rglob("*") if path.is_file())
        disk = os.statvfs(self.root)
        return disk.f_bavail * disk.f_frsize < facts.size_bytes - there + SPARE_BYTES

    def _versions(self) -> Iterator[CachedVersion]:
        for path in self.root.glob("[!.]*/*/*.lock"):
            try:
                yield CachedVersion.of_lock_file(self.root, path)
            except ValueError:
                continue

    def gone(self) -> Path:
        """A free name for what leaves."""
        return self.root / _GONE / secrets.token_hex(8)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        fd = os.open(self.root / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            yield
        finally:
            os.close(fd)
