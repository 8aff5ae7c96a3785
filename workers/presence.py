"""Presence: a document with a time to live that says who this worker is and what it does.

Written at every heartbeat and soon after a change that others act on (state, token, models), never
more often than a few times a second. A worker that dies is gone from the table when the TTL ends.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from signalbox import log
from signalbox.bus import Bus
from signalbox.errors import SignalboxError
from signalbox.messages import Worker
from signalbox.names import Bucket, token
from signalbox.table import put, remove

SETTLE_S: Final = 0.1
"""Changes within this time share one write."""


class Presence:
    """Keeps one worker's document. describe: the present document, ``beat_at`` is filled in here."""

    def __init__(
        self, bus: Bus, worker: str, describe: Callable[[], Worker], *, period_s: float, ttl_s: int
    ) -> None:
        self._bus = bus
        self._key = token(worker)
        self._describe = describe
        self._period_s = period_s
        self._ttl_s = ttl_s
        self._changed = asyncio.Event()

    def changed(self) -> None:
        """Tell it soon."""
        self._changed.set()

    async def write(self) -> None:
        """Write the document now. Raises :class:`Unavailable`."""
        await put(self._bus, Bucket.WORKERS, self._key, self._describe(), ttl_s=self._ttl_s)

    async def keep(self) -> None:
        """Until cancelled: heartbeats, and a write soon after each change."""
        while True:
            began_s = time.monotonic()
            try:
                await self.write()
            except SignalboxError as error:
                log.warning("presence.not_written", why=str(error))
            await asyncio.sleep(SETTLE_S)
            left_s = self._period_s - (time.monotonic() - began_s)
            try:
                async with asyncio.timeout(max(0.0, left_s)):
                    await self._changed.wait()
            except TimeoutError:
                pass
            self._changed.clear()

    async def end(self) -> None:
        """Gone on purpose: others need not wait for the TTL."""
        try:
            await remove(self._bus, Bucket.WORKERS, self._key)
        except SignalboxError as error:
            log.warning("presence.not_removed", why=str(error))
