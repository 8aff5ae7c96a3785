"""Files that come in parts: each part's chunks are the file's own already, and completing one only says their order."""

import asyncio
import hashlib
import re
import secrets
import time
from collections.abc import Callable, Sequence
from typing import Final

from msgspec.structs import replace

from gateway_plugin.service.files import Files, Upload, new_file_id, upload_of
from signalbox.bus.client import Bus, Stored
from signalbox.program.errors import InvalidRequest, NotFound, StaleRevision, TooLarge, Unavailable
from signalbox.wire import outboundnames
from signalbox.wire.messages import encode
from signalbox.wire.names import Stream
from signalbox.wire.outbound import FilePart, FileUpload, StoredFile

PART_BYTES: Final = 64 * 1024 * 1024
"""Largest part."""
FILE_BYTES: Final = 1024 * 1024 * 1024
"""Largest file that comes in parts."""
MOST_PARTS: Final = 2048
OPEN_S: Final = 3600.0
"""An upload that has not been completed ends after so long."""
SWEEP_S: Final = 60.0
UPLOAD_ID: Final = re.compile(r"upload_[0-9a-f]{32}\Z")
_CHUNK_BITS: Final = 8
"""Room for a part's chunks between two numbers that begin parts."""
_RANDOM_BITS: Final = 40
_RACES: Final = 40
_NO_UPLOAD: Final = "There is no such upload, or it is not yours."


class Part(Upload):
    """A part of a file that is being written; :meth:`Uploads.add` makes it one."""

    def __init__(self, files: Files, account: str, upload: FileUpload, held_bytes: int) -> None:
        # Numbers that nobody else takes: parts may come at once, through any gateway.
        first = secrets.randbits(_RANDOM_BITS) << _CHUNK_BITS
        super().__init__(files, account, held_bytes, upload.file_id, first)

    async def write(self, data: bytes) -> None:
        """Add bytes. Raises :class:`TooLarge`, and as :meth:`Upload.write`."""
        if self.size + len(data) > PART_BYTES:
            raise TooLarge(f"A part has at most {PART_BYTES} bytes.", bound="part", limit_bytes=PART_BYTES)
        await super().write(data)

    async def written(self) -> FilePart:
        """What it is, once all of it is stored."""
        await self._flush_rest()
        return FilePart(first=self._first, chunks=self._chunks, size=self.size, created_at=self._files.wall())

    def abandon(self) -> None:
        """Remove what was written, in the background."""
        self.left()
        # With the chunk that may have been on its way.
        self._files.remove_later(self._account, self.id, range(self._first, self._first + self._chunks + 1))


class Uploads:
    """The uploads of all accounts."""

    def __init__(self, bus: Bus, files: Files, *, wall: Callable[[], float] = time.time) -> None:
        self._bus = bus
        self._files = files
        self._wall = wall

    async def make(self, account: str, filename: str, purpose: str, size: int) -> FileUpload:
        """A new one. Raises :class:`InvalidRequest` and :class:`LimitExceeded`."""
        if size < 1:
            raise InvalidRequest('"bytes" is the size of the file, at least 1.', field="bytes")
        if size > FILE_BYTES:
            raise TooLarge(
                f"A file has at most {FILE_BYTES} bytes; split it into several.", field="bytes", limit_bytes=FILE_BYTES
            )
        held_bytes = await self._files.held_bytes(account)
        self._files.require_room(held_bytes + self._files.writing.get(account, 0) + size)
        made = FileUpload(file_id=new_file_id(), filename=filename, purpose=purpose, size=size, created_at=self._wall())
        await self._write(account, made, 0)
        return made

    async def part(self, account: str, upload_id: str) -> Part:
        """A part of an upload, to be written. Raises :class:`NotFound` and :class:`InvalidRequest`."""
        upload, _ = await self._open(account, upload_id)
        others_bytes = await self._files.held_bytes(account) - upload.held_bytes
        return Part(self._files, account, upload, others_bytes + sum(part.size for part in upload.parts))

    async def add(self, account: str, upload_id: str, part: Part) -> FilePart:
        """Make what was written a part of its upload. Raises as :meth:`part`."""
        made = await part.written()
        if not made.size:
            raise InvalidRequest('Send the bytes of the part as "data".', field="data")
        for _ in range(_RACES):
            upload, revision = await self._open(account, upload_id)
            if len(upload.parts) >= MOST_PARTS:
                raise InvalidRequest(f"An upload has at most {MOST_PARTS} parts; send larger ones.")
            try:
                await self._write(account, replace(upload, parts=(*upload.parts, made)), revision)
            except StaleRevision:  # parts come at once
                continue
            part.left()
            return made
        raise Unavailable("The upload changes too quickly; try again.", retry_after_s=1.0)

    async def complete(
        self, account: str, upload_id: str, part_ids: Sequence[str], md5: str
    ) -> tuple[FileUpload, StoredFile]:
        """Make parts a file, in this order; asked once more the same it answers the same. md5: of the file, in hex;
        empty = it is not looked at. Raises as :meth:`part`."""
        upload, _ = await self._read(account, upload_id)
        if upload.state != "completed" or [part.id for part in upload.parts] != list(part_ids):
            upload = await self._completed(account, upload_id, part_ids, md5)
        made = self._file_of(upload)
        await self._files.put_about(account, made)
        return upload, made

    async def _completed(self, account: str, upload_id: str, part_ids: Sequence[str], md5: str) -> FileUpload:
        upload, revision = await self._open(account, upload_id)
        ended = replace(upload, state="completed", ended_at=self._wall(), parts=_chosen(upload, part_ids))
        if md5 and md5.lower() != await self._md5(account, self._file_of(ended)):
            raise InvalidRequest("The parts in this order have another MD5 than the one given.", field="md5")
        try:
            await self._write(account, ended, revision)
        except StaleRevision as error:
            raise InvalidRequest("The upload changed while it was completed: a part came, or it ended.") from error
        used = {part.first for part in ended.parts}
        for part in upload.parts:
            if part.first not in used:
                self._files.remove_later(account, upload.file_id, range(part.first, part.first + part.chunks))
        return ended

    async def cancel(self, account: str, upload_id: str) -> FileUpload:
        """End an upload that is open and remove its parts; nothing happens to one that has ended otherwise.

        Raises :class:`NotFound`, and :class:`InvalidRequest` where it has become a file.
        """
        for _ in range(_RACES):
            upload, revision = await self._read(account, upload_id)
            if upload.state == "completed":
                raise InvalidRequest("The upload has become a file already; delete that.")
            if upload.state != "pending":
                return upload
            try:
                return await self._end(account, replace(upload, state="cancelled"), revision)
            except StaleRevision:
                continue
        raise Unavailable("The upload changes too quickly; try again.", retry_after_s=1.0)

    # ------------------------------------------------------------------ those that nobody ends

    async def keep_swept(self) -> None:
        """Until cancelled: end the uploads of all accounts whose time is over."""
        while True:
            await self.sweep()
            await asyncio.sleep(SWEEP_S)

    async def sweep(self) -> int:
        """End the uploads whose time is over; returns how many were."""
        ended = 0
        async for page in self._bus.list_pages(Stream.FILES, [outboundnames.file_upload()]):
            for stored in page:
                upload = upload_of(stored)
                if upload is None or upload.state != "pending" or not self._is_over(upload):
                    continue
                account = outboundnames.account_of_file(stored.subject)
                try:
                    await self._end(account, replace(upload, state="expired"), stored.seq)
                except StaleRevision:  # its owner has ended it
                    continue
                ended += 1
        return ended

    async def _end(self, account: str, upload: FileUpload, revision: int) -> FileUpload:
        """Store how an upload ended, then remove all that came of it: no part is added afterwards."""
        ended = replace(upload, ended_at=self._wall(), parts=())
        sequence = await self._write(account, ended, revision)
        await self._files.delete(account, upload.file_id, before=sequence)
        return ended

    # ------------------------------------------------------------------ what is stored

    def _is_over(self, upload: FileUpload) -> bool:
        return self._wall() >= upload.created_at + OPEN_S

    async def _open(self, account: str, upload_id: str) -> tuple[FileUpload, int]:
        """An upload that takes parts. Raises :class:`NotFound` and :class:`InvalidRequest`."""
        upload, revision = await self._read(account, upload_id)
        state = "expired" if upload.state == "pending" and self._is_over(upload) else upload.state
        if state != "pending":
            raise InvalidRequest(f"The upload has ended: it is {state}. Make another.")
        return upload, revision

    async def _read(self, account: str, upload_id: str) -> tuple[FileUpload, int]:
        file_id = upload_id.replace("upload_", "file-", 1)
        stored: Stored | None = await self._bus.leader_get(
            Stream.FILES, outboundnames.file_upload(account or "-", file_id)
        )
        upload = upload_of(stored) if stored is not None else None
        if stored is None or upload is None:
            raise NotFound(_NO_UPLOAD)
        return upload, stored.seq

    async def _write(self, account: str, upload: FileUpload, revision: int) -> int:
        subject = outboundnames.file_upload(account or "-", upload.file_id)
        return await self._bus.write(subject, encode(upload), expect=revision)

    def _file_of(self, upload: FileUpload) -> StoredFile:
        return StoredFile(
            id=upload.file_id,
            filename=upload.filename,
            purpose=upload.purpose,
            created_at=upload.ended_at,
            size=sum(part.size for part in upload.parts),
            chunks=sum(part.chunks for part in upload.parts),
            spans=tuple(number for part in upload.parts for number in (part.first, part.chunks)),
        )

    async def _md5(self, account: str, found: StoredFile) -> str:
        digest = hashlib.md5(usedforsecurity=False)
        async for chunk in self._files.read(account, found):
            digest.update(chunk)
        return digest.hexdigest()


def _chosen(upload: FileUpload, part_ids: Sequence[str]) -> tuple[FilePart, ...]:
    """The parts of these ids. Raises :class:`InvalidRequest`."""
    known = {part.id: part for part in upload.parts}
    if len(set(part_ids)) != len(part_ids) or not known.keys() >= set(part_ids):
        raise InvalidRequest('"part_ids" are ids of parts of this upload, each once.', field="part_ids")
    chosen = tuple(known[one] for one in part_ids)
    size = sum(part.size for part in chosen)
    if size != upload.size:
        raise InvalidRequest(
            f'The parts have {size} bytes together, and the upload was made for "bytes" {upload.size}.',
            field="part_ids",
        )
    return chosen
