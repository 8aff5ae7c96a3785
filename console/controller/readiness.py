"""Notes which versions a worker has had ready: their files are final from then on."""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from typing import Final

from channels.db import database_sync_to_async
from django.db.models import Exists, OuterRef
from django.utils import timezone

from console.catalog.models import ModelVersion
from console.database import DATABASE_FAULTS
from console.feed.retry import until_done
from console.jobs.models import Job
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.wire.messages import State, Worker
from signalbox.wire.names import Bucket
from signalbox.wire.rollout import RESIDENT

JOBS_EVERY_S: Final = 600.0
"""Between checks of the jobs, which tell what was ready while this program was away."""
_RETRY_S: Final = 1.0
Version = tuple[str, int]


async def keep_noted(bus: Bus) -> None:
    """Until cancelled."""
    loop = asyncio.get_running_loop()
    at_workers: dict[str, frozenset[Version]] = {}
    fresh: set[Version] = set()
    news = asyncio.Event()

    def on_worker(key: str, worker: Worker | None, _revision: int) -> None:
        models = worker.models if worker is not None else ()
        ready = frozenset((one.model, one.version) for one in models if one.state in RESIDENT)
        if came := ready - at_workers.get(key, frozenset()):
            fresh.update(came)
            news.set()
        at_workers[key] = ready
        if worker is None:
            del at_workers[key]

    table = Table(bus, Bucket.WORKERS, Worker)
    table.on_change(on_worker)
    await until_done(table.start)
    jobs_at = loop.time()
    try:
        while True:
            news.clear()
            taken = frozenset(fresh)
            try:
                await database_sync_to_async(note)(taken)
                fresh.difference_update(taken)
                if loop.time() >= jobs_at:
                    await database_sync_to_async(note_answered)()
                    jobs_at = loop.time() + JOBS_EVERY_S
            except DATABASE_FAULTS as error:
                log.warning("readiness.waiting", reason=str(error))
                await asyncio.sleep(_RETRY_S)
                continue
            with suppress(TimeoutError):
                async with asyncio.timeout_at(jobs_at):
                    await news.wait()
    finally:
        await table.close()


def note(ready: Collection[Version]) -> None:
    """Store that workers have these versions in memory. Idempotent."""
    for model, number in ready:
        new = ModelVersion.objects.filter(model__name=model, number=number, first_ready_at=None)
        new.update(first_ready_at=timezone.now())


def note_answered() -> None:
    """Store that those versions were ready once that have answered a job. Idempotent."""
    answered = Job.objects.filter(
        model=OuterRef("model__name"), version=OuterRef("number"), state=State.SUCCEEDED.value
    )
    new = ModelVersion.objects.filter(Exists(answered), first_ready_at=None)
    for version in list(new.values_list("pk", flat=True)):
        ModelVersion.objects.filter(pk=version, first_ready_at=None).update(first_ready_at=timezone.now())
