"""Where one version lies in the disk cache, and the flock that says who uses it. What blocks is called in a thread.

The lock file holds the version's facts. It is shared while the version is loaded, and exclusive to fetch or to evict
it; the kernel frees it with its process. When it was last used is the file's time of modification.
"""

import asyncio
import fcntl
import os
import shutil
import threading
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from signalbox.wire.manifests import ManifestFile
from signalbox.wire.names import token, untoken

_MOST_FACTS_BYTES: Final = 16_384
_LOCK: Final = ".lock"


class Facts(msgspec.Struct, frozen=True, kw_only=True):
    """What a lock file says. size_bytes: of all files, from when room was made for them. url: where they come from.

    digest: of the files that are there; empty = they are being fetched.
    """

    url: str
    size_bytes: int
    digest: str = ""


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """Of what the files in ``.part`` are parts. boot: of the kernel that wrote them: after a power loss none counts."""

    boot: str
    files: tuple[ManifestFile, ...]


class CachedVersion:
    """The names of one version below the cache's folder. Nothing of it need be there."""

    def __init__(self, root: Path, repository: str, model: str, version: int) -> None:
        self.repository = repository
        self.key = model, version
        self.folder = root / token(repository) / token(model) / str(version)
        self.part = self.folder.with_name(f"{version}.part")
        self.journal = self.folder.with_name(f"{version}.files")
        self.lock_file = self.folder.with_name(f"{version}{_LOCK}")

    @classmethod
    def of_lock_file(cls, root: Path, path: Path) -> "CachedVersion":
        """The version of a lock file. Raises ``ValueError`` where its name is none."""
        *_, repository, model, _ = path.parts
        return cls(root, untoken(repository), untoken(model), int(path.name.removesuffix(_LOCK)))

    def lock(self, *, is_shared: bool = False) -> "VersionLock | None":
        """The version's flock; None where another has it, or, shared, where nothing was ever fetched."""
        if not is_shared:
            self.lock_file.parent.parent.mkdir(mode=0o700, exist_ok=True)
            self.lock_file.parent.mkdir(mode=0o700, exist_ok=True)
        flags = os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW | (0 if is_shared else os.O_CREAT)
        while True:
            try:
                fd = os.open(self.lock_file, flags, 0o600)
            except FileNotFoundError:
                return None
            try:
                fcntl.flock(fd, (fcntl.LOCK_SH if is_shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
            except BlockingIOError:
                os.close(fd)
                return None
            if _is_at(fd, self.lock_file):
                return VersionLock(fd)
            os.close(fd)  # it was evicted meanwhile: there is another file, or none

    async def freed(self) -> None:
        """Return when nobody fetches the version; where somebody has it loaded, when nobody uses it any more.

        The kernel is asked in a thread of its own, which takes none of a pool and ends with the process.
        """
        loop, is_free = asyncio.get_running_loop(), asyncio.Event()

        def wait() -> None:
            self._wait()
            with suppress(RuntimeError):  # the loop has ended meanwhile
                loop.call_soon_threadsafe(is_free.set)

        threading.Thread(target=wait, name="wait for a version", daemon=True).start()
        await is_free.wait()

    def _wait(self) -> None:
        with suppress(OSError):
            fd = os.open(self.lock_file, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            try:
                fcntl.flock(fd, fcntl.LOCK_SH | fcntl.LOCK_NB)
                fcntl.flock(fd, fcntl.LOCK_EX)
            except (
                BlockingIOError
            ):  # it is being fetched; then whoever loads it must not meet an exclusive lock of ours
                fcntl.flock(fd, fcntl.LOCK_SH)
            finally:
                os.close(fd)

    def facts(self) -> Facts | None:
        """What its lock file says, whoever has the lock; None where that is nothing."""
        with suppress(OSError, msgspec.MsgspecError), self.lock_file.open("rb") as file:
            return msgspec.json.decode(file.read(_MOST_FACTS_BYTES), type=Facts)
        return None

    def is_whole(self, url: str, digest: str) -> Facts | None:
        """Its facts, where all its files are there, come from ``url`` and have this digest; empty = any."""
        facts = self.facts()
        is_it = facts is not None and facts.digest and facts.url == url and digest in {"", facts.digest}
        return facts if is_it and self.folder.is_dir() else None

    def written(self) -> Journal | None:
        """Of what the files in ``.part`` are parts; None where that is not known."""
        with suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(self.journal.read_bytes(), type=Journal)
        return None

    def part_bytes(self) -> int:
        """How many bytes have come of a version that is not whole."""
        return sum(path.stat().st_size for path in self.part.rglob("*") if path.is_file())

    def is_of_another(self, boot: str) -> bool:
        """Whether what is in ``.part`` was not written since the machine's start."""
        written = self.written()
        return written is None or written.boot != boot

    def remove(self, gone: Path) -> None:
        """Remove all of it but its lock file. The caller has the lock. gone: a name that is free, for its end."""
        with suppress(FileNotFoundError):
            self.folder.rename(gone)  # no half of it is ever found under its name
        for folder in (gone, self.part):
            shutil.rmtree(folder, ignore_errors=True)
        self.journal.unlink(missing_ok=True)


class VersionLock:
    """A flock that is held."""

    def __init__(self, fd: int) -> None:
        self._fd = fd

    def write(self, facts: Facts) -> None:
        """Say what is there, or will be. The caller has the lock of the whole cache too: who has that may read."""
        data = msgspec.json.encode(facts)
        os.pwrite(self._fd, data, 0)
        os.ftruncate(self._fd, len(data))

    def touch(self) -> None:
        """Note that the version is used now."""
        os.utime(self._fd)

    def close(self) -> None:
        """Let it go. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def _is_at(fd: int, path: Path) -> bool:
    try:
        there = path.lstat()
    except FileNotFoundError:
        return False
    here = os.fstat(fd)
    return (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino)
