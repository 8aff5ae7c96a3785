"""Posting to the outbox, from inside the transaction of the act that decides."""

import time
from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from console.outbox import wake
from console.outbox.models import OutboxEntry
from signalbox.wire import messages, names
from signalbox.wire.names import Bucket

_REPORT_WITHIN_S: Final = 0.5
"""How long an answer waits for the publication."""
_POLL_S: Final = 0.01
_PROMPT_S: Final = 10.0
"""Seconds after which a waiting posting counts as overdue, though nothing has refused it."""
_MOST_OVERDUE: Final = 1000
"""Postings looked through for those that wait."""


def post_document(bucket: Bucket, key: str, doc: messages.Doc, *, name: str = "") -> OutboxEntry:
    """Queue the new state of a KV key. name: of the model, for people."""
    return post(_entry(bucket, key, doc, name))


def post_removals(bucket: Bucket, keys: Iterable[tuple[str, str]]) -> None:
    """Queue that KV keys go: each key, and the name of its model, for people."""
    document = OutboxEntry.DOCUMENT
    OutboxEntry.objects.bulk_create(
        OutboxEntry(kind=document, bucket=bucket.value, key=key, subject_name=name) for key, name in keys
    )
    transaction.on_commit(wake.everybody)


def post_documents(bucket: Bucket, documents: Iterable[tuple[str, messages.Doc, str]]) -> None:
    """Queue the new states of many keys at once: key, document and name of each, as :func:`post_document` has them."""
    OutboxEntry.objects.bulk_create(_entry(bucket, *each) for each in documents)
    transaction.on_commit(wake.everybody)


def post(entry: OutboxEntry) -> OutboxEntry:
    """Queue a new entry; its kind says what its key and body are."""
    entry.save()
    transaction.on_commit(wake.everybody)
    return entry


def wait_settled(pk: int, *, timeout_s: float) -> OutboxEntry:
    """A posting once it is settled, or as it is after ``timeout_s`` seconds."""
    deadline = time.monotonic() + timeout_s
    while (entry := OutboxEntry.objects.get(pk=pk)).published_at is None:
        if time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return entry


def overdue() -> list[OutboxEntry]:
    """Postings the fleet does not know of: refused, or waiting for longer than a publication takes; oldest first.

    Of one key the newest alone, with the time since when it waits: older ones are settled with it.
    """
    found: dict[tuple[str, str, str], OutboxEntry] = {}
    before = timezone.now() - timedelta(seconds=_PROMPT_S)
    for entry in OutboxEntry.objects.filter(published_at=None).order_by("pk")[:_MOST_OVERDUE]:
        if entry.last_error or entry.created_at < before:
            found[entry.kind, entry.bucket, entry.key] = entry
    return sorted(found.values(), key=lambda entry: entry.pk)


def waiting(bucket: Bucket) -> dict[str, str]:
    """Why a key's newest document is not published, by key; one that is not here is published, or was never posted."""
    unpublished = OutboxEntry.objects.filter(kind=OutboxEntry.DOCUMENT, bucket=bucket.value, published_at=None)
    return {entry.key: why_waiting(entry) for entry in unpublished.order_by("pk")}


def why_waiting(entry: OutboxEntry) -> str:
    """Why a posting waits, in words for an operator."""
    if entry.published_at is not None:
        return ""
    if entry.last_error:
        return entry.last_error
    if timezone.now() - entry.created_at < timedelta(seconds=_PROMPT_S):
        return "it is being published."
    return f"it has waited since {entry.created_at:%H:%M:%S} UTC; does the controller run?"


def latest(bucket: Bucket, key: str) -> OutboxEntry | None:
    """The newest posting of a KV key: tells a page how far a decision has got."""
    return OutboxEntry.objects.filter(kind=OutboxEntry.DOCUMENT, bucket=bucket.value, key=key).order_by("-id").first()


def wait_published(bucket: Bucket, key: str, *, timeout_s: float) -> OutboxEntry | None:
    """The newest posting of a key once NATS has it or has refused it, or as it is after ``timeout_s`` seconds.

    For pages that say how fast a decision travelled. The publisher writes from another process or thread, so
    the row is looked at every few milliseconds.
    """
    deadline = time.monotonic() + timeout_s
    while (entry := latest(bucket, key)) is not None and entry.published_at is None:
        if entry.last_error or time.monotonic() >= deadline:
            break
        time.sleep(_POLL_S)
    return entry


def _entry(bucket: Bucket, key: str, doc: messages.Doc, name: str) -> OutboxEntry:
    body = messages.encode(doc).decode()
    return OutboxEntry(kind=OutboxEntry.DOCUMENT, bucket=bucket.value, key=key, subject_name=name, body=body)


def why_unpublished(bucket: Bucket, key: str, *, within_s: float | None = None) -> str:
    """Why NATS does not have the newest document of a key, empty once it does; waits a moment for it, or so long."""
    entry = wait_published(bucket, key, timeout_s=_REPORT_WITHIN_S if within_s is None else within_s)
    return why_waiting(entry) if entry is not None else ""


def latest_cancel(job_id: str) -> OutboxEntry | None:
    """The newest cancellation of a job, if one was asked here."""
    return OutboxEntry.objects.filter(kind=OutboxEntry.CANCEL, key=job_id).order_by("-id").first()


def forget_settled(before: datetime, limit: int) -> int:
    """Delete up to ``limit`` postings that were settled before that; returns how many.

    The newest document of a key stays: it is what the key's state is compared with.
    """
    newer = OutboxEntry.objects.filter(
        kind=OuterRef("kind"), bucket=OuterRef("bucket"), key=OuterRef("key"), pk__gt=OuterRef("pk")
    )
    old = OutboxEntry.objects.filter(~Q(kind=OutboxEntry.DOCUMENT) | Exists(newer), published_at__lt=before)
    found = list(old.order_by("published_at").values_list("pk", flat=True)[:limit])
    OutboxEntry.objects.filter(pk__in=found).delete()
    return len(found)


def model_key(name: str) -> str:
    """KV key of a model's document."""
    return names.token(name)
