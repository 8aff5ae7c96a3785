"""Brings the files of one version from its repository into ``.part``: some at a time, and on from where it ended.

A file is asked for as a whole, the cheapest way. Where that takes longer than a moment, as from a store that gives a
connection only so much, other requests bring pieces further on. A file is written from its beginning on, so that a
fetch can go on from what is there: a piece that comes before its turn is held in memory.
"""

import asyncio
import hashlib
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing, suppress
from pathlib import Path
from typing import Final, Protocol, TypeVar

import msgspec

from signalbox.program.errors import Conflict, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire.manifests import ManifestFile
from workers.diskcache.cachedversion import CachedVersion, Journal

PIECE_BYTES: Final = 4 << 20
HELP_AFTER_S: Final = 0.5
T = TypeVar("T")


class Store(Protocol):
    """What is read of :class:`signalbox.repositories.store.ObjectStore`."""

    def stream(self, path: str, *, etag: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes of a file from ``start`` on, up to ``end``. Raises :class:`Conflict` where its ETag differs."""


class InThread(Protocol):
    """Runs blocking calls in one of a limited number of threads."""

    async def __call__(self, act: Callable[..., T], *args: object) -> T:
        """What ``act`` returns or raises."""


class _Incoming:
    """A file that comes. asked_bytes: what is there, or asked for. received: hashes it, where all of it comes now."""

    def __init__(self, file: ManifestFile, path: Path, size_bytes: int) -> None:
        self.file = file
        self.path = path
        self.asked_bytes = size_bytes
        self.received = None if size_bytes else hashlib.sha256()
        self._last = asyncio.Event()
        self._last.set()

    @property
    def may_be_helped(self) -> bool:
        """Whether another request may go on where the last one ends: not without an ETag, as they could differ."""
        return bool(self.file.etag) and self.asked_bytes < self.file.size_bytes

    def ask(self) -> tuple[int, int, asyncio.Event, asyncio.Event]:
        """Where the next piece begins and ends, what is set when all before it is there, and what when it is too."""
        start, turn = self.asked_bytes, self._last
        self._last = asyncio.Event()
        return start, self.extended(start, start + 1), turn, self._last

    def extended(self, end: int, needed: int) -> int:
        """Where a piece ends now that ended at ``end`` and would end beyond ``needed``, unless another is behind it."""
        while end == self.asked_bytes < min(needed, self.file.size_bytes):
            end = self.asked_bytes = min(end + PIECE_BYTES, self.file.size_bytes)
        return end

    def take(self, chunks: list[bytes]) -> None:
        """Write what comes next. Blocking."""
        with self.path.open("ab") as out:
            for chunk in chunks:
                out.write(chunk)
                if self.received is not None:
                    self.received.update(chunk)


class Download:
    """One try to bring a version. prefix: of its folder in the store. received: called with each number of bytes."""

    def __init__(
        self, store: Store, prefix: str, one: CachedVersion, in_thread: InThread, received: Callable[[int], None]
    ) -> None:
        self._store = store
        self._prefix = f"{prefix}/" if prefix else ""
        self._one = one
        self._in_thread = in_thread
        self._received = received
        self._large: list[_Incoming] = []
        self._digests: dict[str, str] = {}
        self._whole = 0
        """How many files are being asked for as a whole."""
        self._is_over = asyncio.Event()

    async def bring(self, files: tuple[ManifestFile, ...], *, boot: str, streams: int) -> dict[str, str]:
        """Bring all of them, by ``streams`` requests at a time. What is there of an earlier try is kept where it is of
        these files.

        Returns the sha256, by path, of those that came as a whole in this try: they need not be read for it again.
        Raises :class:`Conflict` naming a file that is not the one that was listed, what the store raises, and
        ``OSError`` of the disk.
        """
        sizes = await self._in_thread(_prepare, self._one, Journal(boot=boot, files=files))
        lacking = [(file, size) for file, size in sizes if size < file.size_bytes]
        left = iter(sorted(lacking, key=lambda each: -each[0].size_bytes))
        try:
            async with TaskGroup() as group:
                for _ in range(streams):
                    group.create_task(self._bring_some(left))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return self._digests

    async def _bring_some(self, left: Iterator[tuple[ManifestFile, int]]) -> None:
        for file, size in left:
            of = _Incoming(file, self._one.part / file.path, size)
            if file.size_bytes > PIECE_BYTES:
                self._large.append(of)
            self._whole += 1
            await self._bring(of, is_whole=True)
            self._whole -= 1
        if not self._whole:
            self._is_over.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(HELP_AFTER_S):
                await self._is_over.wait()
        for of in self._large:
            while of.may_be_helped:
                await self._bring(of)

    async def _bring(self, of: _Incoming, *, is_whole: bool = False) -> None:
        """Bring the next piece of a file. is_whole: and what is behind it, as far as no other request has begun to."""
        file, held, writing = of.file, list[bytes](), _Writing(self._in_thread)
        size, end, turn, done = of.ask()
        try:
            path, until = self._prefix + file.path, None if is_whole else end
            async with aclosing(self._store.stream(path, etag=file.etag, start=size, end=until)) as chunks:  # type: ignore[type-var]
                async for chunk in chunks:
                    if is_whole and (end := of.extended(end, size + len(chunk))) == file.size_bytes < size + len(chunk):
                        raise _changed(file)
                    held.append(chunk[: end - size])
                    size += len(held[-1])
                    self._received(len(held[-1]))
                    if turn.is_set():
                        await writing.begin(of.take, held)
                        held = []
                    if size == end < of.asked_bytes:
                        break
            if size < end:
                raise Unavailable(f"The store ended {file.path} after {size} of {file.size_bytes} bytes.")
            await turn.wait()
            await writing.begin(of.take, held)
        except Conflict as error:
            raise _changed(file) from error
        finally:
            await writing.end()
        done.set()
        if end == file.size_bytes and of.received is not None:
            self._digests[file.path] = of.received.hexdigest()


class _Writing:
    """Writes of one request: each goes on beside the next bytes' coming, and none after :meth:`end`."""

    def __init__(self, in_thread: InThread) -> None:
        self._in_thread = in_thread
        self._present: asyncio.Future[None] | None = None

    async def begin(self, act: Callable[[list[bytes]], None], chunks: list[bytes]) -> None:
        """Begin a write when the one before has ended. Raises what that did."""
        await self.end()
        self._present = asyncio.ensure_future(self._in_thread(act, chunks))

    async def end(self) -> None:
        """Wait for the write that goes on. Raises what it does."""
        if (present := self._present) is not None:
            await asyncio.wait([present])
            self._present = None
            present.result()


def _changed(file: ManifestFile) -> Conflict:
    return Conflict(f"{file.path} has changed in the repository since it was listed.", path=file.path)


def _prepare(one: CachedVersion, journal: Journal) -> list[tuple[ManifestFile, int]]:
    """Keep of an earlier try what is of these files, and note what will be there; how much of each is there."""
    written = one.written()
    if written is None or written.boot != journal.boot:
        shutil.rmtree(one.part, ignore_errors=True)
        written = None
    one.part.mkdir(mode=0o755, exist_ok=True)
    wanted = {file.path: file for file in journal.files}
    for file in written.files if written is not None else ():
        if wanted.get(file.path) != file:
            (one.part / file.path).unlink(missing_ok=True)
    draft = one.journal.with_suffix(".draft")
    draft.write_bytes(msgspec.json.encode(journal))
    draft.rename(one.journal)
    return [(file, _made(one.part / file.path, file)) for file in journal.files]


def _made(path: Path, file: ManifestFile) -> int:
    """Make the file, unless it is there; how much of it is."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    size = path.stat().st_size if path.exists() else 0
    is_kept = size <= file.size_bytes and (bool(file.etag) or size == file.size_bytes)
    path.open("ab" if is_kept else "wb").close()
    path.chmod(0o644)  # whatever the umask: it is linked for the runner as it is
    return size if is_kept else 0
