"""Reads STATE and JOBS from where the tables end, for ever, and writes rows at most once a second.

The cursor in the database is the only truth of how far we are, so the consumers on the server need no
acknowledgements: they are made anew from the cursor whenever the connection, the server or a consumer went.
Rows may be a second late (ADR 0061): a job that was accepted and ended meanwhile is one row, written once.
"""

import asyncio
import contextlib
from typing import Final

import msgspec
from channels.db import database_sync_to_async

from console.jobs.fold import JobMessage
from console.projector import damage, store
from console.projector.models import Cursor
from signalbox.bus.client import Bus
from signalbox.bus.pull import Delivery
from signalbox.jobs import joblog
from signalbox.jobs.cursor import StreamCursor
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.wire import names
from signalbox.wire.messages import Record, decode
from signalbox.wire.names import PROJECTOR, Header, Stream

EVERY_S: Final = 1.0
"""From one write to the next, unless so much waits that one write does not take it all."""
TIDY_EVERY_S: Final = 60.0
"""From one tidying of figures to the next."""
_PAUSE_S: Final = 1.0
_QUEUE_AGAIN_S: Final = 60.0
"""After NATS refused a consumer on JOBS."""


class Projector:
    """One reader. ``run`` it until cancelled; ``caught_up`` is set whenever nothing was waiting."""

    def __init__(self, bus: Bus, batch: int) -> None:
        """batch: messages of one stream that one transaction takes at most."""
        self._bus = bus
        self._batch = batch
        self._wake = asyncio.Event()
        self._is_broken = False
        self._write_at = 0.0
        self._tidy_at = 0.0
        self._queue_again_at = 0.0
        self.caught_up = asyncio.Event()

    async def run(self) -> None:
        """Until cancelled. NATS or the database away: wait and go on from the cursor."""
        self._bus.on_reconnect(self._break)
        try:
            while True:
                try:
                    await self._session()
                except SignalboxError as error:
                    log.warning("projector.waiting", code=error.code, reason=error.public_message)
                except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                    log.exception("projector.failed")
                await asyncio.sleep(_PAUSE_S)
        finally:
            self._bus.forget_reconnect(self._break)

    async def _session(self) -> None:
        """Read with one pair of consumers; returns when they must be made anew."""
        self._is_broken = False
        queue = StreamCursor(self._bus, Stream.JOBS, PROJECTOR, self._wake.set)
        records = StreamCursor(self._bus, Stream.STATE, PROJECTOR, self._wake.set)
        try:
            place = await self._begin()
            await records.open(place.seq + 1)
            await self._open_queue(queue, place.queue_seq + 1)
            log.info("projector.reading", start=place.seq + 1, queue_start=place.queue_seq + 1)
            await self._read(queue, records, place.queue_seq + 1)
        finally:
            await queue.close()
            await records.close()

    async def _open_queue(self, queue: StreamCursor, start: int) -> None:
        """Without acceptances rows come from records: JOBS may have all the consumers it takes."""
        try:
            await queue.open(start)
        except Unavailable:
            raise
        except SignalboxError as error:
            log.warning("projector.no_acceptances", code=error.code, reason=error.public_message)
            self._queue_again_at = asyncio.get_running_loop().time() + _QUEUE_AGAIN_S

    async def _read(self, queue: StreamCursor, records: StreamCursor, queue_start: int) -> None:
        is_more = True  # whether anything waits is not known yet
        while not self._is_broken:
            if refusal := queue.refusal or records.refusal:
                log.warning("projector.refused", reason=refusal)
                return
            if not is_more:
                await self._until_due(queue, records)
            if not queue.is_open and asyncio.get_running_loop().time() >= self._queue_again_at:
                await self._open_queue(queue, queue_start)
            # The queue first: so of every job whose record is found, the acceptance is here or was written before.
            accepted = await queue.sweep(self._batch)
            written = await records.sweep(self._batch)
            is_more = max(len(accepted), len(written)) >= self._batch
            if accepted or written:
                await self._write(accepted, written)

    async def _until_due(self, queue: StreamCursor, records: StreamCursor) -> None:
        """Return when something waits, and no sooner than a second after the last time."""
        self._wake.clear()
        queue.park()
        records.park()
        if not len(queue) and not len(records) and not self._is_broken:
            self.caught_up.set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(None if queue.is_open else self._queue_again_at):
                    await self._wake.wait()
            self.caught_up.clear()
        loop = asyncio.get_running_loop()
        await asyncio.sleep(self._write_at + EVERY_S - loop.time())
        self._write_at = loop.time()

    def _break(self) -> None:
        self._is_broken = True
        self._wake.set()

    async def _write(self, accepted: list[Delivery], written: list[Delivery]) -> None:
        received = [one for message in written if (one := _record(message)) is not None]
        reported = {one.record.id for one in received}
        # A record has all facts of an acceptance, and most acceptances come in one batch with their job's record.
        received += [
            one
            for message in accepted
            if message.subject.rpartition(".")[2] not in reported and (one := _acceptance(message)) is not None
        ]
        upto = written[-1].seq if written else 0
        queue_upto = accepted[-1].seq if accepted else 0
        await database_sync_to_async(store.apply)(received, upto, queue_upto)
        now = asyncio.get_running_loop().time()
        if now >= self._tidy_at:
            self._tidy_at = now + TIDY_EVERY_S
            await database_sync_to_async(store.tidy)()

    async def _begin(self) -> Cursor:
        """Where to read on. A cursor of another stream, or beyond this one, begins at the beginning.

        What lies between a cursor and the stream's first sequence was overwritten, and comes later, or is older
        than the stream keeps.
        """
        created, last = await self._stream(Stream.STATE)
        queue_created, queue_last = await self._stream(Stream.JOBS)
        place = await database_sync_to_async(store.read_cursor)()
        if place.stream_created != created or place.seq > last:
            if place.stream_created:
                log.warning("projector.other_stream", had=place.seq, last=last)
                kept = last if place.stream_created == created else 0
                lost = await database_sync_to_async(damage.ended_beyond)(kept)
                await _note(Stream.STATE, place.seq, kept, results=lost)
            place = await database_sync_to_async(store.begin)(created, last)
        if place.queue_created != queue_created or place.queue_seq > queue_last:
            if place.queue_created:
                kept = queue_last if place.queue_created == queue_created else 0
                await _note(Stream.JOBS, place.queue_seq, kept)
            place = await database_sync_to_async(store.begin_queue)(queue_created)
        return place

    async def _stream(self, stream: Stream) -> tuple[str, int]:
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        return str(info["created"]), int(info["state"]["last_seq"])


async def _note(stream: Stream, had: int, kept: int, *, results: int = 0) -> None:
    what = "is another stream than it was: it was lost and made again, or restored"
    if kept:
        what = f"has lost its end: it had reached {had} and goes on at {kept}"
    await database_sync_to_async(damage.note)(stream.value, what, results=results)


def _record(message: Delivery) -> JobMessage | None:
    """The parsed record; None for one that cannot be read (logged)."""
    try:
        record = decode(Record, message.headers[Header.RECORD])
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        _warn(message, error)
        return None
    return JobMessage(message.time, message.seq, record)


def _acceptance(message: Delivery) -> JobMessage | None:
    """The parsed acceptance; None as above."""
    try:
        return JobMessage.accepted(message.job, message.time)
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        _warn(message, error)
        return None


def _warn(message: Delivery, error: Exception) -> None:
    job_id = names.job_of(message.subject)
    log.warning("projector.unreadable", **joblog.only_id(job_id), subject=message.subject, reason=str(error))
