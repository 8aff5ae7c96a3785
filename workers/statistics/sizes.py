"""What model versions take in memory: as measured by their last load here, before that as stored on disk."""

from typing import Final

from signalbox.wire.modeldocs import Version
from workers.statistics.lru import Lru

MIN_SIZE_BYTES: Final = 1024 * 1024
"""Assumed for a version whose size the catalog does not know."""
_MOST_REMEMBERED: Final = 4096


class Sizes:
    """Measured sizes, by digest, for the life of the process: versions are immutable."""

    def __init__(self) -> None:
        self._measured: Lru[str, int] = Lru(_MOST_REMEMBERED)

    def expected(self, model: str, version: Version) -> int:
        """Bytes to make room for before a load."""
        measured = self._measured.get(_identity(model, version))
        return measured if measured is not None else max(MIN_SIZE_BYTES, version.size_bytes)

    def measured(self, model: str, version: Version, size_bytes: int) -> None:
        """A load took so much."""
        self._measured[_identity(model, version)] = size_bytes


def _identity(model: str, version: Version) -> str:
    return version.digest or f"{model}/{version.version}"
