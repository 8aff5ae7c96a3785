"""Repairs losses that no event reports: documents NATS lost, and open jobs that NATS does not know."""

import asyncio
import gc
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from channels.db import database_sync_to_async
from django.db import transaction
from django.db.models import Q, QuerySet

from console.catalog.models import ServedModel, StoredUpload
from console.fleet.models import DesiredState
from console.fleet.services import desired_key
from console.jobs.fold import JobMessage
from console.jobs.models import OPEN, Job
from console.keys import unknown
from console.keys.models import ApiKey
from console.outbound.models import Subscription, Webhook
from console.outbox.models import OutboxEntry
from console.outbox.services import model_key, post_document, post_removals
from console.projector import damage, store
from console.queues.models import Queue
from signalbox.bus.client import Bus
from signalbox.bus.damage import find as find_damage
from signalbox.jobs import repair
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import NewerVersion, SignalboxError
from signalbox.wire import jobids, messages, names
from signalbox.wire.messages import Record, State
from signalbox.wire.names import Bucket, Header

AT_ONCE: Final = 200
"""Open jobs looked up in one round; the next one goes on behind them."""
COMPARED_AT_ONCE: Final = 100
"""Documents in memory at a time while they are compared."""
DECIDED: Final = (
    Bucket.MANIFESTS,
    Bucket.MODELS,
    Bucket.KEYS,
    Bucket.DESIRED,
    Bucket.SUBSCRIPTIONS,
    Bucket.WEBHOOKS,
    Bucket.QUEUES,
)
"""Buckets that the database decides on; of ``manifests`` those of uploads."""
_NAMED: Final = frozenset({Bucket.MODELS, Bucket.QUEUES})
"""Whose rows are known by a name that is not their key."""
COMPARED_ANYWAY_S: Final = 3600.0
"""Seconds between full comparisons though nothing has moved: a database may be changed by hand."""
Moved = tuple[str, int, int, int]
Place = tuple[datetime, str]
_BEGINNING: Final[Place] = (datetime.min.replace(tzinfo=UTC), "")
Decided = ServedModel | ApiKey | DesiredState | StoredUpload | Subscription | Webhook | Queue
"""A row with a document."""


class ConsoleReconciler:
    """Runs every ``every_s`` seconds and after each reconnect. kept_s: how long records of ended jobs stay at least."""

    def __init__(
        self,
        bus: Bus,
        *,
        every_s: float,
        vanished_after_s: float,
        kept_s: float = 600.0,
        sync_kept_s: float = 600.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._every_s = every_s
        self._vanished_after_s = vanished_after_s
        self._kept_s = kept_s
        self._sync_kept_s = sync_kept_s
        self._clock = clock
        self._records = Records(bus)
        self._wake = asyncio.Event()
        self._compared: tuple[object, ...] = ()
        self._compared_at = 0.0
        self._checked_to = _BEGINNING

    async def run(self) -> None:
        """Until cancelled."""
        self._bus.on_reconnect(self._wake.set)
        has_begun_anew = True
        try:
            while True:
                try:
                    if has_begun_anew:
                        await self.note_damage()
                        has_begun_anew = False
                    await self.repost_lost_documents()
                    await self.settle_vanished_jobs()
                except SignalboxError as error:
                    log.warning("reconciler.waiting", code=error.code, reason=error.public_message)
                except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                    log.exception("reconciler.failed")
                try:
                    async with asyncio.timeout(self._every_s):
                        await self._wake.wait()
                    has_begun_anew = True
                except TimeoutError:
                    continue
                finally:
                    self._wake.clear()
        finally:
            self._bus.forget_reconnect(self._wake.set)

    async def note_damage(self) -> None:
        """Store which losses the server reports."""
        for found in await find_damage(self._bus):
            await database_sync_to_async(damage.note)(found.stream, found.what)

    async def repost_lost_documents(self) -> int:
        """Post every document that NATS does not hold as the database has it. Returns how many.

        Nothing is listed while neither a bucket nor the outbox has moved since all was found equal.
        """
        # Looked at before the comparison: what moves during it is compared in the next round.
        marks = (await decided(), *[await self._moved(bucket.stream) for bucket in DECIDED])
        now = self._clock()
        if marks == self._compared and now < self._compared_at + COMPARED_ANYWAY_S:
            return 0
        count = sum([await self._compare(bucket) for bucket in DECIDED])
        self._compared, self._compared_at = marks, now
        if count:
            log.warning("reconciler.reposted", count=count)
        return count

    async def _compare(self, bucket: Bucket) -> int:
        if bucket is Bucket.KEYS:
            await self._note_unknown_keys()
        count = 0
        keys: dict[Any, str] = {}
        while keys := await _next_keys(bucket, next(reversed(keys), None)):
            # Before the rows: what is published in between is at most posted again, and never an older document.
            subjects = [names.key(bucket, key) for key in keys.values()]
            held = {stored.subject: stored.data for stored in await self._bus.list_latest(bucket.stream, subjects)}
            count += await _repost(bucket, list(keys), held)
            # A model and its versions refer to one another: left to itself, the collector lets pages of them gather.
            gc.collect()
        return count

    async def _note_unknown_keys(self) -> None:
        stored = await self._bus.list_latest(Bucket.KEYS.stream, [names.key(Bucket.KEYS, ">")])
        held = {
            one.subject.removeprefix(names.key(Bucket.KEYS, "")): one.data
            for one in stored
            if Header.KV_OPERATION not in one.headers
        }
        await database_sync_to_async(_compare_keys)(held)

    async def _moved(self, stream: str) -> Moved:
        """Changes when the stream is written to, purged or restored (which gives it another creation time)."""
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        state = info["state"]
        return (info["created"], state["first_seq"], state["last_seq"], state["messages"])

    async def settle_vanished_jobs(self) -> int:
        """Look open jobs up that have not changed for long; returns how many rows changed.

        A row behind its record is brought up to date, and that is all that is done to a job with a record: whether
        it is queued again or ended is for the workers' reconciler. Only a job of which neither STATE nor JOBS knows
        is ended here, as failed, by compare-and-set: no other program would find it. Where its record may have been
        removed from STATE, it may have ended long ago: the row alone is closed.
        """
        before = datetime.fromtimestamp(self._clock() - self._vanished_after_s, tz=UTC)
        # After damage at once: until a lost job has its end, a caller who asks for it is told 404.
        damaged_at = await database_sync_to_async(damage.latest)()
        rows = await _stale(max(before, damaged_at or before), self._checked_to)
        changed = sum([await self._settle(row) for row in rows])
        last = rows[-1] if len(rows) == AT_ONCE else None
        self._checked_to = (last.updated_at, last.pk) if last is not None else _BEGINNING
        return changed

    async def _settle(self, row: Job) -> int:
        try:
            found = await self._records.find(row.pk)
        except NewerVersion:
            return 0
        if found is not None:
            if found.revision <= row.revision:
                return 0
            await self._show(found.record, found.revision)
            return 1
        now = self._clock()
        seen_at = row.updated_at.timestamp()
        if await self._may_have_gone(row.pk, seen_at, now):
            log.warning("reconciler.job_forgotten", job=row.pk, trace=row.trace, model=row.model)
            await self._show(repair.forgotten(_record_of(row), now=now), row.revision)
            return 1
        failed = await repair.fail_vanished(self._bus, self._records, _record_of(row), now=now)
        if failed is None:
            return 0
        log.warning("reconciler.job_lost", job=row.pk, trace=row.trace, model=row.model)
        await self._show(failed.record, failed.revision)
        return 1

    async def _may_have_gone(self, job_id: str, since: float, now: float) -> bool:
        is_short = jobids.is_short_lived(job_id)
        return await self._records.may_have_gone(
            since, now=now, kept_s=self._sync_kept_s if is_short else self._kept_s, is_short_lived=is_short
        )

    async def _show(self, record: Record, revision: int) -> None:
        received = JobMessage(self._clock(), revision, record)
        await database_sync_to_async(store.write)([received], has_events=False)


@database_sync_to_async
def decided() -> object:
    """A value that changes with every decision, since each posts to the outbox, and when the database is restored."""
    return OutboxEntry.objects.order_by("-pk").values_list("pk", "created_at").first()


@database_sync_to_async
def _stale(before: datetime, after: Place) -> list[Job]:
    at, job_id = after
    behind = Q(updated_at__gt=at) | Q(updated_at=at, pk__gt=job_id)
    found = Job.objects.filter(behind, state__in=OPEN, updated_at__lt=before)
    return list(found.order_by("updated_at", "pk")[:AT_ONCE])


def _rows(bucket: Bucket) -> QuerySet[Any]:
    if bucket is Bucket.MODELS:
        return ServedModel.with_deleted.select_related("repository", "config").prefetch_related(
            "versions", "splits", "labels__version"
        )
    if bucket is Bucket.MANIFESTS:
        return StoredUpload.objects.filter(state=StoredUpload.KEPT)
    if bucket is Bucket.KEYS:
        return ApiKey.objects.select_related("account")
    if bucket is Bucket.SUBSCRIPTIONS:
        return Subscription.objects.all()
    if bucket is Bucket.WEBHOOKS:
        return Webhook.objects.select_related("account")
    if bucket is Bucket.QUEUES:
        return Queue.objects.all()
    return DesiredState.objects.all()


def _key_of(row: Decided) -> str:
    if isinstance(row, ServedModel):
        return model_key(row.name)
    if isinstance(row, StoredUpload):
        return names.version_key(row.model, row.number)
    if isinstance(row, Queue):
        return names.token(row.name)
    return desired_key(row.kind, row.name) if isinstance(row, DesiredState) else row.id


@database_sync_to_async
def _next_keys(bucket: Bucket, after: object) -> dict[Any, str]:
    """Primary key to KV key of the rows that come next."""
    rows = _rows(bucket).order_by("pk") if after is None else _rows(bucket).filter(pk__gt=after).order_by("pk")
    return {row.pk: _key_of(row) for row in rows.prefetch_related(None)[:COMPARED_AT_ONCE]}


@database_sync_to_async
def _repost(bucket: Bucket, pks: list[Any], held: Mapping[str, bytes]) -> int:
    """Post the documents of these rows that NATS does not hold and that do not wait for their publication."""
    count = 0
    with transaction.atomic():
        found = {_key_of(row): row for row in _rows(bucket).filter(pk__in=pks)}
        unpublished = OutboxEntry.objects.filter(bucket=bucket.value, published_at=None, key__in=list(found))
        waiting = set(unpublished.values_list("key", flat=True))
        for key, row in found.items():
            if isinstance(row, ServedModel) and row.deleted_at is not None:
                if key not in waiting and held.get(names.key(bucket, key)):
                    post_removals(bucket, [(key, row.name)])
                    count += 1
                continue
            doc = row.document()
            if key not in waiting and not _is_same(held.get(names.key(bucket, key)), doc):
                post_document(bucket, key, doc, name=row.name if bucket in _NAMED else "")
                count += 1
    return count


def _compare_keys(held: Mapping[str, bytes]) -> None:
    with transaction.atomic():
        unknown.compare(held)


def _is_same(held: bytes | None, doc: messages.Doc) -> bool:
    if held is None:
        return False
    try:
        return bool(messages.decode(type(doc), held) == doc)
    except msgspec.MsgspecError:
        return False


def _record_of(row: Job) -> Record:
    return Record(
        id=row.pk,
        model=row.model,
        version=row.version,
        signature=row.signature,
        priority=row.priority,  # type: ignore[arg-type]  # a column
        account_id=row.account_id,
        key_id=row.key_id,
        state=State.QUEUED,
        created_at=row.created_at.timestamp(),
        deadline_at=(row.deadline_at or row.created_at).timestamp(),
        trace=row.trace,
        input_bytes=row.size_in,
    )
