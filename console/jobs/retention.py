"""Old rows of jobs are deleted, a few at a time, oldest first: the list is a copy, and NATS forgets jobs sooner."""

import asyncio
from datetime import datetime, timedelta
from typing import Final

from channels.db import database_sync_to_async
from django.db import transaction
from django.utils import timezone

from console.jobs.models import Job, JobEvent
from signalbox import log
from signalbox.messages import State

EVERY_S: Final = 60.0
CHUNK: Final = 500
"""Rows deleted in one transaction: it holds up other writers for some milliseconds."""
PAUSE_S: Final = 0.1
"""Between two chunks, for them."""
_ENDED: Final = tuple(state.value for state in State if state.is_terminal)


class Retention:
    """Keeps ended jobs for ``days``, and the newest ``rows``; 0 = no bound."""

    def __init__(self, *, days: float, rows: int) -> None:
        self._days = days
        self._rows = rows

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            try:
                if count := await self.tidy():
                    log.info("jobs.forgotten", count=count)
            except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                log.exception("jobs.retention_failed")
            await asyncio.sleep(EVERY_S)

    async def tidy(self) -> int:
        """Delete what is beyond the bounds now; returns how many jobs."""
        before = await database_sync_to_async(self._cutoff)(timezone.now())
        count = 0
        while before is not None:
            done = await database_sync_to_async(delete_oldest)(before, CHUNK)
            count += done
            if done < CHUNK:
                break
            await asyncio.sleep(PAUSE_S)
        return count

    def _cutoff(self, now: datetime) -> datetime | None:
        """Ended jobs created before this are deleted."""
        aged = now - timedelta(days=self._days) if self._days else None
        # In the order of the list, which one index holds: nothing of a row is read.
        newest = Job.objects.order_by("-created_at").values_list("created_at", flat=True)
        beyond = newest[self._rows - 1 : self._rows].first() if self._rows else None
        return max((at for at in (aged, beyond) if at is not None), default=None)


def delete_oldest(before: datetime, limit: int) -> int:
    """Delete up to ``limit`` ended jobs created before that, the oldest first, with their events; returns how many."""
    # Chosen before the transaction: an ended job stays ended. Of each state by itself, which one index holds.
    found: list[tuple[datetime, str]] = []
    for state in _ENDED:
        old = Job.objects.filter(state=state, created_at__lt=before).order_by("created_at")
        found += old.values_list("created_at", "pk")[:limit]
    ids = [pk for _, pk in sorted(found)[:limit]]
    with transaction.atomic():
        JobEvent.objects.filter(job_id__in=ids).delete()
        Job.objects.filter(pk__in=ids).delete()
    return len(ids)
