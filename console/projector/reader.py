"""Reads STATE from where the tables end, for ever, and hears of acceptances as they happen.

The cursor in the database is the only truth of how far we are, so the consumer on the server needs no
acknowledgements: it is made anew from the cursor whenever the connection, the server or the consumer went.
Acceptances are told live and kept nowhere; each session begins by adopting the queued jobs that were missed.
"""

import asyncio
import secrets
from typing import Any, Final

import msgspec
from channels.db import database_sync_to_async

from console.projector import store
from console.projector.adoption import adopt_queued
from console.projector.fold import Heard
from console.projector.store import Place
from signalbox import log
from signalbox.answers import unix_time
from signalbox.bus import Bus, Message
from signalbox.errors import SignalboxError
from signalbox.messages import Job, Record, decode
from signalbox.names import Header, Stream, event_of_jobs
from signalbox.pull import Delivery

_NANO: Final = 1_000_000_000
_IDLE_S: Final = 5.0
_FORGOTTEN_AFTER_S: Final = 60
"""The server drops our consumer when nobody asked it for so long."""
_PAUSE_S: Final = 1.0
_ROUND: Final = 2
"""Batches asked for ahead of the one being written."""
_UNWRITTEN: Final = 50_000
"""Acceptances kept while the database is slow; the ones after them are adopted later."""


class Projector:
    """One reader. ``run`` it until cancelled; ``caught_up`` is set whenever nothing was waiting."""

    def __init__(self, bus: Bus, batch: int) -> None:
        self._bus = bus
        self._batch = batch
        self._wake = asyncio.Event()
        self._deliveries: list[Delivery] = []
        self._acceptances: list[Message] = []
        self._is_broken = False
        self.caught_up = asyncio.Event()
        self.applied = 0

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
        """One consumer's life: returns when it must be made anew."""
        self._deliveries, self._acceptances, self._is_broken = [], [], False
        hearing = await self._bus.subscribe(event_of_jobs(), self._hear)
        try:
            await adopt_queued(self._bus)
            place = await self._begin()
            consumer = await self._consumer(place.seq + 1)
            log.info("projector.reading", start=place.seq + 1)
            await self._read(consumer)
        finally:
            await hearing.close()

    async def _read(self, consumer: str) -> None:
        puller = await self._bus.pull(consumer, self._take, stream=Stream.STATE)
        puller.on_idle = self._wake.set
        try:
            while not self._is_broken:
                if puller.last_refusal:
                    log.warning("projector.refused", reason=puller.last_refusal)
                    return
                if puller.outstanding < self._batch:
                    puller.ask(self._batch * _ROUND - puller.outstanding, expires_s=_IDLE_S)
                if not self._deliveries and not self._acceptances:
                    self.caught_up.set()
                    self._wake.clear()
                    await self._wake.wait()
                    self.caught_up.clear()
                await self._write()
        finally:
            await puller.close()

    def _take(self, delivery: Delivery) -> None:
        self._deliveries.append(delivery)
        self._wake.set()

    def _hear(self, message: Message) -> None:
        if len(self._acceptances) < _UNWRITTEN:
            self._acceptances.append(message)
            self._wake.set()

    def _break(self) -> None:
        self._is_broken = True
        self._wake.set()

    async def _write(self) -> None:
        size = self._batch
        taken, self._deliveries = self._deliveries[:size], self._deliveries[size:]
        told, self._acceptances = self._acceptances[:size], self._acceptances[size:]
        if taken or told:
            messages: list[Message | Delivery] = [*told, *taken]
            heard = [one for message in messages if (one := _heard(message)) is not None]
            upto = taken[-1].seq if taken else 0
            self.applied += await database_sync_to_async(store.apply)(heard, upto)

    async def _begin(self) -> Place:
        """Where to read on. A cursor of another stream, or beyond this one, begins at the beginning.

        What lies between a cursor and the stream's first sequence was overwritten, and comes later, or is older
        than the stream keeps.
        """
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}")
        created, last = str(info["created"]), int(info["state"]["last_seq"])
        place = await database_sync_to_async(store.place)()
        if place.stream_created == created and place.seq <= last:
            return place
        if place.stream_created:
            log.warning("projector.other_stream", had=place.seq, last=last)
        return await database_sync_to_async(store.begin)(created)

    async def _consumer(self, start: int) -> str:
        # Never one that exists: it would go on after what it delivered, not after what was written.
        name = f"projector_{secrets.token_hex(8)}"
        config: dict[str, Any] = {
            "name": name, "deliver_policy": "by_start_sequence", "opt_start_seq": start,
            "ack_policy": "none", "replay_policy": "instant", "mem_storage": True,
            # Results lie in the bodies of records; rows need only the headers.
            "headers_only": True, "inactive_threshold": _FORGOTTEN_AFTER_S * _NANO,
        }  # fmt: skip
        await self._bus.request_json(
            f"$JS.API.CONSUMER.CREATE.{Stream.STATE}.{name}",
            {"stream_name": Stream.STATE.value, "config": config, "action": ""},
        )
        return name


def _heard(message: Message | Delivery) -> Heard | None:
    """What a record or an acceptance says; None for what is neither, or that we cannot read (logged)."""
    headers = message.headers
    try:
        if isinstance(message, Delivery):
            return Heard(message.time, message.seq, record=decode(Record, headers[Header.RECORD]))
        at = unix_time(headers[Header.TIME_STAMP])
        return Heard(at, 0, job=decode(Job, headers[Header.JOB]))
    except (KeyError, ValueError, msgspec.MsgspecError) as error:
        log.warning("projector.unreadable", subject=message.subject, reason=str(error))
        return None
