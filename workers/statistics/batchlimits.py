"""Batch limits: how many rows of one shape fit the device's memory in one run of a version. Pure: no clock, no I/O.

A limit is of the jobs that may share a batch: rows of another shape take other memory, so one caller's large
rows leave the others' batches as they are. A job that runs alone has none.
A run that used the memory up halves the limit; what failed is run again in halves at once. The limit
grows back by a quarter after enough full runs, and each time that fails it must hold for twice as many runs.
"""

from dataclasses import dataclass
from typing import Final

from workers.statistics.lru import Lru

PATIENCE: Final = 64
"""Full runs in a row before the limit is tried a little higher."""
LONGEST_PATIENCE: Final = 8192
_MOST_KNOWN: Final = 4096

Key = tuple[str, int, str]
"""Model name, version and ``batch_key``."""


@dataclass(slots=True)
class BatchLimit:
    """rows: most that may run together. failed_at: fewest that did not fit. full: full runs since the last change."""

    rows: int
    failed_at: int
    patience: int = PATIENCE
    full: int = 0


class BatchLimits:
    """The batch limits of one device. Rows without one have never used the memory up."""

    def __init__(self) -> None:
        self._known: Lru[Key, BatchLimit] = Lru(_MOST_KNOWN)

    def __len__(self) -> int:
        return len(self._known)

    def rows(self, key: Key) -> int:
        """Most rows one run may have; 0 = no limit is known."""
        known = self._known.get(key)
        return known.rows if known is not None else 0

    def lowest(self) -> dict[tuple[str, int], int]:
        """The lowest limit of each model version that has one."""
        found: dict[tuple[str, int], int] = {}
        for (model, version, _), known in self._known.items():
            found[model, version] = min(known.rows, found.get((model, version), known.rows))
        return found

    def failed(self, key: Key, rows: int) -> None:
        """Note that a run of ``rows`` rows used the memory up. One row, or a job that runs alone, sets no limit."""
        if rows < 2 or not key[2]:
            return
        known = self._known.get(key)
        if known is None:
            self._known[key] = BatchLimit(rows // 2, rows)
            return
        known.patience = min(known.patience * 2, LONGEST_PATIENCE)
        known.rows = min(known.rows, rows // 2)
        known.failed_at = min(known.failed_at, rows)
        known.full = 0

    def fitted(self, key: Key, rows: int) -> None:
        """Note that a run of ``rows`` rows succeeded."""
        known = self._known.get(key)
        if known is None or rows < known.rows:
            return
        known.full += 1
        if known.full < known.patience:
            return
        known.full = 0
        known.rows += max(1, known.rows // 4)
        if known.rows >= 2 * known.failed_at:  # far beyond what once did not fit
            self._known.pop(key, None)
