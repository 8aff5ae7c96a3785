"""Notes which bytes versions of repositories have: what the first host that fetched a version wrote of them."""

import asyncio
from typing import Final

from console.catalog import withdrawal
from console.database import DATABASE_FAULTS
from console.feed.retry import until_done
from console.noticing.rows import in_thread
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program import log
from signalbox.wire.manifests import VersionDigest
from signalbox.wire.names import Bucket, version_of

_RETRY_S: Final = 1.0


async def keep_noted(bus: Bus) -> None:
    """Until cancelled. All of them are noted at the start, and each as it is written."""
    fresh: dict[str, str] = {}
    news = asyncio.Event()

    def on_digest(key: str, doc: VersionDigest | None, _revision: int) -> None:
        if doc is not None:
            fresh[key] = doc.digest
            news.set()

    table = Table(bus, Bucket.DIGESTS, VersionDigest, asks_leader=True)
    table.on_change(on_digest)
    await until_done(table.start)
    try:
        while True:
            await news.wait()
            news.clear()
            taken = dict(fresh)
            try:
                await in_thread(note)(taken)
            except DATABASE_FAULTS as error:
                log.warning("digests.waiting", reason=str(error))
                await asyncio.sleep(_RETRY_S)
                news.set()
                continue
            for key, digest in taken.items():
                if fresh[key] == digest:
                    del fresh[key]
    finally:
        await table.close()


def note(digests: dict[str, str]) -> None:
    """Store these digests, by their keys in the bucket, where a version has none yet. Idempotent."""
    lacking = withdrawal.unpinned()
    for key, digest in digests.items():
        version = version_of(key)
        row = lacking.get(version) if version is not None else None
        if row is not None:
            withdrawal.pin(row, digest)
