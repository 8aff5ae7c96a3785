"""Cancels the open jobs of deleted accounts, a batch at a time: the next one once the last is published."""

from datetime import timedelta
from typing import Final

from django.db import transaction
from django.db.models import Exists, OuterRef
from django.utils import timezone

from console.database import repeat
from console.jobs.models import OPEN, Job
from console.keys.models import Account
from console.outbox import wake
from console.outbox.models import OutboxEntry
from signalbox.program import log

EVERY_S: Final = 1.0
BATCH: Final = 200
_SETTLED: Final = timedelta(seconds=30)
"""After a deletion: by then gateways refuse its keys, and what they accepted before has a row."""


async def keep_cancelled() -> None:
    """Look every second, until cancelled."""
    await repeat(cancel_some, EVERY_S, "accounts.cancelling_failed")


def cancel_some() -> int:
    """Ask for the end of the next jobs of each deleted account whose jobs are to be cancelled; returns how many."""
    return sum(_cancel_some(account) for account in Account.objects.filter(cancels_jobs=True))


def _cancel_some(account: Account) -> int:
    asked = OutboxEntry.objects.filter(kind=OutboxEntry.CANCEL, bucket="", key=OuterRef("pk"))
    mine = Job.objects.filter(account_id=account.pk, state__in=OPEN)
    with transaction.atomic():
        if not Account.objects.select_for_update().filter(pk=account.pk, cancels_jobs=True).exists():
            return 0  # another controller has come first
        if mine.filter(Exists(asked.filter(published_at=None))).exists():
            return 0
        ids = list(mine.filter(~Exists(asked)).order_by("created_at").values_list("pk", flat=True)[:BATCH])
        OutboxEntry.objects.bulk_create(OutboxEntry(kind=OutboxEntry.CANCEL, key=job_id) for job_id in ids)
        if ids:
            transaction.on_commit(wake.everybody)
        elif account.deleted_at is None or timezone.now() - account.deleted_at > _SETTLED:
            Account.objects.filter(pk=account.pk).update(cancels_jobs=False)
            log.info("accounts.jobs_cancelled", account=account.pk)
    return len(ids)
