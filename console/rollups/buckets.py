"""Histograms of milliseconds with fixed, log-spaced buckets: those of any rows can be merged and read as percentiles.

Four buckets to each doubling, from an eighth of a millisecond to more than eight days, so a percentile is at most 9 %
off. A histogram has the buckets that are not empty, by number.
"""

from collections.abc import Iterable, Mapping
from math import ceil, log2
from typing import Any, Final

Histogram = dict[int, int]
"""How many by the number of their bucket."""

_PER_DOUBLING: Final = 4
_FIRST_MS: Final = 0.125
"""All that took no longer is in bucket 0."""
_OFFSET: Final = _PER_DOUBLING * log2(_FIRST_MS)
LAST: Final = 132
"""It has no end."""


def bucket(ms: float) -> int:
    """The number of the bucket that these milliseconds are in."""
    return min(LAST, ceil(_PER_DOUBLING * log2(ms) - _OFFSET)) if ms > _FIRST_MS else 0


def merge(into: Histogram, other: Mapping[Any, int]) -> None:
    """Add another's numbers to ``into``; one that was kept as JSON has texts for numbers."""
    for number, count in other.items():
        key = int(number)
        into[key] = into.get(key, 0) + count


def percentiles(histogram: Histogram, shares: Iterable[float]) -> list[float | None]:
    """For each share (of one) the milliseconds that as many took at most; None of an empty histogram."""
    return [_percentile(histogram, share) for share in shares]


def _percentile(histogram: Histogram, share: float) -> float | None:
    left = share * sum(histogram.values())
    for number in sorted(histogram):
        left -= histogram[number]
        if left <= 1e-9:
            # The middle of the bucket, as ratios go.
            return float(_FIRST_MS * 2 ** ((number - 0.5) / _PER_DOUBLING))
    return None
