"""What a long run shows of a stack, turn by turn, and whether the last turn was as the first. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

MARGIN: Final = 0.25
"""By so much of the first turn's figure a later one may be worse."""
GRAINS: Final[Mapping[str, float]] = {
    "stream": 4 * 2**20,
    "disk": 64 * 2**20,
    "rows": 2_000,
    "database": 16 * 2**20,
    "rss": 24 * 2**20,
    "files": 8,
}
"""Of each kind of figure: what is no difference. A block of a stream, pages of a database, connections now and then."""
_OF_JOBS: Final = frozenset({"stream", "disk", "rows", "database"})
"""What is kept for each job: a turn that was faster may have more of it."""


class Turn(NamedTuple):
    """One turn. rates: good answers a second, by what was asked. most: the highest of each figure, ``kind name``."""

    rates: Mapping[str, float]
    most: Mapping[str, float]


def highest(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure the highest of all samples."""
    found: dict[str, float] = {}
    for sample in samples:
        for name, value in sample.items():
            found[name] = max(value, found.get(name, value))
    return found


def worse(first: Turn, last: Turn, margin: float = MARGIN) -> Iterator[str]:
    """What is worse at the end, one sentence each: slower, or more than before. What is gone is worse too."""
    for name, rate in first.rates.items():
        now = last.rates.get(name, 0.0)
        if now < rate * (1 - margin):
            yield f"{name}: {now:.0f}/s, {rate:.0f}/s in the first turn"
    faster = max(1.0, sum(last.rates.values()) / max(1.0, sum(first.rates.values())))
    for name, value in first.most.items():
        kind = name.split()[0]
        now = last.most.get(name, value)
        if now > value * (faster if kind in _OF_JOBS else 1.0) * (1 + margin) + GRAINS[kind]:
            yield f"{name}: {shown(kind, now)}, {shown(kind, value)} in the first turn"


def shown(kind: str, value: float) -> str:
    """For people."""
    return f"{value:,.0f}" if kind in {"rows", "files"} else f"{value / 2**20:.1f} MiB"
