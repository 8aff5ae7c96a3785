"""Metrics of the storage of NATS."""

import asyncio
import time
from typing import Final

from signalbox.bus import storage
from signalbox.bus.client import Bus
from signalbox.program import metrics
from signalbox.program.errors import SignalboxError

EVERY_S: Final = 30.0
_USED: Final = metrics.gauge("stream_bytes", "Bytes a stream holds.", "stream")
_LIMIT: Final = metrics.gauge("stream_limit_bytes", "Most bytes a stream may hold.", "stream")
_MESSAGES: Final = metrics.gauge("stream_messages", "Messages a stream holds.", "stream")
_CONSUMERS: Final = metrics.gauge("stream_consumers", "Consumers of a stream.", "stream")
_LATE: Final = metrics.gauge(
    "stream_late_replicas",
    "Replicas of a stream that lag behind their leader or are away: of every stream and bucket but those of queues.",
    "stream",
)
_ASKED_S: Final = metrics.gauge(
    "nats_answer_seconds", "How long NATS took to tell of the streams with a limit, all together."
)
_OF_STREAMS: Final = (_USED, _LIMIT, _MESSAGES, _CONSUMERS, _LATE)


async def keep_measured(bus: Bus) -> None:
    """Until cancelled."""
    while True:
        await measure(bus)
        await asyncio.sleep(EVERY_S)


async def measure(bus: Bus) -> None:
    """Read the figures once. While NATS does not answer the metrics are absent, not stale."""
    began_s = time.monotonic()
    try:
        found = await storage.read(bus)
        answered_s = time.monotonic() - began_s
        late = await storage.read_late(bus)
    except SignalboxError:
        for gauge in _OF_STREAMS:
            gauge.clear()
        _ASKED_S.set(float("nan"))
        return
    _ASKED_S.set(answered_s)
    for filled in found:
        figures = filled.used_bytes, filled.limit_bytes, filled.messages, filled.consumers, filled.late_replicas
        for gauge, figure in zip(_OF_STREAMS, figures, strict=True):
            gauge.labels(filled.stream).set(figure)
    for stream, count in late.items():
        _LATE.labels(stream).set(count)
