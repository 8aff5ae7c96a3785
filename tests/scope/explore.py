"""Breadth-first through every state, and back again from the good ends: what cannot reach one is stuck."""

import time
from array import array
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tests.scope.frozen import digest
from tests.scope.nodes import Machines
from tests.scope.steps import Step, faults, prompt_steps, slow_steps, taken
from tests.scope.world import Violation, World


@dataclass
class Found:
    """What an exploration saw. path: to the first broken law, from the beginning."""

    states: int = 0
    edges: int = 0
    depth: int = 0
    seconds: float = 0.0
    by_faults: list[int] = field(default_factory=list)
    broken: str = ""
    path: list[Step] = field(default_factory=list)
    is_cut_short: bool = False

    def __str__(self) -> str:
        told = (
            f"{self.states:,} states, {self.edges:,} steps, depth {self.depth}, {self.seconds:.1f} s"
            f"; by faults {self.by_faults}"
        )
        if self.is_cut_short:
            told += "; CUT SHORT, not exhaustive"
        if not self.broken:
            return f"{told}; every law holds, no state is stuck"
        steps = "\n".join(f"  {number:3} {step}" for number, step in enumerate(self.path, 1))
        return f"{told}\nBROKEN: {self.broken}\nafter\n{steps}"


def explore(
    machines: Machines, *, workers: int, jobs: int, max_faults: int, max_states: int = 0
) -> Found:
    """Every state that ``max_faults`` faults can lead to. max_states: stop there, 0 = never."""
    return _Search(machines, workers, jobs, max_faults, max_states).run()


class _Search:
    """parents, steps: how each state was first reached. goals: where all jobs are done. back_*: edges
    that need no fault, for the way back."""

    def __init__(
        self, machines: Machines, workers: int, jobs: int, max_faults: int, max_states: int
    ) -> None:
        self.start = World(machines, workers, jobs)
        self.max_faults, self.max_states = max_faults, max_states
        self.known: dict[bytes, int] = {}
        self.parents, self.labels = array("l"), array("H")
        self.steps: dict[Step, int] = {}
        self.goals: list[int] = []
        self.tails, self.heads = array("l"), array("l")
        self.found = Found(by_faults=[0] * (max_faults + 1))

    def run(self) -> Found:
        began = time.monotonic()
        level = [(self.meet(self.start, -1, Step("")), self.start)]
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
        found.seconds = time.monotonic() - began
        return found

    def meet(self, world: World, parent: int, step: Step) -> int:
        """Number a new state."""
        number = len(self.known)
        self.known[digest(world)] = number
        self.note(world, parent, step)
        return number

    def note(self, world: World, parent: int, step: Step) -> None:
        number = len(self.parents)
        self.parents.append(parent)
        self.labels.append(self.steps.setdefault(step, len(self.steps)))
        self.found.by_faults[world.faults] += 1
        if world.is_done:
            self.goals.append(number)

    def beyond(self, level: Iterable[tuple[int, World]]) -> Iterator[tuple[int, World]]:
        """The new states one step further."""
        for number, world in level:
            if world.is_done:
                continue
            for step, is_fault in self.possible(world):
                try:
                    after = taken(world, step)
                except Violation as violation:
                    self.found.broken = str(violation)
                    self.found.path = [*self.path(number), step]
                    raise
                mark = digest(after)
                head = self.known.get(mark)
                if head is None:
                    head = self.known[mark] = len(self.parents)
                    self.note(after, number, step)
                    yield head, after
                if not is_fault:
                    self.tails.append(number)
                    self.heads.append(head)

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
