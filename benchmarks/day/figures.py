"""Judges the figures of a long run, turn by turn: whether each stays level. Pure."""

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MARGIN: Final = 0.25
"""Share of the first turn's figure by which the last may be worse."""
RATE: Final = "rate"
GRAINS: Final[Mapping[str, float]] = {
    RATE: 0,
    "stream": 4 * 2**20,
    "disk": 64 * 2**20,
    "rows": 2_000,
    "database": 16 * 2**20,
    "memory": 24 * 2**20,
    "files": 8,
}
"""For each kind of figure, the largest change that is noise: a block of a stream, database pages, a few connections."""
_OF_JOBS: Final = frozenset({"stream", "disk", "rows", "database"})
"""What is kept for each job: a turn that was faster may have more of it."""


class Turn(NamedTuple):
    """One turn. rates: good answers a second, by what was asked. most: the highest of each figure, ``kind name``."""

    rates: Mapping[str, float]
    most: Mapping[str, float]


class Verdict(NamedTuple):
    """One figure over all turns. values: of each turn that has it."""

    figure: str
    values: tuple[float, ...]
    is_level: bool

    @property
    def change(self) -> float:
        """From a turn to the next, on average."""
        return (self.values[-1] - self.values[0]) / max(1, len(self.values) - 1)

    @property
    def word(self) -> str:
        """The verdict for people."""
        kind = self.figure.split()[0]
        amount = shown(kind, abs(self.change))
        if self.is_level:
            return f"level ({'-' if self.change < 0 else '+'}{amount} a turn)"
        return f"{'falls' if self.change < 0 else 'grows'} by {amount} a turn"


def highest(samples: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """Of each figure the highest of all samples."""
    found: dict[str, float] = {}
    for sample in samples:
        for name, value in sample.items():
            found[name] = max(value, found.get(name, value))
    return found


def verdicts(turns: Sequence[Turn], margin: float = MARGIN) -> list[Verdict]:
    """One for each figure of any turn, the rates first.

    A figure is level unless the last turn is worse than the first by the margin and the grain: slower, or larger.
    What is kept for each job may grow as the rate does. A rate that is gone is zero.
    """
    every = [{**{f"{RATE} {name}": rate for name, rate in turn.rates.items()}, **turn.most} for turn in turns]
    names = dict.fromkeys(name for figures in every for name in figures)
    faster = max(1.0, sum(turns[-1].rates.values()) / max(1.0, sum(turns[0].rates.values())))
    found = []
    for name in sorted(names, key=lambda name: not name.startswith(RATE)):
        kind = name.split()[0]
        if kind == RATE:
            values = tuple(figures.get(name, 0.0) for figures in every)
            is_level = values[-1] >= values[0] * (1 - margin)
        else:
            values = tuple(figures[name] for figures in every if name in figures)
            allowed = values[0] * (faster if kind in _OF_JOBS else 1.0)
            is_level = values[-1] <= allowed * (1 + margin) + GRAINS[kind]
        found.append(Verdict(name, values, is_level))
    return found


def table(found: Sequence[Verdict]) -> str:
    """A line for each figure: its first and last value and its verdict. One that stays below its grain has none."""
    seen = [one for one in found if max(one.values) > GRAINS[one.figure.split()[0]]]
    width = max(len(one.figure) for one in seen)
    lines = []
    for one in seen:
        kind = one.figure.split()[0]
        first, last = (shown(kind, value) for value in (one.values[0], one.values[-1]))
        lines.append(f"  {one.figure:<{width}}  {first:>12} -> {last:>12}  {one.word}")
    return "\n".join(lines)


def shown(kind: str, value: float) -> str:
    """For people."""
    if kind == RATE:
        return f"{value:.1f}/s"
    return f"{value:,.0f}" if kind in {"rows", "files"} else f"{value / 2**20:.1f} MiB"
