"""Notes what workers tell of versions.

That one was ready: its files are final from then on, and an older one may leave its place. What was found of joined
requests: it is published, so that no other worker tries the same files.
"""

import asyncio
from collections.abc import Collection
from contextlib import suppress
from itertools import chain
from typing import Final

from channels.db import database_sync_to_async
from django.db.models import Exists, OuterRef

from console.catalog import independence, selection
from console.catalog.models import ModelVersion
from console.database import DATABASE_FAULTS
from console.feed.retry import until_done
from console.jobs.models import Job
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.wire.messages import State
from signalbox.wire.names import Bucket
from signalbox.wire.rollout import RESIDENT
from signalbox.wire.workerdocs import Joining, Worker

JOBS_EVERY_S: Final = 600.0
"""Between checks of the jobs, which tell what was ready while this program was away."""
_RETRY_S: Final = 1.0
Version = tuple[str, int]
Found = tuple[str, str, int, Joining]
"""A worker, a model, a version, and what it has found of that."""


async def keep_noted(bus: Bus) -> None:
    """Until cancelled. A worker tells what it has found until the model's document says it."""
    loop = asyncio.get_running_loop()
    at_workers: dict[str, frozenset[Version]] = {}
    fresh: set[Version] = set()
    joinings: dict[str, list[Found]] = {}
    news = asyncio.Event()

    def on_worker(key: str, worker: Worker | None, _revision: int) -> None:
        if worker is None:
            at_workers.pop(key, None)
            joinings.pop(key, None)
            return
        ready = frozenset((one.model, one.version) for one in worker.models if one.state in RESIDENT)
        fresh.update(ready - at_workers.get(key, frozenset()))
        at_workers[key] = ready
        joinings[key] = [(worker.id, one.model, one.version, one.joining) for one in worker.models if one.joining]
        if fresh or joinings[key]:
            news.set()

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
                for found in list(chain.from_iterable(joinings.values())):
                    await _note_joining(found)
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
        selection.note_ready(ModelVersion.objects.filter(model__name=model, number=number))


async def _note_joining(found: Found) -> None:
    if await database_sync_to_async(independence.note_joining)(*found):
        worker, model, version, joining = found
        log.info("catalog.joining_found", worker=worker, model=model, version=version, differs=joining.differs)


def note_answered() -> None:
    """Store that those versions were ready once that have answered a job. Idempotent."""
    answered = Job.objects.filter(
        model=OuterRef("model__name"), version=OuterRef("number"), state=State.SUCCEEDED.value
    )
    new = ModelVersion.objects.filter(Exists(answered), first_ready_at=None)
    for version in list(new.values_list("pk", flat=True)):
        selection.note_ready(ModelVersion.objects.filter(pk=version))
