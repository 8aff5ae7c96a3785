"""Brings the files of one version from its repository into ``.part``: some at a time, and on from where it ended."""

import asyncio
import hashlib
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import aclosing
from pathlib import Path
from typing import BinaryIO, Final, Protocol, TypeVar

import msgspec

from signalbox.program.errors import Conflict, Unavailable
from signalbox.wire.messages import ManifestFile
from workers.diskcache.cachedversion import CachedVersion, Journal

SILENT_S: Final = 60.0
"""A store that sends nothing for so long does not answer."""
T = TypeVar("T")


class Store(Protocol):
    """What is read of :class:`signalbox.repositories.store.ObjectStore`."""

    def stream(self, path: str, *, etag: str, start: int = 0) -> AsyncIterator[bytes]:
        """The bytes of a file from ``start`` on. Raises :class:`Conflict` where its ETag differs."""


class InThread(Protocol):
    """Runs blocking calls in one of a limited number of threads."""

    async def __call__(self, act: Callable[..., T], *args: object) -> T:
        """What ``act`` returns or raises."""


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

    async def bring(self, files: tuple[ManifestFile, ...], *, boot: str, streams: int) -> dict[str, str]:
        """Bring all of them, ``streams`` at a time. What is there of an earlier try is kept where it is of these files.

        Returns the sha256, by path, of those that came as a whole in this try: they need not be read for it again.
        Raises :class:`Conflict` naming a file that is not the one that was listed, what the store raises, and
        ``OSError`` of the disk.
        """
        await self._in_thread(_prepare, self._one, Journal(boot=boot, files=files))
        left = iter(sorted(files, key=lambda file: -file.size_bytes))
        digests: dict[str, str] = {}
        try:
            async with asyncio.TaskGroup() as group:
                for _ in range(min(streams, len(files))):
                    group.create_task(self._bring_some(left, digests))
        except BaseExceptionGroup as errors:
            raise errors.exceptions[0] from None
        return digests

    async def _bring_some(self, left: Iterator[ManifestFile], digests: dict[str, str]) -> None:
        for file in left:
            if digest := await self._bring(file):
                digests[file.path] = digest

    async def _bring(self, file: ManifestFile) -> str:
        """Bring one; its sha256 where all of it came now, else empty."""
        out, size = await self._in_thread(_opened, self._one.part / file.path, file)
        received = None if size else hashlib.sha256()
        try:
            if size < file.size_bytes:
                async with aclosing(self._store.stream(self._prefix + file.path, etag=file.etag, start=size)) as chunks:  # type: ignore[type-var]
                    chunk = await _next(chunks)
                    while chunk and (size := size + len(chunk)) <= file.size_bytes:
                        self._received(len(chunk))
                        # The next one comes while this one is hashed, which takes longer.
                        chunk, _ = await asyncio.gather(_next(chunks), self._in_thread(_take, chunk, out, received))
        except Conflict as error:
            raise _changed(file) from error
        finally:
            await self._in_thread(out.close)
        if size > file.size_bytes:
            raise _changed(file)
        if size < file.size_bytes:
            raise Unavailable(f"The store ended {file.path} after {size} of {file.size_bytes} bytes.")
        return received.hexdigest() if received is not None else ""


async def _next(chunks: AsyncIterator[bytes]) -> bytes:
    try:
        async with asyncio.timeout(SILENT_S):
            return await anext(chunks, b"")
    except TimeoutError as error:
        raise Unavailable(f"The store has sent nothing for {SILENT_S:g} s.") from error


def _take(chunk: bytes, out: BinaryIO, received: "hashlib._Hash | None") -> None:
    out.write(chunk)
    if received is not None:
        received.update(chunk)


def _changed(file: ManifestFile) -> Conflict:
    return Conflict(f"{file.path} has changed in the repository since it was listed.", path=file.path)


def _prepare(one: CachedVersion, journal: Journal) -> None:
    """Keep of an earlier try what is of these files, and note what will be there."""
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


def _opened(path: Path, file: ManifestFile) -> tuple[BinaryIO, int]:
    """The file to write on, and how much of it is there."""
    path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    size = path.stat().st_size if path.exists() else 0
    is_kept = size <= file.size_bytes and (bool(file.etag) or size == file.size_bytes)
    out = path.open("ab" if is_kept else "wb")
    os.fchmod(out.fileno(), 0o644)  # whatever the umask: it is linked for the runner as it is
    return out, size if is_kept else 0
