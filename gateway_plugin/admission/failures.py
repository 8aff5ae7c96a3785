"""Counts failures by name (an address, a key's public id), to limit the guessing of keys.

Kept in this process: it holds also when the front's Redis is away. A window of a minute per name, a bounded
number of names; the ones failing least recently are forgotten first.
"""

from collections import OrderedDict
from collections.abc import Callable
from typing import Final

WINDOW_S: Final = 60.0
_MOST_NAMES: Final = 10_000


class Failures:
    """limit: failures of one name within ``WINDOW_S`` after which it is exhausted. monotonic: seconds."""

    def __init__(self, *, limit: int, monotonic: Callable[[], float]) -> None:
        self._limit = limit
        self._monotonic = monotonic
        self._windows: OrderedDict[str, tuple[float, int]] = OrderedDict()

    def count(self, name: str) -> None:
        """Count one failure of ``name``. An empty name is not counted."""
        if not name:
            return
        now = self._monotonic()
        since, number = self._windows.pop(name, (now, 0))
        if now - since >= WINDOW_S:
            since, number = now, 0
        self._windows[name] = (since, number + 1)
        if len(self._windows) > _MOST_NAMES:
            self._windows.popitem(last=False)

    def wait_s(self, name: str) -> float:
        """Seconds until this name may fail again; 0 = now."""
        since, number = self._windows.get(name, (0.0, 0))
        if number < self._limit:
            return 0.0
        return max(0.0, since + WINDOW_S - self._monotonic())
