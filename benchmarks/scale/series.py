"""Numbers over time as steps: what is wanted of a fleet, and what it has. Pure."""

from collections.abc import Iterator
from typing import NamedTuple


class Change(NamedTuple):
    """A number is another one from an instant on (seconds of any clock)."""

    at_s: float
    before: int
    after: int


class Series:
    """A number over time; it begins with ``first``."""

    def __init__(self, first: int = 0) -> None:
        self._first = self.now = first
        self._steps: list[tuple[float, int]] = []

    def note(self, at_s: float, number: int) -> None:
        """The number at an instant that is not before the last one."""
        if number != self.now:
            self._steps.append((at_s, number))
            self.now = number

    def changes(self) -> Iterator[Change]:
        """All of them, in order."""
        before = self._first
        for at_s, after in self._steps:
            yield Change(at_s, before, after)
            before = after

    @property
    def most(self) -> int:
        """The largest number so far."""
        return max((number for _, number in self._steps), default=self._first)

    def reversals(self, *, up_s: float, down_s: float) -> list[Change]:
        """Changes that take the one before them back too soon: a growth within ``up_s`` of a shrinking, a shrinking
        within ``down_s`` of a growth."""
        found, last = [], None
        for change in self.changes():
            if last is not None and (change.after > change.before) != (last.after > last.before):
                window_s = up_s if change.after > change.before else down_s
                if change.at_s - last.at_s < window_s:
                    found.append(change)
            last = change
        return found

    def words(self, since_s: float) -> str:
        """``0, 1 at 0.2 s, 4 at 1.3 s``."""
        return ", ".join([str(self._first), *(f"{number} at {at_s - since_s:.1f} s" for at_s, number in self._steps)])
