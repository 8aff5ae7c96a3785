"""What a breadth-first search has met: states by number, the way to each, and whether every one can still end well."""

from array import array
from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Generic, TypeVar

S = TypeVar("S", bound=Hashable)


@dataclass
class Found(Generic[S]):
    """What an exploration saw. cpu_s: seconds of one core. by_faults: how many states need so many faults, and not
    fewer. path: to the first broken law, from the beginning."""

    states: int = 0
    edges: int = 0
    depth: int = 0
    cpu_s: float = 0.0
    by_faults: list[int] = field(default_factory=list)
    broken: str = ""
    path: list[S] = field(default_factory=list)
    is_cut_short: bool = False

    def __str__(self) -> str:
        reported = (
            f"{self.states:,} states, {self.edges:,} steps, depth {self.depth}, {self.cpu_s:.1f} s of CPU"
            f"; by faults {self.by_faults}"
        )
        if self.is_cut_short:
            reported += "; CUT SHORT, not exhaustive"
        elif 0 in self.by_faults:
            reported += "; closed: more faults of these kinds lead nowhere else"
        if not self.broken:
            return f"{reported}; every law holds, no state is stuck"
        return f"{reported}\n{report_path(self.broken, self.path)}"


def report_path(broken: str, path: Iterable[object]) -> str:
    """A broken law and the way to it."""
    steps = "\n".join(f"  {number:3} {step}" for number, step in enumerate(path, 1))
    return f"BROKEN: {broken}\nafter\n{steps}"


class Graph(Generic[S]):
    """States have keys, and get numbers as they are met. spent: faults on the way with the fewest. Steps that are no
    faults are noted for the way back."""

    def __init__(self) -> None:
        self.known: dict[bytes, int] = {}
        self.spent = bytearray()
        self._parents, self._labels = array("l"), array("H")
        self._steps: dict[S, int] = {}
        self._goals = array("l")
        self._tails, self._heads = array("I"), array("I")
        self._are_steps_noted = bytearray()

    def __len__(self) -> int:
        return len(self.known)

    @property
    def edges(self) -> int:
        """Steps that are no faults."""
        return len(self._tails)

    def meet(self, key: bytes, parent: int, step: S, faults: int, *, is_goal: bool) -> int:
        """Number a new state."""
        number = self.known[key] = len(self._parents)
        self._parents.append(parent)
        self._labels.append(self._steps.setdefault(step, len(self._steps)))
        self.spent.append(faults)
        self._are_steps_noted.append(0)
        if is_goal:
            self._goals.append(number)
        return number

    def meet_again(self, number: int, parent: int, step: S, faults: int) -> None:
        """A known state, by a way with fewer faults: more of them may follow."""
        self._parents[number] = parent
        self._labels[number] = self._steps.setdefault(step, len(self._steps))
        self.spent[number] = faults

    def begin(self, number: int) -> bool:
        """Whether its steps are to be noted: not those that have been."""
        was, self._are_steps_noted[number] = self._are_steps_noted[number], 1
        return not was

    def note(self, tail: int, head: int) -> None:
        """A step that is no fault."""
        self._tails.append(tail)
        self._heads.append(head)

    def path(self, number: int) -> list[S]:
        """From the beginning to a state."""
        names = list(self._steps)
        path = []
        while self._parents[number] >= 0:
            path.append(names[self._labels[number]])
            number = self._parents[number]
        return path[::-1]

    def by_faults(self, most: int) -> list[int]:
        """How many states need 0, 1, 2... faults."""
        return [self.spent.count(faults) for faults in range(most + 1)]

    def stuck(self) -> Iterator[int]:
        """States from which no way leads to a goal without further faults."""
        total = len(self._parents)
        starts = array("L", bytes(8 * (total + 1)))
        for head in self._heads:
            starts[head + 1] += 1
        for index in range(total):
            starts[index + 1] += starts[index]
        places, tails = array("L", starts), array("I", bytes(4 * len(self._tails)))
        for tail, head in zip(self._tails, self._heads, strict=True):
            tails[places[head]] = tail
            places[head] += 1
        is_good = bytearray(total)
        stack = list(self._goals)
        for goal in stack:
            is_good[goal] = 1
        while stack:
            head = stack.pop()
            for tail in tails[starts[head] : starts[head + 1]]:
                if not is_good[tail]:
                    is_good[tail] = 1
                    stack.append(tail)
        number = is_good.find(0)
        while number >= 0:
            yield number
            number = is_good.find(0, number + 1)

    def end(self, found: Found[S], faults: int) -> None:
        """Fill in what was found: how much, and what is stuck."""
        if not found.broken and not found.is_cut_short:
            stuck = list(self.stuck())
            if stuck:
                found.broken = f"{len(stuck)} states are stuck: their jobs never end"
                found.path = self.path(stuck[0])
        found.states, found.edges = len(self), self.edges
        found.by_faults = self.by_faults(faults)
