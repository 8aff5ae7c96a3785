"""Metrics of the storage of NATS."""

import asyncio
from typing import Final

from signalbox.bus import storage
from signalbox.bus.client import Bus
from signalbox.program import metrics
from signalbox.program.errors import SignalboxError

EVERY_S: Final = 30.0
_USED: Final = metrics.gauge("stream_bytes", "Bytes a stream holds.", "stream")
_LIMIT: Final = metrics.gauge("stream_limit_bytes", "Most bytes a stream may hold.", "stream")


async def keep_measured(bus: Bus) -> None:
    """Until cancelled."""
    while True:
        await measure(bus)
        await asyncio.sleep(EVERY_S)


async def measure(bus: Bus) -> None:
    """Read the figures once. While NATS does not answer the metrics are absent, not stale."""
    try:
        found = await storage.read(bus)
    except SignalboxError:
        _USED.clear()
        _LIMIT.clear()
        return
    for filled in found:
        _USED.labels(filled.stream).set(filled.used_bytes)
        _LIMIT.labels(filled.stream).set(filled.limit_bytes)
