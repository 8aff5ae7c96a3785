"""When versions were used last, and before that, also of those that have left the memory meanwhile. No I/O."""

from dataclasses import dataclass
from typing import Final

from signalbox.wire.eviction import BURST_S
from workers.statistics.lru import Lru

_MOST_REMEMBERED: Final = 4096
Key = tuple[str, int]
"""Model name and version."""


@dataclass(slots=True)
class Use:
    """last_s: of the newest use. burst_s: when its burst began. before_s: when the burst before began, None = none."""

    last_s: float
    burst_s: float
    before_s: float | None = None


class Uses:
    """Uses by version; a model that comes back was asked for before."""

    def __init__(self) -> None:
        self._uses: Lru[Key, Use] = Lru(_MOST_REMEMBERED)

    def used(self, key: Key, now_s: float) -> None:
        """A run began for somebody."""
        known = self._uses.get(key)
        if known is None:
            self._uses[key] = Use(now_s, now_s)
            return
        self._uses.move_to_end(key)
        known.last_s = now_s
        if now_s - known.burst_s >= BURST_S:
            known.burst_s, known.before_s = now_s, known.burst_s

    def ended(self, key: Key, now_s: float) -> None:
        """A run has ended: no use of its own."""
        if (known := self._uses.get(key)) is not None:
            known.last_s = now_s

    def of(self, key: Key) -> Use | None:
        """The uses of a version, None where none is remembered."""
        return self._uses.get(key)
