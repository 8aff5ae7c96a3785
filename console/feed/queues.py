"""Keeps the board's queues current: which models there are, and which of them something happened to."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from console.board.view import LiveView
from console.feed.gauges import Gauges
from signalbox.program import log
from signalbox.program.errors import SignalboxError

GAUGE_S: Final = 0.2
"""Between two readings of gauges that events asked for."""
SWEEP_S: Final = 5.0
"""Between two readings of all gauges, whether anything happened or not."""
DISCOVER_S: Final = 60.0


class WatchedQueues:
    """The models whose gauges are read. is_counting: whether job events are counted besides."""

    def __init__(self, view: LiveView, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self.is_counting = False
        self.synced = asyncio.Event()
        """Set when every gauge has been read once."""
        self.dirty: set[str] = set()
        """Models whose gauge is to be read again."""
        self._models: set[str] = set()
        self._wake = asyncio.Event()

    def add(self, model: str) -> None:
        """A model that there is. Idempotent."""
        self._models.add(model)

    def mark(self, model: str) -> None:
        """Something happened to a model's queue."""
        self.dirty.add(model)
        self._wake.set()

    def mark_all(self) -> None:
        """Anything may have happened to any queue."""
        self.dirty |= self._models
        self._wake.set()

    async def keep(self, gauges: Gauges) -> None:
        """Reads the gauges of models that something happened to, and of all every few seconds."""
        swept_at = discovered_at = 0.0
        while True:
            now = self._clock()
            try:
                if now >= discovered_at + DISCOVER_S:
                    self._models |= await gauges.models()
                    discovered_at = now
                if now >= swept_at + SWEEP_S:
                    self.dirty |= self._models
                    swept_at = now
                dirty, self.dirty = self.dirty, set()
                for model in sorted(dirty):
                    await self._read(gauges, model)
                self.synced.set()
            except* SignalboxError as errors:
                log.warning("live.gauges_failed", reason=str(errors.exceptions[0]))
                swept_at = 0.0
            await asyncio.sleep(GAUGE_S)
            if not self.dirty:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(GAUGE_S, swept_at + SWEEP_S - self._clock())):
                        await self._wake.wait()

    async def _read(self, gauges: Gauges, model: str) -> None:
        has_prefetched = self._view.queues.has_prefetched(model)
        gauge = await gauges.read(model, self._clock(), has_prefetched=has_prefetched)
        if gauge is not None:
            self.add(model)
            self._view.queues.gauge(model, gauge, self._clock(), is_counting=self.is_counting)
