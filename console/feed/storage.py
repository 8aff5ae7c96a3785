"""The figure of the health strip that says how full NATS is."""

from typing import Final

from console.board.rows import Figure
from signalbox.bus import storage
from signalbox.bus.client import Bus
from signalbox.bus.storage import NEARLY_FULL
from signalbox.program import log
from signalbox.program.errors import SignalboxError

EVERY_S: Final = 30.0


class StorageFigure:
    """Asks NATS at most every :data:`EVERY_S`; in between the figure stays."""

    def __init__(self) -> None:
        self._asked_at = float("-inf")
        self._row = _UNKNOWN

    async def read(self, bus: Bus, now: float) -> Figure:
        """The row as of ``now`` (seconds of any clock that goes on)."""
        if now >= self._asked_at + EVERY_S:
            self._asked_at = now
            self._row = await _row(bus)
        return self._row


async def _row(bus: Bus) -> Figure:
    try:
        found = await storage.read(bus)
    except SignalboxError as error:
        log.warning("live.storage_failed", reason=error.public_message)
        return _UNKNOWN
    if not found:
        return Figure("Storage", "ok", "no limit")
    fullest = found[0]
    if fullest.share < NEARLY_FULL:
        return Figure("Storage", "ok", f"{fullest.share:.0%}")
    return Figure("Storage", "late", f"{fullest.share:.0%}", f"{fullest.stream} is nearly full")


_UNKNOWN: Final = Figure("Storage", "unknown", "?")
