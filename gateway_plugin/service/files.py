"""Files of batches: chunks in ``FILES``, and what is known of a file beside them. No file is ever held in memory."""

import asyncio
import secrets
import time
from collections import defaultdict
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Final

import msgspec
from msgspec.structs import replace

from signalbox.bus.client import Bus, Stored
from signalbox.program.errors import LimitExceeded, NotFound, QueueFull, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import outboundnames
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Header, Stream
from signalbox.wire.outbound import FileUpload, StoredFile

CHUNK_BYTES: Final = 512 * 1024
SHARE: Final = 4
"""An account may take one part in so many of all the room, unless the setting says otherwise."""
_RETRY_AFTER_S: Final = 60.0
_NO_FILE: Final = "There is no such file, or it is not yours."
_STALE_S: Final = 0.1
_TRIES: Final = 5


class Upload:
    """A file that is being written. What was written is removed again by :meth:`abandon`.

    held_bytes: of the account's share. file_id, first: of the file, and number of the first chunk, where it is a part.
    """

    def __init__(self, files: "Files", account: str, held_bytes: int, file_id: str = "", first: int = 0) -> None:
        self._files = files
        self._account = account
        self._held_bytes = held_bytes
        self._buffer = bytearray()
        self._first = first
        self._chunks = 0
        self.id = file_id or new_file_id()
        self.size = 0

    async def write(self, data: bytes) -> None:
        """Add bytes. Raises :class:`LimitExceeded` past the account's share, and :class:`Unavailable`."""
        writing = self._files.writing[self._account]  # of all uploads that go on here, this one too
        self._files.require_room(self._held_bytes + writing + len(data))
        self.size += len(data)
        self._files.writing[self._account] += len(data)
        self._buffer += data
        while len(self._buffer) >= CHUNK_BYTES:
            await self._flush(CHUNK_BYTES)

    async def finish(self, filename: str, purpose: str) -> StoredFile:
        """Make it a file. Raises as :meth:`write`."""
        await self._flush_rest()
        made = StoredFile(
            id=self.id,
            filename=filename,
            purpose=purpose,
            created_at=self._files.wall(),
            size=self.size,
            chunks=self._chunks,
        )
        await self._files.put_about(self._account, made)
        self.left()
        return made

    def abandon(self) -> None:
        """Remove what was written, in the background. Best effort: what stays ages out."""
        self.left()
        self._files.remove_later(self._account, self.id)

    async def _flush(self, size: int) -> None:
        chunk = bytes(self._buffer[:size])
        del self._buffer[:size]
        await self._files.put_chunk(self._account, self.id, self._first + self._chunks, chunk)
        self._chunks += 1

    async def _flush_rest(self) -> None:
        if self._buffer:
            await self._flush(len(self._buffer))

    def left(self) -> None:
        """Count it no longer as one that is written: what is stored of it counts from now on."""
        self._files.writing[self._account] -= self.size
        if self._files.writing[self._account] <= 0:
            del self._files.writing[self._account]
        self._buffer.clear()


class Files:
    """The files of all accounts. most_bytes: of one account; 0 = a quarter of all the room. wall: UTC clock, seconds.

    writing: bytes of uploads that go on, by account.
    """

    def __init__(self, bus: Bus, *, most_bytes: int = 0, wall: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self.most_bytes = most_bytes
        self.wall = wall
        self.writing: defaultdict[str, int] = defaultdict(int)
        self._removing = Background()

    async def close(self) -> None:
        """Wait until what was abandoned is removed. Idempotent."""
        await self._removing.finish()

    async def upload(self, account: str) -> Upload:
        """A new file. Raises :class:`Unavailable`."""
        return Upload(self, account, await self.held_bytes(account))

    async def held_bytes(self, account: str) -> int:
        """What an account's files take, uploads that go on at their whole size. Raises :class:`Unavailable`."""
        if not self.most_bytes:
            info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.FILES}")
            most = info["config"].get("max_bytes", -1)
            self.most_bytes = most // SHARE if most > 0 else 1 << 62
        held = sum(one.size for one in await self.list(account))
        async for page in self._bus.list_pages(Stream.FILES, [outboundnames.file_upload(account or "-")]):
            held += sum(one.held_bytes for one in map(upload_of, page) if one is not None)
        return held

    def require_room(self, wanted_bytes: int) -> None:
        """Raise :class:`LimitExceeded` where an account may not hold so much. Ask :meth:`held_bytes` before."""
        if wanted_bytes > self.most_bytes:
            raise LimitExceeded(
                f"Files of your account would take more than the {self.most_bytes} bytes that they may. Delete some "
                "that you need no more, or wait until they have aged out.",
                retry_after_s=_RETRY_AFTER_S,
                bound="files",
                limit_bytes=self.most_bytes,
            )

    async def find(self, account: str, file_id: str) -> StoredFile:
        """A file of an account, with its size as it is now. Raises :class:`NotFound`."""
        stored = await self._bus.leader_get(Stream.FILES, outboundnames.file_about(account or "-", file_id))
        if stored is None:
            raise NotFound(_NO_FILE)
        found = decode(StoredFile, stored.data)
        return found if found.is_whole else await self._measured(account, found)

    async def list(self, account: str) -> list[StoredFile]:
        """The files of an account, the youngest first."""
        about = outboundnames.file_about(account or "-")
        found = []
        async for page in self._bus.list_pages(Stream.FILES, [about]):
            found += [one for one in map(_about, page) if one is not None]
        open_ones = [await self._measured(account, one) for one in found if not one.is_whole]
        whole = [one for one in found if one.is_whole]
        return sorted(whole + open_ones, key=lambda one: (one.created_at, one.id), reverse=True)

    async def read(self, account: str, found: StoredFile) -> AsyncGenerator[bytes, None]:
        """The bytes of a file, chunk after chunk. Raises :class:`NotFound` where it has been removed."""
        spans = iter(found.spans or (0, found.chunks))
        for first, chunks in zip(spans, spans, strict=True):
            for number in range(first, first + chunks):
                yield (await self.chunk(account, found.id, number)).data

    async def chunk(self, account: str, file_id: str, number: int) -> Stored:
        """One chunk. Raises :class:`NotFound`."""
        subject = outboundnames.file_chunk(account, file_id, number)
        for _ in range(_TRIES):
            if (found := await self._bus.direct_get(Stream.FILES, subject)) is not None:
                return found
            if (found := await self._bus.leader_get(Stream.FILES, subject)) is not None:
                return found
            await asyncio.sleep(_STALE_S)  # another replica may lead, and be behind
        raise NotFound("The file is no longer whole: it was removed, or has aged out.")

    async def last(self, account: str, file_id: str) -> Stored | None:
        """What was written last of a file."""
        return await self._bus.leader_get(Stream.FILES, outboundnames.file_chunks(account or "-", file_id))

    async def delete(self, account: str, file_id: str, *, before: int = 0) -> None:
        """Remove a file and all its bytes. before: only what has a lower sequence; 0 = all. Idempotent."""
        await self._purge(outboundnames.file_chunks(account or "-", file_id), before)

    def remove_later(self, account: str, file_id: str, chunks: Iterable[int] | None = None) -> None:
        """Remove a file, or some of its chunks, beside the caller; where it fails they age out."""
        work = self.delete(account, file_id) if chunks is None else self._remove_chunks(account, file_id, chunks)
        self._removing.start(work, name="remove a file")

    async def _remove_chunks(self, account: str, file_id: str, chunks: Iterable[int]) -> None:
        for number in chunks:
            await self._purge(outboundnames.file_chunk(account, file_id, number))

    async def _purge(self, subject: str, before: int = 0) -> None:
        wanted = {"filter": subject, **({"seq": before} if before else {})}
        await self._bus.request_json(f"$JS.API.STREAM.PURGE.{Stream.FILES}", wanted)

    async def put_chunk(
        self, account: str, file_id: str, number: int, data: bytes, headers: dict[str, str] | None = None
    ) -> int:
        """Write a chunk that is not there yet; returns its sequence. Raises as :meth:`Bus.write`, and
        :class:`Unavailable` where there is no room."""
        try:
            subject = outboundnames.file_chunk(account, file_id, number)
            return await self._bus.write(subject, data, headers=headers, expect=0)
        except QueueFull as error:
            raise Unavailable(
                "All room for files is taken. Nothing was accepted: try again when some have been deleted.",
                retry_after_s=_RETRY_AFTER_S,
                bound="files",
            ) from error

    async def put_about(self, account: str, about: StoredFile) -> None:
        """Write what is known of a file."""
        await self._bus.write(outboundnames.file_about(account or "-", about.id), encode(about))

    async def _measured(self, account: str, found: StoredFile) -> StoredFile:
        """A file that is still written, as its last chunk tells."""
        last = await self.last(account, found.id)
        number = outboundnames.number_of_chunk(last.subject) if last is not None else None
        if last is None or number is None:
            return found
        return replace(found, chunks=number + 1, size=int(last.headers.get(Header.SIZE, "0")))


def new_file_id() -> str:
    """An id that no file has."""
    return f"file-{secrets.token_hex(16)}"


def upload_of(stored: Stored) -> FileUpload | None:
    """An upload as it is stored; None where it is not to be understood."""
    try:
        return decode(FileUpload, stored.data)
    except (msgspec.MsgspecError, SignalboxError):  # a newer program's
        return None


def _about(stored: Stored) -> StoredFile | None:
    try:
        return decode(StoredFile, stored.data)
    except (msgspec.MsgspecError, SignalboxError):  # a newer program's
        return None
