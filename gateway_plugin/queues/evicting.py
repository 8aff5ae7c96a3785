"""Notices that a full side drops its oldest items for new ones, which the server does without a word."""

import asyncio
from typing import Final, NamedTuple

from gateway_plugin.queues.scanning import state_of
from signalbox.bus.client import Bus
from signalbox.program import log, metrics
from signalbox.program.tasks import SingleFlight
from signalbox.wire import queuenames
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import Queue

EVICTED: Final = metrics.counter(
    "queue_evicted",
    "Puts into a side that drops its oldest item for a new one and was full when looked at, at most a second before: "
    "about as many items were dropped.",
    "side",
)
_LOOK_S: Final = 1.0


class _Seen(NamedTuple):
    at: float
    is_full: bool


class Evictions:
    """What is dropped by the puts of this program. bus: to the account of the queue service."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._loop = asyncio.get_running_loop()
        self._seen: dict[tuple[str, Side], _Seen] = {}
        self._looking: SingleFlight[tuple[str, Side], None] = SingleFlight()

    async def close(self) -> None:
        """Wait until nobody looks. Idempotent."""
        await self._looking.close()

    def noted(self, queue: Queue, side: Side) -> None:
        """An item was put into a side. The server is asked beside the caller, once a second at most."""
        bounds = queue.sink if side == "sink" else queue.source
        if not bounds.auto_evict:
            return
        place = (queue.name, side)
        seen = self._seen.get(place)
        if seen is not None and seen.is_full:
            EVICTED.labels(side).inc()
        if seen is None or seen.at < self._loop.time() - _LOOK_S:
            self._looking.start(place, lambda: self._look(queue, side))

    async def _look(self, queue: Queue, side: Side) -> None:
        state = await state_of(self._bus, queuenames.queue_stream(queue.name, side))
        is_full = state["messages"] >= queue.room(side).length
        before = self._seen.get((queue.name, side))
        self._seen[queue.name, side] = _Seen(self._loop.time(), is_full)
        if is_full and not (before is not None and before.is_full):
            log.warning("queue.evicts", queue=queue.name, side=side, length=state["messages"])
