"""Publishes the outbox to NATS. Several publishers may run at once: writes are compare-and-set.

For one key: read the revision NATS holds, *then* the newest posting, write expecting that revision.
A publisher with an older posting has an older revision too and is refused, so a stale document never
overtakes a newer one.
"""

import asyncio
import contextlib
from typing import Final

import msgspec
from channels.db import database_sync_to_async
from django.utils import timezone

from console.outbox import batches
from console.outbox.ends import with_ends_of
from console.outbox.jobacts import JobActs, JobChange, read_record
from console.outbox.models import OutboxEntry, redrive_asked
from console.outbox.wake import Waker
from signalbox.bus.client import Bus
from signalbox.bus.table import remove
from signalbox.program import log
from signalbox.program.errors import (
    Conflict,
    InputLost,
    NotFound,
    QueueFull,
    SignalboxError,
    StaleRevision,
    Unavailable,
)
from signalbox.wire import keydocs, messages, names, outboundnames
from signalbox.wire.names import Bucket

POLL_S: Final = 0.5
"""Between two looks of the controller: who decides rings for it, so this bounds only what was rung for in vain."""
_BATCH: Final = 200
_RACES: Final = 20
"""Lost races in a row after which a posting waits for the next round."""
_LONGEST_PAUSE_S: Final = 60.0
"""Between two tries of a posting that NATS refuses; a newer posting of its key is tried at once."""
_SLOW_OF_JOBS: Final = (OutboxEntry.REDRIVE, OutboxEntry.DISCARD, OutboxEntry.CHANGE, OutboxEntry.DELETE)
_OF_JOBS: Final = (OutboxEntry.CANCEL, *_SLOW_OF_JOBS)
_SLOW: Final = (*_SLOW_OF_JOBS, OutboxEntry.BATCH)
"""Acts on one job or batch that may take a second, as a redrive copies an input, and that may be refused for good."""


class Publisher:
    """Publishes what is due whenever it is rung, and every ``poll_s`` seconds besides."""

    def __init__(self, bus: Bus, poll_s: float = POLL_S) -> None:
        self._bus = bus
        self._poll_s = poll_s
        self._jobs = JobActs(bus)
        self._not_before: dict[int, float] = {}
        self._loop = asyncio.get_running_loop()
        bus.on_reconnect(self._forget)

    async def run(self) -> None:
        """Until cancelled. NATS away: postings wait, in order."""
        with Waker() as waker:
            while True:
                try:
                    await self.publish_due()
                except Unavailable as error:
                    log.warning("outbox.waiting", reason=error.public_message)
                except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                    log.exception("outbox.failed")
                await waker.wait(self._poll_s)

    def _forget(self) -> None:
        """Another server perhaps: what this one was told and refused says nothing of it."""
        self._not_before.clear()

    async def publish_due(self) -> int:
        """Publish every posting that waits; returns how many were tried.

        Raises :class:`Unavailable` if NATS is away. A posting NATS refuses keeps its error and waits, longer each time.
        """
        now = self._loop.time()
        self._not_before = {pk: at for pk, at in self._not_before.items() if at > now}
        slow: list[OutboxEntry] = []
        done = await self._publish_quick(slow)
        for entry in slow:
            await self._attempt(entry)
            # What was decided meanwhile, a revocation perhaps, waits for one of them and not for all.
            done += 1 + await self._publish_quick([])
        return done

    async def _publish_quick(self, slow: list[OutboxEntry]) -> int:
        """Publish all but the slow ones, which are only noted. Returns how many were tried."""
        settled: dict[tuple[str, str], int] = {}
        done = last_id = 0
        while entries := await _due(last_id):
            for entry in entries:
                last_id = entry.pk
                if self._not_before.get(entry.pk, 0.0) > self._loop.time():
                    continue
                if entry.kind in _SLOW:
                    slow.append(entry)
                    continue
                if entry.kind == OutboxEntry.DOCUMENT:
                    key = (entry.bucket, entry.key)
                    if settled.get(key, 0) < entry.pk:
                        settled[key] = await self._attempt(entry)
                else:
                    await self._attempt(entry)
                done += 1
        return done

    async def _attempt(self, entry: OutboxEntry) -> int:
        """The id up to which postings of this key are settled now."""
        try:
            if entry.kind == OutboxEntry.DOCUMENT:
                return await self._publish_document(Bucket(entry.bucket), entry.key)
            await (self._of_job(entry) if entry.kind in _OF_JOBS else self._of_others(entry))
            await _settle(entry, None)
        except Unavailable as error:
            await _note(entry, error)
            # One letter's input may not be had while NATS is there: it alone waits, and not all that came after it.
            if entry.kind not in _SLOW or not self._bus.is_connected:
                raise
            self._postpone(entry)
        except SignalboxError as error:
            await self._refused(entry, error)
        return entry.pk

    async def _of_job(self, entry: OutboxEntry) -> None:
        if entry.kind == OutboxEntry.CANCEL:
            await self._cancel(entry.key)
        elif entry.kind == OutboxEntry.REDRIVE:
            after, version = redrive_asked(entry.body)
            await self._jobs.redrive(entry.key, after=after, version=version)
        elif entry.kind == OutboxEntry.DISCARD:
            await self._jobs.discard(entry.key)
        elif entry.kind == OutboxEntry.CHANGE:
            await self._jobs.change(entry.key, msgspec.json.decode(entry.body, type=JobChange))
        else:
            await self._jobs.delete(entry.key, read_record(entry.body))

    async def _of_others(self, entry: OutboxEntry) -> None:
        if entry.kind == OutboxEntry.SECRET:
            await self._write_secret(entry)
        elif entry.kind == OutboxEntry.BATCH:
            await batches.ask(self._bus, entry.key, entry.body)
        elif entry.kind == OutboxEntry.DELIVER:
            await self._tell(outboundnames.ask_delivery(entry.key), entry.body)
        elif entry.kind == OutboxEntry.EVICT:
            await self._tell(names.ask_evict(entry.key), entry.body)
        else:
            await self._tell(names.ask_release(entry.key), entry.body)

    async def _tell(self, subject: str, body: str) -> None:
        """What no stream keeps: it counts as published once the server has it, and not where NATS is away."""
        await self._bus.publish(subject, body.encode())
        await self._bus.flush()

    async def _refused(self, entry: OutboxEntry, error: SignalboxError) -> None:
        """An act on a job that cannot be done is over, with its reason; anything else is tried again, and later."""
        log.warning("outbox.refused", entry=entry.pk, code=error.code, reason=str(error))
        if entry.kind == OutboxEntry.DISCARD and isinstance(error, NotFound):
            await _settle(entry, None)  # gone, perhaps by a try whose answer was lost
            return
        if entry.kind in _SLOW and isinstance(error, NotFound | Conflict | InputLost | QueueFull):
            # A full queue is the operator's to wait for: each try would store the input once more.
            await _settle(entry, None, error.public_message)
            return
        await _note(entry, error)
        self._postpone(entry)

    def _postpone(self, entry: OutboxEntry) -> None:
        pause_s = min(_LONGEST_PAUSE_S, self._poll_s * 2.0 ** min(entry.attempts, 16))
        self._not_before[entry.pk] = self._loop.time() + pause_s

    async def _publish_document(self, bucket: Bucket, key: str) -> int:
        subject = names.key(bucket, key)
        for _ in range(_RACES):
            stored = await self._bus.leader_get(bucket.stream, subject)
            revision = stored.seq if stored else 0
            entry = await _newest(bucket, key)
            body = entry.body.encode()
            if bucket is Bucket.KEYS and stored is not None:
                body = _still_ended(body, stored.data)
            try:
                if body:
                    written = await self._bus.write(subject, body, expect=revision)
                else:
                    written = await remove(self._bus, bucket, key, expect=revision)
            except StaleRevision:
                continue
            await _settle(entry, written)
            log.info("outbox.published", bucket=bucket.value, key=key, revision=written)
            return entry.pk
        raise Conflict(f"Lost {_RACES} races for {bucket.value}/{key}; it is tried again.")

    async def _write_secret(self, entry: OutboxEntry) -> None:
        """Unread, as this program may not: each is written once under a name of its own."""
        bucket = Bucket(entry.bucket)
        if not entry.body:
            await remove(self._bus, bucket, entry.key)
            return
        with contextlib.suppress(StaleRevision):  # by a try whose answer was lost
            await self._bus.write(names.key(bucket, entry.key), entry.body.encode(), expect=0)

    async def _cancel(self, job_id: str) -> None:
        """A job that has ended, or is no longer known, needs nothing."""
        with contextlib.suppress(NotFound, Conflict):
            await self._jobs.cancel(job_id)


def _still_ended(body: bytes, held: bytes) -> bytes:
    """A key's document with the end that NATS knows of: a database of before a revocation must not undo it."""
    try:
        mine, other = (messages.decode(keydocs.ApiKey, data) for data in (body, held))
    except msgspec.MsgspecError:
        return body
    ended = with_ends_of(mine, other)
    return body if ended == mine else messages.encode(ended)


@database_sync_to_async
def _due(after: int) -> list[OutboxEntry]:
    return list(OutboxEntry.objects.filter(published_at=None, pk__gt=after).order_by("pk")[:_BATCH])


@database_sync_to_async
def _newest(bucket: Bucket, key: str) -> OutboxEntry:
    return OutboxEntry.objects.filter(kind=OutboxEntry.DOCUMENT, bucket=bucket.value, key=key).latest("pk")


@database_sync_to_async
def _settle(entry: OutboxEntry, revision: int | None, refusal: str = "") -> None:
    rows = OutboxEntry.objects.filter(
        kind=entry.kind, bucket=entry.bucket, key=entry.key, pk__lte=entry.pk, published_at=None
    )
    if entry.kind == OutboxEntry.CHANGE:  # another change of the job is of something else, perhaps
        rows = rows.filter(pk=entry.pk)
    done = {"published_at": timezone.now(), "revision": revision, "last_error": refusal[:500]}
    if entry.kind == OutboxEntry.SECRET:
        done["body"] = ""
    rows.update(**done)


@database_sync_to_async
def _note(entry: OutboxEntry, error: SignalboxError) -> None:
    OutboxEntry.objects.filter(pk=entry.pk).update(attempts=entry.attempts + 1, last_error=error.public_message[:500])
