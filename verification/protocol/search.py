"""Breadth-first through every state of the protocol."""

import time
from array import array
from collections.abc import Iterable, Iterator

from verification.graph import Found, Graph
from verification.protocol.state import State, Violation, Worker, canonical, start
from verification.protocol.steps import ALL_KINDS, Explored, Step, at_rest, check


def explore(
    *, workers: int, jobs: int, faults: int, kinds: frozenset[str] = ALL_KINDS, is_at_rest: bool = True
) -> Found[Step]:
    """Every state that so many faults of these kinds can lead to."""
    return Search(Explored.of(kinds, is_at_rest=is_at_rest), faults).run(start(workers, jobs))


class Search:
    """One exploration. A state is known by its parts: each worker and each rest that was ever met has a number."""

    def __init__(self, explored: Explored, faults: int) -> None:
        self.explored, self.faults = explored, faults
        self.graph = Graph[Step]()
        self.found = Found[Step]()
        self._quiet: set[Worker] = set()
        self._parts: dict[object, int] = {}

    def run(self, first: State) -> Found[Step]:
        began = time.process_time()
        first = self.settle(first)
        level = [(self.meet(self.key(first), first, -1, Step(""), 0), first)]
        try:
            while level:
                self.found.depth += 1
                level = list(self.beyond(level))
        except Violation:
            pass
        self.graph.end(self.found, self.faults)
        self.found.cpu_s = time.process_time() - began
        return self.found

    def settle(self, state: State) -> State:
        if self.explored.is_at_rest:
            state = at_rest(state, self._quiet)
        return canonical(state)

    def meet(self, key: bytes, state: State, parent: int, step: Step, faults: int) -> int:
        """A new state."""
        return self.graph.meet(key, parent, step, faults, is_goal=state.is_done)

    def key(self, state: State) -> bytes:
        """The numbers of its parts."""
        parts = self._parts
        rest = state._replace(workers=())
        return array("I", [parts.setdefault(one, len(parts)) for one in (rest, *state.workers)]).tobytes()

    def beyond(self, level: Iterable[tuple[int, State]]) -> Iterator[tuple[int, State]]:
        """The new states one step further, and those that are met with fewer faults."""
        graph = self.graph
        for number, state in level:
            if state.is_done:
                continue
            is_new = graph.begin(number)
            for step, is_fault, after in self.steps_from(number, state):
                key, spent = self.key(after), graph.spent[number] + is_fault
                head = graph.known.get(key)
                if head is None:
                    head = self.meet(key, after, number, step, spent)
                    yield head, after
                elif spent < graph.spent[head]:
                    graph.meet_again(head, number, step, spent)
                    yield head, after
                if not is_fault and is_new:
                    graph.note(number, head)

    def steps_from(self, number: int, state: State) -> Iterator[tuple[Step, bool, State]]:
        """With what follows at once. Raises :class:`Violation` and notes the way to it."""
        may_fail = self.graph.spent[number] < self.faults
        try:
            for step, is_fault, after in self.explored.after(state, may_fail=may_fail):
                try:
                    check(after)
                    settled = self.settle(after)
                except Violation as violation:
                    raise Violation(f"{violation}, when {step}") from None
                yield step, is_fault, settled
        except Violation as violation:
            self.found.broken, self.found.path = str(violation), self.graph.path(number)
            raise
