"""Deletes old rows in small chunks: jobs, postings that are settled, logins that have ended.

Jobs go oldest first: the list is a copy, and NATS forgets jobs sooner.
"""

import asyncio
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from typing import Final

from channels.db import database_sync_to_async
from django.db import transaction
from django.utils import timezone

from console.accounts import sessions
from console.jobs.models import Job, JobEvent, JobTag
from console.outbox import services as outbox
from signalbox.program import log
from signalbox.program.words import counted
from signalbox.wire.messages import State

EVERY_S: Final = 60.0
CHUNK: Final = 500
"""Rows deleted in one transaction: it holds up other writers for some milliseconds."""
PAUSE_S: Final = 0.1
"""Between two chunks, for them."""
_ENDED: Final = tuple(state.value for state in State if state.is_terminal)


class RowRetention:
    """Keeps ended jobs and settled postings for ``days``, and the newest ``rows`` of jobs; 0 = no bound."""

    def __init__(self, *, days: float, rows: int) -> None:
        self._days = days
        self._rows = rows

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if count := await self.tidy():
                    log.info("jobs.removed", count=count)
                if count := await self.tidy_others():
                    log.info("jobs.rows_removed", count=count)
            except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                log.exception("jobs.retention_failed")
            await asyncio.sleep(EVERY_S)

    async def tidy(self) -> int:
        """Delete jobs that are beyond the bounds now; returns how many."""
        before = await database_sync_to_async(self._cutoff)(timezone.now())
        return await _all(delete_oldest, before) if before is not None else 0

    async def tidy_others(self) -> int:
        """Delete settled postings that are too old, and logins that have ended; returns how many rows."""
        now = timezone.now()
        count = await _all(sessions.forget_ended, now)
        if self._days:
            count += await _all(outbox.forget_settled, now - timedelta(days=self._days))
        return count

    def _cutoff(self, now: datetime) -> datetime | None:
        """Ended jobs created before this are deleted."""
        aged = now - timedelta(days=self._days) if self._days else None
        # In the order of the list, which one index holds: nothing of a row is read.
        newest = Job.objects.order_by("-created_at").values_list("created_at", flat=True)
        beyond = newest[self._rows - 1 : self._rows].first() if self._rows else None
        return max((at for at in (aged, beyond) if at is not None), default=None)


async def _all(delete: Callable[[datetime, int], int], before: datetime) -> int:
    """Call ``delete`` until it finds no more; returns how many rows."""
    count = 0
    while True:
        done = await database_sync_to_async(delete)(before, CHUNK)
        count += done
        if done < CHUNK:
            return count
        await asyncio.sleep(PAUSE_S)


def delete_oldest(before: datetime, limit: int) -> int:
    """Delete up to ``limit`` ended jobs created before that, the oldest first; returns how many."""
    # Chosen before the transaction: an ended job stays ended. Of each state by itself, which one index holds.
    found: list[tuple[datetime, str]] = []
    for state in _ENDED:
        old = Job.objects.filter(state=state, created_at__lt=before).order_by("created_at")
        found += old.values_list("created_at", "pk")[:limit]
    ids = [pk for _, pk in sorted(found)[:limit]]
    delete(ids)
    return len(ids)


def delete(ids: Collection[str]) -> None:
    """Delete these jobs, with their events and tags."""
    with transaction.atomic():
        JobEvent.objects.filter(job_id__in=ids).delete()
        JobTag.objects.filter(job_id__in=ids).delete()
        Job.objects.filter(pk__in=ids).delete()


def in_words(*, days: float, rows: int) -> str:
    """For operators: which jobs are no longer listed; empty where all are."""
    bounds = [f"older than {counted(float(days), 'day')}"] if days else []
    bounds += ["not among the newest " + f"{rows:,}".replace(",", " ")] if rows else []
    return f"Ended jobs that are {' or '.join(bounds)} are no longer listed." if bounds else ""
