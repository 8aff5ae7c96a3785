"""How far the fetch of a version is, and how fast: for presence. No I/O."""

from collections.abc import Callable
from math import exp
from typing import Final

from signalbox.program.errors import Unavailable

_WINDOW_S: Final = 1.0
"""The rate is measured at least for so long."""
_MEMORY_S: Final = 3.0
"""Of the rate: what was before a few of these counts no more."""


class Progress:
    """One try. size_bytes: of all files, 0 = not known yet. received_bytes: in this try. clock: monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began_s = self._window_began_s = self._rate = 0.0
        self._is_measured = self.is_forsaken = False
        self._kept_bytes = self._window_bytes = self.received_bytes = self.size_bytes = 0

    def begin(self, size_bytes: int, kept_bytes: int) -> None:
        """The files begin to come. kept_bytes: those that are here of an earlier try."""
        self._began_s = self._window_began_s = self._clock()
        self._is_measured = False
        self._kept_bytes, self.size_bytes = kept_bytes, size_bytes
        self.received_bytes = self._window_bytes = 0

    def received(self, count: int) -> None:
        """So many bytes have come. Raises :class:`Unavailable` after :meth:`forsake`: it ends the try."""
        if self.is_forsaken:
            raise Unavailable("The catalog has the version no more.")
        self.received_bytes += count
        self._window_bytes += count
        if self._clock() - self._window_began_s >= _WINDOW_S:
            self._rate = self.per_s
            self._is_measured = True
            self._window_began_s, self._window_bytes = self._clock(), 0

    def forsake(self) -> None:
        """Have no more of it come."""
        self.is_forsaken = True

    def stop(self) -> None:
        """No more come: the try has failed. What has come is kept."""
        self._kept_bytes += self.received_bytes
        self.received_bytes = 0

    @property
    def fetched_bytes(self) -> int:
        """Bytes that are here."""
        return min(self.size_bytes, self._kept_bytes + self.received_bytes)

    @property
    def seconds(self) -> float:
        """For how long they have been coming, 0 = they do not yet."""
        return self._clock() - self._began_s if self.size_bytes else 0.0

    @property
    def per_s(self) -> float:
        """Bytes a second in the last few seconds, 0 = none, or not known yet."""
        lasted_s = self._clock() - self._window_began_s
        if not self.received_bytes:
            return 0.0
        if lasted_s < _WINDOW_S:
            return self._rate if self._is_measured else 0.0
        latest = self._window_bytes / lasted_s
        share = 1.0 - exp(-lasted_s / _MEMORY_S) if self._is_measured else 1.0
        return self._rate + share * (latest - self._rate)
