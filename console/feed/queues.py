"""Keeps the board's queues current: of which models jobs wait, and to which of them something happened.

Only those are asked for: a model that nobody calls costs nothing.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final, Protocol

from console.board.queues import QueueRows
from console.feed.gauges import Gauges
from console.feed.queuegauges import QueueGauges
from console.feed.retry import RETRY_S
from signalbox.program import log
from signalbox.program.errors import SignalboxError

GAUGE_S: Final = 0.2
"""Between two readings of gauges that events asked for."""
SWEEP_S: Final = 5.0
"""Between two readings of the gauges of all models that are busy, whether anything happened or not."""
DISCOVER_S: Final = 60.0
"""Between two questions which models have jobs. In between events tell, and where they are not followed, presence."""
_NEVER: Final = float("-inf")


class _View(Protocol):
    """What shows queues."""

    @property
    def queues(self) -> QueueRows: ...


class WatchedQueues:
    """Reads the gauges of the models that may have jobs."""

    def __init__(self, view: _View, clock: Callable[[], float]) -> None:
        self._view = view
        self._clock = clock
        self.synced = asyncio.Event()
        """Set when the gauge of every model that has jobs has been asked for once."""
        self.dirty: set[str] = set()
        """Models whose gauge is to be read again."""
        self._unread: set[str] = set()
        self._metrics = QueueGauges()
        self._shown_at = _NEVER
        self._discovered_at = self._swept_at = _NEVER
        self._wake = asyncio.Event()

    def mark(self, model: str) -> None:
        """Something happened to a model's queue."""
        self.dirty.add(model)
        self._wake.set()

    def mark_all(self) -> None:
        """Anything may have happened to any queue."""
        self._discovered_at = self._swept_at = _NEVER
        self._wake.set()

    async def keep(self, gauges: Gauges) -> None:
        """Reads the gauges of models that something happened to, and of all that are busy every few seconds."""
        while True:
            try:
                await self._list(gauges)
            except SignalboxError as error:
                log.warning("live.gauges_failed", reason=error.public_message)
                self.mark_all()
                await asyncio.sleep(RETRY_S)
                continue
            await self._read(gauges)
            self.synced.set()
            if self._shown_at != self._swept_at:
                self._shown_at = self._swept_at
                self._metrics.show(self._view.queues.called(), self._clock())
            await asyncio.sleep(GAUGE_S)
            if not self.dirty:
                self._wake.clear()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(max(GAUGE_S, self._swept_at + SWEEP_S - self._clock())):
                        await self._wake.wait()

    def forget_metrics(self) -> None:
        """Nobody reads gauges any more: what was shown last would stand for ever."""
        self._metrics.show({}, self._clock())

    async def _list(self, gauges: Gauges) -> None:
        """Mark the models that may have jobs, when it is time to."""
        now = self._clock()
        if now >= self._discovered_at + DISCOVER_S:
            self._discovered_at = now
            self.dirty |= await gauges.queued(self._view.queues.registered)
        if now >= self._swept_at + SWEEP_S:
            self._swept_at = now
            accepted = await gauges.accepted()
            if not self._view.queues.is_counting:
                self._view.queues.arrived(accepted, now)
            self.dirty |= self._view.queues.busy() | self._unread

    async def _read(self, gauges: Gauges) -> None:
        """Read the gauges of what is marked. One that cannot be read waits for the next sweep and holds up no other."""
        marked, self.dirty = self.dirty, set()
        reason = ""
        for model in sorted(marked):
            try:
                reported = self._view.queues
                gauge = await gauges.read(
                    model, reported.workers(), self._clock(), is_attended=reported.is_attended(model)
                )
            except SignalboxError as error:
                self._unread.add(model)
                reason = error.public_message
            else:
                self._unread.discard(model)
                self._view.queues.gauge(model, gauge, self._clock())
        if reason:
            log.warning("live.gauges_failed", models=len(self._unread), reason=reason)
