"""Notes what workers have found of joined requests, and publishes it, so that no other worker tries the same files."""

import asyncio
from typing import Final

from channels.db import database_sync_to_async

from console.catalog import services
from console.database import DATABASE_FAULTS
from console.feed.retry import until_done
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.wire.messages import Joining, Worker
from signalbox.wire.names import Bucket

_RETRY_S: Final = 1.0
Found = tuple[str, str, int, Joining]


async def keep_joinings(bus: Bus) -> None:
    """Until cancelled. A worker tells what it has found until the model's document says it."""
    reported: dict[str, list[Found]] = {}
    news = asyncio.Event()

    def on_worker(key: str, worker: Worker | None, _revision: int) -> None:
        reported.pop(key, None)
        for one in worker.models if worker is not None else ():
            if worker is not None and one.joining is not None:
                reported.setdefault(key, []).append((worker.id, one.model, one.version, one.joining))
                news.set()

    table = Table(bus, Bucket.WORKERS, Worker)
    table.on_change(on_worker)
    await until_done(table.start)
    try:
        while True:
            await news.wait()
            news.clear()
            try:
                for facts in [one for found in reported.values() for one in found]:
                    if await database_sync_to_async(services.note_joining)(*facts):
                        worker, model, version, found = facts
                        log.info(
                            "catalog.joining_found", worker=worker, model=model, version=version, differs=found.differs
                        )
            except DATABASE_FAULTS as error:
                log.warning("joining.waiting", reason=str(error))
                await asyncio.sleep(_RETRY_S)
                news.set()
    finally:
        await table.close()
