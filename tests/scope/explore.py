"""Breadth-first through every state, and back again from the good ends: what cannot reach one is stuck."""

import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.scope.frozen import digest
from tests.scope.nodes import Machines
from tests.scope.steps import FAULT_NAMES, Step, faults, orders, prompt_steps, slow_steps, taken
from tests.scope.world import Violation, World


@dataclass
class Found:
    """What an exploration saw. cpu_s: seconds of one core. by_faults: how many states need so many faults, and not
    fewer. path: to the first broken law, from the beginning."""

    states: int = 0
    edges: int = 0
    depth: int = 0
    cpu_s: float = 0.0
    by_faults: list[int] = field(default_factory=list)
    broken: str = ""
    path: list[Step] = field(default_factory=list)
    is_cut_short: bool = False

    def __str__(self) -> str:
        told = (
            f"{self.states:,} states, {self.edges:,} steps, depth {self.depth}, {self.cpu_s:.1f} s of CPU"
            f"; by faults {self.by_faults}"
        )
        if self.is_cut_short:
            told += "; CUT SHORT, not exhaustive"
        elif 0 in self.by_faults:
            told += "; closed: more faults of these kinds lead nowhere else"
        if not self.broken:
            return f"{told}; every law holds, no state is stuck"
        return f"{told}\n{told_path(self.broken, self.path)}"


def told_path(broken: str, path: Iterable[Step]) -> str:
    """A broken law and the way to it."""
    steps = "\n".join(f"  {number:3} {step}" for number, step in enumerate(path, 1))
    return f"BROKEN: {broken}\nafter\n{steps}"


def explore(
    machines: Machines, *, workers: int, jobs: int, max_faults: int,
    names: frozenset[str] = FAULT_NAMES, max_states: int = 0, are_twins_compared: bool = False,
) -> Found:  # fmt: skip
    """Every state that ``max_faults`` faults of these ``names`` can lead to. max_states: stop there, 0 = never.
    are_twins_compared: whether states that are taken for one must have one future."""
    search = _Search(World(machines, workers, jobs), max_faults, names, max_states)
    if are_twins_compared:
        search.futures = {}
    return search.run()


class _Search:
    """parents, labels: how each state was reached with the fewest faults so far, which ``spent`` counts.
    goals: where all jobs are done. tails, heads: steps that are no faults, for the way back."""

    def __init__(
        self, start: World, max_faults: int, names: frozenset[str], max_states: int
    ) -> None:
        self.start = start
        self.max_faults, self.names, self.max_states = max_faults, names, max_states
        self.known: dict[bytes, int] = {}
        self.parents, self.labels, self.spent = array("l"), array("H"), bytearray()
        self.are_steps_noted = bytearray()
        self.steps: dict[Step, int] = {}
        self.goals: list[int] = []
        self.tails, self.heads = array("l"), array("l")
        self.futures: dict[bytes, frozenset[bytes | str]] | None = None
        self.found = Found()

    def run(self) -> Found:
        began = time.process_time()
        level = [(self.meet(digest(self.start), self.start, -1, Step("")), self.start)]
        try:
            while level:
                self.found.depth += 1
                level = list(self.beyond(level))
                if self.max_states and len(self.known) >= self.max_states:
                    self.found.is_cut_short = True
                    break
        except Violation:
            pass
        found = self.found
        if not found.broken and not found.is_cut_short:
            self.find_stuck()
        found.states, found.edges = len(self.known), len(self.tails)
        found.by_faults = [self.spent.count(faults) for faults in range(self.max_faults + 1)]
        found.cpu_s = time.process_time() - began
        return found

    def meet(self, mark: bytes, world: World, parent: int, step: Step) -> int:
        """Number a new state."""
        number = self.known[mark] = len(self.parents)
        self.parents.append(parent)
        self.labels.append(self.steps.setdefault(step, len(self.steps)))
        self.spent.append(world.faults)
        self.are_steps_noted.append(0)
        if world.is_done:
            self.goals.append(number)
        return number

    def meet_again(self, number: int, world: World, parent: int, step: Step) -> None:
        """A known state, by a way with fewer faults: more of them may follow."""
        self.parents[number] = parent
        self.labels[number] = self.steps.setdefault(step, len(self.steps))
        self.spent[number] = world.faults

    def beyond(self, level: Iterable[tuple[int, World]]) -> Iterator[tuple[int, World]]:
        """The new states one step further, and those that are met with fewer faults."""
        for number, world in level:
            if world.is_done or world.faults > self.spent[number]:
                continue
            is_noted, self.are_steps_noted[number] = self.are_steps_noted[number], 1
            steps = list(self.possible(world))
            for step, is_fault in steps:
                try:
                    after = taken(world, step)
                    mark = digest(after)
                    self.compare(mark, after)
                except Violation as violation:
                    self.found.broken = str(violation)
                    self.found.path = [*self.path(number), step]
                    raise
                if not step.order:
                    steps += [(other, is_fault) for other in orders(step, after)]
                head = self.known.get(mark)
                if head is None:
                    head = self.meet(mark, after, number, step)
                    yield head, after
                elif after.faults < self.spent[head]:
                    self.meet_again(head, after, number, step)
                    yield head, after
                if not is_fault and not is_noted:
                    self.tails.append(number)
                    self.heads.append(head)

    def compare(self, mark: bytes, world: World) -> None:
        """States of one key must lead to the same keys, by whatever step and any fault, or break the same law."""
        if self.futures is None or world.is_done:
            return
        steps = [step for step, _ in self.possible(world)]
        steps += [step for step in faults(world) if step.name in self.names and step not in steps]
        future = frozenset(mark for step in steps for mark in _marks_after(world, step))
        if self.futures.setdefault(mark, future) != future:
            raise Violation("two states have the same key and another future")

    def possible(self, world: World) -> Iterator[tuple[Step, bool]]:
        prompt = list(prompt_steps(world))
        for step in prompt:
            yield step, False
        for step in slow_steps(world):
            yield step, False
        if not prompt:
            yield Step("time_passes"), False
        if world.faults < self.max_faults:
            for step in faults(world):
                if step.name in self.names:
                    yield step, True

    def path(self, number: int) -> list[Step]:
        """From the beginning to a state."""
        names = list(self.steps)
        path = []
        while self.parents[number] >= 0:
            path.append(names[self.labels[number]])
            number = self.parents[number]
        return path[::-1]

    def find_stuck(self) -> None:
        """S-liveness: from every state, without further faults, some way leads to all jobs' ends."""
        total = len(self.parents)
        starts = array("l", bytes(8 * (total + 1)))
        for head in self.heads:
            starts[head + 1] += 1
        for index in range(total):
            starts[index + 1] += starts[index]
        places, tails = array("l", starts), array("l", bytes(8 * len(self.tails)))
        for tail, head in zip(self.tails, self.heads, strict=True):
            tails[places[head]] = tail
            places[head] += 1
        is_good = bytearray(total)
        stack = list(self.goals)
        for goal in stack:
            is_good[goal] = 1
        while stack:
            head = stack.pop()
            for tail in tails[starts[head] : starts[head + 1]]:
                if not is_good[tail]:
                    is_good[tail] = 1
                    stack.append(tail)
        stuck = is_good.find(0)
        if stuck >= 0:
            self.found.broken = f"{is_good.count(0)} states are stuck: their jobs never end"
            self.found.path = self.path(stuck)


def _marks_after(world: World, step: Step) -> Iterator[bytes | str]:
    try:
        after = taken(world, step)
    except Violation as violation:
        yield type(violation).__name__
        return
    yield digest(after)
    if not step.order:
        for other in orders(step, after):
            yield from _marks_after(world, other)
