"""Bytes a second of what comes in pieces of any size. No I/O."""

from typing import Final

SHARE: Final = 0.2
"""Weight of the newest piece in the moving averages."""


class ByteRate:
    """The mean of pieces, each counted by what it took: what is small, and has mostly waited, says little."""

    __slots__ = ("_bytes", "_seconds")

    def __init__(self) -> None:
        self._bytes = self._seconds = 0.0

    def measured(self, size_bytes: int, seconds: float) -> None:
        """A piece took so long."""
        share = SHARE if self._seconds else 1.0
        self._bytes += share * (size_bytes - self._bytes)
        self._seconds += share * (seconds - self._seconds)

    @property
    def per_s(self) -> float:
        """Bytes a second, 0 = not known yet."""
        return float(f"{self._bytes / self._seconds:.3g}") if self._seconds else 0.0
