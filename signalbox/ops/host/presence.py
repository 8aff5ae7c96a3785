"""Presence of a host's agent: a document with a time to live, written at each heartbeat and soon after a change."""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.table import put, remove
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire.names import Bucket, token
from signalbox.wire.scaling import Host

SETTLE_S: Final = 0.1
"""Changes within this time share one write."""


class HostPresence:
    """Keeps one host's document. describe: the present one."""

    def __init__(self, bus: Bus, host: str, describe: Callable[[], Host], *, period_s: float, ttl_s: int) -> None:
        self._bus = bus
        self._key = token(host)
        self._describe = describe
        self._period_s = period_s
        self._ttl_s = ttl_s
        self.changed = asyncio.Event()

    async def write(self) -> None:
        """Write it now. Raises as :func:`put`."""
        await put(self._bus, Bucket.HOSTS, self._key, self._describe(), ttl_s=self._ttl_s)

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            began_s = time.monotonic()
            self.changed.clear()
            try:
                await self.write()
            except SignalboxError as error:
                log.warning("host.presence_not_written", why=error.public_message)
            await asyncio.sleep(SETTLE_S)
            try:
                async with asyncio.timeout(max(0.0, self._period_s - (time.monotonic() - began_s))):
                    await self.changed.wait()
            except TimeoutError:
                pass

    async def end(self) -> None:
        """Gone on purpose: others need not wait for the TTL."""
        try:
            await remove(self._bus, Bucket.HOSTS, self._key)
        except SignalboxError as error:
            log.warning("host.presence_not_removed", why=error.public_message)
