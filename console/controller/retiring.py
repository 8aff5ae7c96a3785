"""Takes versions out of service that their models' policies select no more, once no accepted job and no request needs
them."""

import asyncio
from collections.abc import Collection
from datetime import timedelta
from typing import Final

from channels.db import database_sync_to_async
from django.utils import timezone

from console.catalog import selection
from console.catalog.models import ServedModel
from console.database import DATABASE_FAULTS
from console.jobs.models import OPEN, Job
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import decode
from signalbox.wire.modeldocs import Serving
from signalbox.wire.names import Bucket, key, token

EVERY_S: Final = 2.0
SEEN_AFTER: Final = timedelta(seconds=10)
"""The rows have each job that was accepted so long ago."""


async def keep_retired(bus: Bus) -> None:
    """Until cancelled."""
    while True:
        try:
            for name in await database_sync_to_async(_retiring)():
                await retire(bus, name)
        except DATABASE_FAULTS as error:
            log.warning("retiring.waiting", reason=str(error))
        except SignalboxError as error:
            log.warning("retiring.waiting", reason=error.public_message)
        await asyncio.sleep(EVERY_S)


async def retire(bus: Bus, name: str, *, seen_after: timedelta = SEEN_AFTER) -> None:
    """Take those of a model's versions out of service that nothing needs. Idempotent. Raises :class:`Unavailable`."""
    found = await bus.direct_get(Bucket.SERVING.stream, key(Bucket.SERVING, token(name)))
    serving = decode(Serving, found.data) if found is not None and found.data else Serving(publication=0)
    await database_sync_to_async(_retire)(name, {serving.default, *serving.labels.values()}, seen_after)


def _retiring() -> list[str]:
    return list(ServedModel.objects.exclude(retiring={}).values_list("name", flat=True))


def _retire(name: str, in_use: Collection[int | None], seen_after: timedelta) -> None:
    """in_use: versions that gateways give to requests without a version, or by label.

    Jobs that were accepted before the version was to leave have ended once the model's times have passed: then it goes
    whatever callers ask for by its number.
    """
    model = ServedModel.objects.filter(name=name).first()
    if model is None:
        return
    now = timezone.now()
    gone = []
    for text, since in model.retiring.items():
        for_s = now.timestamp() - since
        is_over = for_s > model.deadline_s + model.timeout_s
        jobs = Job.objects.filter(model=name, version=int(text), state__in=OPEN)
        if is_over or (for_s >= seen_after.total_seconds() and int(text) not in in_use and not jobs.exists()):
            gone.append(int(text))
    if gone:
        selection.retire(name, gone)
        log.info("catalog.versions_retired", model=name, versions=gone)
