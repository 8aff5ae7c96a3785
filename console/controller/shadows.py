"""Keeps what workers tell of candidates that they run in shadow, and tells operators of one that is not alike."""

import asyncio
from typing import Any, Final

from channels.db import database_sync_to_async
from msgspec import to_builtins

from console.catalog.models import VersionSplit
from console.feed.retry import until_done
from console.splits import acts
from console.splits.shadow import MOST_WORKERS, together, why_told
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire.names import Bucket
from signalbox.wire.shadows import ShadowFigures
from signalbox.wire.workerdocs import Worker

EVERY_S: Final = 2.0
Found = dict[str, ShadowFigures]
"""Figures by worker and boot."""


async def keep_noted(bus: Bus) -> None:
    """Until cancelled. Workers tell all that they have found since a shadow began, so what is missed comes again."""
    table = Table(bus, Bucket.WORKERS, Worker)
    await until_done(table.start)
    try:
        while True:
            try:
                await database_sync_to_async(note)(list(table.items().values()))
            except Exception:  # noqa: BLE001  the edge of a task: a database away must not end it
                log.exception("shadows.not_noted")
            await asyncio.sleep(EVERY_S)
    finally:
        await table.close()


def note(workers: list[Worker]) -> None:
    """Store what they have found, and tell it where it says that a candidate is not alike. Idempotent."""
    running = VersionSplit.objects.filter(shadow_since__isnull=False, halted_at=None, model__deleted_at=None)
    for split in running.select_related("model"):
        assert split.shadow_since is not None, "asked for"
        reported = _found(workers, split.model.name, split.candidate, split.shadow_since.timestamp())
        kept: dict[str, Any] = {**split.shadowed, **{key: to_builtins(one) for key, one in reported.items()}}
        kept = dict(list(kept.items())[-MOST_WORKERS:])
        found = together(kept)
        if found is None or kept == split.shadowed:
            continue
        why = why_told(found)
        try:
            is_noted = acts.note_shadow(split.model.name, split.target, split.shadow_since, kept, why)
        except SignalboxError as error:  # an operator was first
            log.warning("shadows.not_told", model=split.model.name, why=str(error))
            continue
        if is_noted and why and not split.differs:
            log.warning("shadows.differ", model=split.model.name, target=split.target, why=why)


def _found(workers: list[Worker], model: str, candidate: int, since: float) -> Found:
    return {
        f"{worker.id}/{worker.boot}": one.shadow
        for worker in workers
        for one in worker.models
        if (one.model, one.version) == (model, candidate) and one.shadow is not None and one.shadow.since == since
    }
