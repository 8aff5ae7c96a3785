"""An object store as a repository: its listing in pages, its files in pieces, also written. The one user of obstore."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import msgspec
import obstore
from obstore.store import AzureStore, GCSStore, S3Store

from signalbox.program.errors import InvalidRequest, LimitExceeded, Misconfigured, TooLarge
from signalbox.repositories.credentials import CredentialsFile, inherited
from signalbox.repositories.entry import MOST_ENTRIES, PAGE, Entry
from signalbox.repositories.faults import changed, translated
from signalbox.repositories.location import Location

if TYPE_CHECKING:
    from obstore import GetOptions, GetResult, ObjectMeta

_STORES: Final = {"s3": S3Store, "gs": GCSStore, "az": AzureStore}
_PIECE_BYTES: Final = 1 << 20
_PART_BYTES: Final = 8 << 20
"""Larger files are written in parts of this size, or larger ones: a file has at most :data:`_MOST_PARTS`."""
_MOST_PARTS: Final = 9_000
_PARTS_AT_ONCE: Final = 4
_NO_END: Final = timedelta(days=365)
"""obstore ends an answer that takes longer than this, whatever has come; we bound the wait for each piece of it."""


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a store is waited for, in seconds.

    connect_s: for a connection. read_s: for the next bytes. answer_s: for one page, one small file or one piece of a
    file, all tries together. retries: further tries after a 5xx or a lost connection; pause_s: before the first.
    """

    connect_s: float = 5.0
    read_s: float = 20.0
    answer_s: float = 60.0
    retries: int = 3
    pause_s: float = 0.2


class ObjectStore:
    """The files below one location in S3, Google Cloud Storage or Azure. One object is kept for each repository.

    A credentials file that is exchanged counts from the next call on. Every call raises :class:`Unavailable` where the
    store is away, overloaded or too slow, and :class:`Misconfigured` where credentials or bucket are wrong.
    """

    def __init__(self, location: Location, file: CredentialsFile, name: str, patience: Patience) -> None:
        self.location = location
        self.name = name
        self._file = file
        self._patience = patience
        self._stamp = file.stamp()
        self._store = self._connected()

    @classmethod
    def open(cls, location: Location, credentials: Path | None, name: str, *, patience: Patience | None = None) -> Self:
        """Connects to nothing yet. Raises :class:`Misconfigured` for what the credentials file says.

        credentials: folder with a file ``<name>.json`` of the repository ``name``; ``None``, or no such file = the
        machine's own identity and environment.
        """
        if location.is_local:
            raise InvalidRequest(f"{location.url} is no object store.")
        file = CredentialsFile(credentials, name, location.scheme)
        return cls(location, file, name, patience or Patience())

    async def pages(self, start_after: str = "", *, below: str = "") -> AsyncIterator[list[Entry]]:
        """Every file, at most :data:`PAGE` at a time, in the store's order, its path relative to the location.

        start_after: only those after this path, as the store orders them. below: only those of this folder. Raises
        :class:`LimitExceeded` after :data:`MOST_ENTRIES`, and :class:`UnlistableKey`.
        """
        async with self._answer():
            stream = obstore.list(self._opened(), below or None, offset=start_after or None, chunk_size=PAGE)
        total = 0
        while True:
            async with self._answer():
                found = await anext(stream, None)
            if found is None:
                return
            if (total := total + len(found)) > MOST_ENTRIES:
                raise LimitExceeded(f"Repository {self.name} has more than {MOST_ENTRIES} files.")
            # Azure's listing knows no start, or a newer one than the store's own.
            yield [_entry(each) for each in found if each["path"] > start_after]

    async def top(self) -> tuple[list[str], list[Entry]]:
        """Names of the folders, and the files, right below the location. Raises :class:`UnlistableKey`."""
        async with self._answer():
            found = await obstore.list_with_delimiter_async(self._opened())
        return list(found["common_prefixes"]), [_entry(each) for each in found["objects"]]

    async def read(self, path: str, *, most_bytes: int, etag: str = "") -> bytes:
        """A whole file. Raises :class:`NotFound`, :class:`Conflict` (another ``etag``), :class:`TooLarge`."""
        async with self._answer(path):
            result = await self._get(path, etag)
            size = result.meta["size"]
            if size > most_bytes:
                raise TooLarge(f"{path} of repository {self.name} has {size} bytes; at most {most_bytes} are read.")
            return bytes(await result.bytes_async())

    async def stream(self, path: str, *, etag: str, start: int = 0, end: int | None = None) -> AsyncIterator[bytes]:
        """The bytes of a file from ``start`` on, up to ``end``, in pieces of a MiB or more.

        etag: of the listing; empty = whichever file is there. Raises :class:`NotFound` and :class:`Conflict` (another
        file is there, or fewer than ``start`` bytes). After :class:`Unavailable` go on from what has come.
        """
        async with self._answer(path):
            result = await self._get(path, etag, start, end)
            pieces = result.stream(min_chunk_size=_PIECE_BYTES)
        while True:
            async with self._answer(path):
                piece = await anext(pieces, None)
            if piece is None:
                return
            yield piece

    async def write(self, path: str, file: Path, size: int, on_bytes: Callable[[int], None]) -> None:
        """Write a file of this machine, which has ``size`` bytes. No reader sees a part of it.

        on_bytes: called with each number of bytes as they go out. A file of at most 8 MiB takes no other's place where
        the store knows conditions: raises :class:`Conflict`. Larger ones go in parts, and one that fails half way
        may leave parts that no listing has; a rule of the bucket's own removes them.
        """
        loop, answer_s = asyncio.get_running_loop(), self._patience.answer_s
        with translated(self.name, path):
            async with asyncio.timeout(answer_s) as limit:
                if size <= _PART_BYTES:
                    await obstore.put_async(self._opened(), path, await _read(file, size), mode="create")
                    on_bytes(size)
                    return

                def noted(count: int) -> None:
                    limit.reschedule(loop.time() + answer_s)
                    on_bytes(count)

                part = max(_PART_BYTES, size // _MOST_PARTS)
                await obstore.put_async(
                    self._opened(), path, _parts(file, part, noted), chunk_size=part, max_concurrency=_PARTS_AT_ONCE
                )

    async def probe(self) -> None:
        """Write a small file and remove it, to see whether it can be done.

        Waited for in a thread of ours. Threads of obstore, which end its coroutines, may still be in Python when a
        program ends soon after: one in twelve then ended with SIGABRT.
        """
        path = f"signalbox-probe-{secrets.token_hex(8)}"
        async with self._answer(path):
            await asyncio.to_thread(_write_and_remove, self._opened(), path)

    async def remove(self, paths: Collection[str]) -> None:
        """Remove these files. Idempotent."""
        async for page in self.pages():
            if there := [entry.path for entry in page if entry.path in paths]:
                async with self._answer():
                    await obstore.delete_async(self._opened(), there)

    async def _get(self, path: str, etag: str, start: int = 0, end: int | None = None) -> "GetResult":
        options: GetOptions = {}
        if etag := _bare(etag):
            options["if_match"] = f'"{etag}"'
        if end is not None:
            options["range"] = (start, end)
        elif start:
            options["range"] = {"offset": start}
        result = await obstore.get_async(self._opened(), path, options=options)
        if etag and _bare(result.meta["e_tag"]) != etag:  # there are stores that do not know if_match
            raise changed(self.name, path)
        return result

    @asynccontextmanager
    async def _answer(self, path: str = "") -> AsyncIterator[None]:
        with translated(self.name, path):
            async with asyncio.timeout(self._patience.answer_s):
                yield

    def _opened(self) -> Any:
        if (stamp := self._file.stamp()) != self._stamp:
            self._store, self._stamp = self._connected(), stamp
        return self._store

    def _connected(self) -> Any:
        known, wait = self._file.read(), self._patience
        client = {
            "connect_timeout": timedelta(seconds=wait.connect_s),
            "read_timeout": timedelta(seconds=wait.read_s),
            "timeout": _NO_END,
        }
        try:
            return _STORES[self.location.scheme](
                self.location.bucket,
                prefix=self.location.prefix or None,
                config=known.store,
                client_options={**inherited(self.location.scheme), **known.client, **client},
                retry_config={
                    "max_retries": wait.retries,
                    "retry_timeout": timedelta(seconds=wait.answer_s),
                    "backoff": {"init_backoff": timedelta(seconds=wait.pause_s), "base": 2},
                },
            )
        except Exception:  # noqa: BLE001  whatever obstore says of a value; its text may hold the value
            raise Misconfigured(
                f"The credentials of repository {self.name} lack a key, or hold a value that does not fit its own.",
                repository=self.name,
            ) from None


def _write_and_remove(store: "S3Store | GCSStore | AzureStore", path: str) -> None:
    obstore.put(store, path, b"Written by signalbox doctor.", mode="create")
    obstore.delete(store, path)


def _entry(meta: "ObjectMeta") -> Entry:
    return Entry(meta["path"], meta["size"], _bare(meta["e_tag"]))


def _bare(etag: str | None) -> str:
    """Without quotes: some stores have them in answers and not in listings."""
    return (etag or "").strip('"')


async def _read(file: Path, size: int) -> bytes:
    with file.open("rb") as source:
        return await asyncio.to_thread(source.read, size)


async def _parts(file: Path, size: int, on_bytes: Callable[[int], None]) -> AsyncIterator[bytes]:
    with file.open("rb") as source:
        while part := await asyncio.to_thread(source.read, size):
            on_bytes(len(part))
            yield part
