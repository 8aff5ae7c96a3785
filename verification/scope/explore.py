"""Breadth-first through every state, and back again from the good ends: what cannot reach one is stuck."""

import time
from collections.abc import Iterable, Iterator

from verification.scope.frozen import digest
from verification.scope.graph import Found, Graph
from verification.scope.nodes import Machines
from verification.scope.steps import (
    FAULT_NAMES,
    OF_WHAT_IS_UNDER_WAY,
    Step,
    faults,
    orders,
    prompt_steps,
    slow_steps,
    taken,
)
from verification.scope.world import Violation, World


def explore(
    machines: Machines,
    *,
    workers: int,
    jobs: int,
    max_faults: int,
    names: frozenset[str] = FAULT_NAMES,
    max_states: int = 0,
    is_at_rest: bool = False,
    are_twins_compared: bool = False,
) -> Found[Step]:
    """Every state that ``max_faults`` faults of these ``names`` can lead to. max_states: stop there, 0 = never.
    is_at_rest: faults and slow steps come only when all that is prompt has come, in whatever order.
    are_twins_compared: whether states that are taken for one must have one future."""
    search = Search(World(machines, workers, jobs), max_faults, names, max_states)
    search.is_at_rest = is_at_rest
    if are_twins_compared:
        search.futures = {}
    return search.run()


class Search:
    """futures: of each key, where states are compared."""

    def __init__(self, start: World, max_faults: int, names: frozenset[str], max_states: int) -> None:
        self.start = start
        self.max_faults, self.names, self.max_states = max_faults, names, max_states
        self.is_at_rest = False
        self.graph = Graph[Step]()
        self.futures: dict[bytes, frozenset[bytes | str]] | None = None
        self.found = Found[Step]()

    def run(self) -> Found[Step]:
        began = time.process_time()
        level = [(self.meet(digest(self.start), self.start, -1, Step("")), self.start)]
        try:
            while level:
                self.found.depth += 1
                level = list(self.beyond(level))
                if self.max_states and len(self.graph) >= self.max_states:
                    self.found.is_cut_short = True
                    break
        except Violation:
            pass
        self.graph.end(self.found, self.max_faults)
        self.found.cpu_s = time.process_time() - began
        return self.found

    def meet(self, mark: bytes, world: World, parent: int, step: Step) -> int:
        """A new state."""
        return self.graph.meet(mark, parent, step, world.faults, is_goal=world.is_done)

    def beyond(self, level: Iterable[tuple[int, World]]) -> Iterator[tuple[int, World]]:
        """The new states one step further, and those that are met with fewer faults."""
        graph = self.graph
        for number, world in level:
            if world.is_done or world.faults > graph.spent[number]:
                continue
            is_new = graph.begin(number)
            steps = list(self.possible(world))
            for step, is_fault in steps:
                try:
                    after = taken(world, step)
                    mark = digest(after)
                    self.compare(mark, after)
                except Violation as violation:
                    self.found.broken = str(violation)
                    self.found.path = [*graph.path(number), step]
                    raise
                if not step.order:
                    steps += [(other, is_fault) for other in orders(step, after)]
                head = graph.known.get(mark)
                if head is None:
                    head = self.meet(mark, after, number, step)
                    yield head, after
                elif after.faults < graph.spent[head]:
                    graph.meet_again(head, number, step, after.faults)
                    yield head, after
                if not is_fault and is_new:
                    graph.note(number, head)

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
        is_early = self.is_at_rest and bool(prompt)
        if not is_early:
            for step in slow_steps(world):
                yield step, False
        if not prompt:
            yield Step("time_passes"), False
        if world.faults < self.max_faults:
            for step in faults(world):
                if step.name in self.names and not (is_early and step.name not in OF_WHAT_IS_UNDER_WAY):
                    yield step, True


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
