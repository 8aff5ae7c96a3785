"""The two files that a batch writes, chunk by chunk, each chunk with how far the batch is.

A chunk is written where none is yet, so of two that do the same batch one fails; what it did is in no file then. After
a restart the last chunks tell which lines are done, and no line comes twice.
"""

import asyncio
import hashlib
import time
from typing import Final

from gateway_plugin.service.files import Files
from signalbox.program import metrics
from signalbox.program.errors import NotFound
from signalbox.wire.messages import decode, header
from signalbox.wire.names import Header
from signalbox.wire.outbound import Batch, BatchCursor, StoredFile

FLUSH_BYTES: Final = 256 * 1024
"""A chunk is written when its lines are so long together, or when they have waited for a while."""
MOST_LINE_BYTES: Final = 512 * 1024
"""Longest line of an output: with it a chunk is still a message."""

_LOOK_S: Final = 60.0
"""What else the account has written or deleted is looked at so often, and whenever the share seems to be exceeded."""

LINES = metrics.counter("batch_lines", "Lines of batches that are in a file: in its output, or its errors.", "file")


class Done:
    """Which lines are done. done_to: all below."""

    def __init__(self, cursor: BatchCursor) -> None:
        self.done_to = cursor.done_to
        self.completed = cursor.completed
        self.failed = cursor.failed
        ends = iter(cursor.beyond)
        self._beyond = {number for start, end in zip(ends, ends, strict=True) for number in range(start, end)}

    def __contains__(self, number: int) -> bool:
        return number < self.done_to or number in self._beyond

    def add(self, number: int) -> None:
        """A line is done."""
        self._beyond.add(number)
        while self.done_to in self._beyond:
            self._beyond.remove(self.done_to)
            self.done_to += 1

    def cursor(self) -> BatchCursor:
        """What is stored of it."""
        ranges: list[int] = []
        for number in sorted(self._beyond):
            if ranges and ranges[-1] == number:
                ranges[-1] = number + 1
            else:
                ranges += [number, number + 1]
        return BatchCursor(done_to=self.done_to, beyond=tuple(ranges), completed=self.completed, failed=self.failed)


class _File:
    """One file as it is written."""

    def __init__(self, batch: Batch, what: str) -> None:
        self.id = "file-" + hashlib.sha256(f"{batch.id} {what}".encode()).hexdigest()[:32]
        self.name = f"{batch.id}_{what}.jsonl"
        self.what = what
        self.chunks = 0
        self.size = 0
        self.waiting: list[tuple[int, bytes]] = []
        self.waiting_bytes = 0


class Output:
    """The output and the errors of a batch. Use it once :meth:`restore` has returned."""

    def __init__(self, files: Files, batch: Batch) -> None:
        self._files = files
        self._batch = batch
        self._output = _File(batch, "output")
        self._errors = _File(batch, "error")
        self._lock = asyncio.Lock()
        self._held_bytes = 0
        self._looked_s = 0.0
        self.done = Done(BatchCursor())

    @property
    def is_over(self) -> bool:
        """Whether the account's files take more than they may."""
        return self._held_bytes > self._files.most_bytes

    @property
    def output_file(self) -> str:
        """Id of the file with what was answered; empty while there is none."""
        return self._output.id if self._output.chunks else ""

    @property
    def error_file(self) -> str:
        """Id of the file with what failed; empty while there is none."""
        return self._errors.id if self._errors.chunks else ""

    @property
    def output_chunks(self) -> int:
        """Chunks of it."""
        return self._output.chunks

    @property
    def error_chunks(self) -> int:
        """Chunks of it."""
        return self._errors.chunks

    async def restore(self) -> None:
        """Find out how far the batch is."""
        youngest = 0
        for file in (self._output, self._errors):
            try:
                about = await self._files.find(self._batch.account_id, file.id)
            except NotFound:
                continue
            file.chunks, file.size = about.chunks, about.size
            if not about.chunks:
                continue
            last = await self._files.chunk(self._batch.account_id, file.id, about.chunks - 1)
            if last.seq > youngest:
                youngest = last.seq
                self.done = Done(decode(BatchCursor, last.headers[Header.CURSOR]))
        await self._look()

    async def add(self, number: int, line: bytes, *, is_error: bool) -> None:
        """A line of a file; it is durable once :meth:`flush` has returned. Raises as :meth:`flush`."""
        file = self._errors if is_error else self._output
        async with self._lock:
            file.waiting.append((number, line))
            file.waiting_bytes += len(line)
            if file.waiting_bytes >= FLUSH_BYTES:
                await self._write()

    async def flush(self) -> None:
        """Write what waits. Raises :class:`StaleRevision` where another does the batch, and as :meth:`Bus.write`."""
        async with self._lock:
            await self._write()

    async def finish(self) -> None:
        """Write what waits, and that the files are whole."""
        await self.flush()
        for file in (self._output, self._errors):
            if file.chunks:
                await self._put_about(file, is_whole=True)

    async def _write(self) -> None:
        for file in (self._output, self._errors):
            if not file.waiting:
                continue
            if not file.chunks:
                await self._put_about(file, is_whole=False)
            for number, _ in file.waiting:
                self.done.add(number)
            if file is self._output:
                self.done.completed += len(file.waiting)
            else:
                self.done.failed += len(file.waiting)
            size = file.size + file.waiting_bytes
            headers: dict[str, str] = {Header.CURSOR: header(self.done.cursor()), Header.SIZE: str(size)}
            data = b"".join(line for _, line in file.waiting)
            await self._files.put_chunk(self._batch.account_id, file.id, file.chunks, data, headers)
            LINES.labels(file.what).inc(len(file.waiting))
            file.chunks += 1
            file.size = size
            file.waiting, file.waiting_bytes = [], 0
            self._held_bytes += len(data)
            if self.is_over or time.monotonic() - self._looked_s > _LOOK_S:
                await self._look()

    async def _look(self) -> None:
        """Find out what the account's files take, those of this batch among them."""
        self._held_bytes = await self._files.held_bytes(self._batch.account_id)
        self._looked_s = time.monotonic()

    async def _put_about(self, file: _File, *, is_whole: bool) -> None:
        about = StoredFile(
            id=file.id,
            filename=file.name,
            purpose="batch_output",
            created_at=self._batch.created_at,
            size=file.size,
            chunks=file.chunks,
            is_whole=is_whole,
            batch_id=self._batch.id,
        )
        await self._files.put_about(self._batch.account_id, about)
