"""The protocol of lease, guard and flock keeps its laws, is the production machines' own, and broken ones are found."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests import depth
from verification.protocol import flock, jobs, steps
from verification.protocol.mirror import compare
from verification.protocol.search import explore
from verification.protocol.state import Hand, State, put
from verification.protocol.steps import ALL_KINDS
from verification.scope.nodes import Machines
from workers.guard.machine import GuardMachine

pytestmark = pytest.mark.proof


def test_two_faults_of_every_kind_in_every_mixture_keep_the_laws() -> None:
    found = explore(workers=3, jobs=2, faults=2)
    assert not found.broken, str(found)
    assert found.states > 35_000


def test_every_state_of_the_production_machines_is_one_of_the_protocol() -> None:
    kinds, at_least = depth.at(short=(frozenset({"kill", "queue"}), 100), full=(ALL_KINDS, 300))
    found = compare(Machines(is_kept=True), workers=2, jobs=1, faults=1, kinds=kinds)
    assert not found.strange, str(found)
    assert found.found > at_least


@pytest.mark.slow
def test_with_two_jobs_too() -> None:
    kinds = frozenset({"kill", "guard", "runner"})
    found = compare(Machines(is_kept=True), workers=2, jobs=2, faults=1, kinds=kinds)
    assert not found.strange, str(found)
    assert found.found > 200


class KeepsTheFlockOfTheDead(GuardMachine):
    """Says that it gave the flock back, and keeps it until the deadline of a runner that has died."""

    __slots__ = ()

    def _on_unlock(self, _: int) -> None:
        if not self.token:
            self._release_flock()
        self._do("tell", "unlocked")


def test_a_machine_that_goes_its_own_way_is_found() -> None:
    """It breaks no law and is not stuck: only beside the protocol it is strange."""
    machines = Machines(guard=KeepsTheFlockOfTheDead, is_kept=True)
    found = compare(machines, workers=2, jobs=1, faults=1, kinds=frozenset({"runner"}))
    assert found.strange


# -- broken protocols ------------------------------------------------------------------------------------


def frees_the_flock_first(state: State, number: int, *, is_asked: bool = False) -> State:
    dying = state.workers[number].runner in {"in", "out"}
    return put(state, number, guard="idle", runner="dying" if dying else "none", is_used=False)


def forgets_tokens(state: State, number: int) -> State:
    return state


def writes_without_comparing(state: State, number: int, hand: Hand) -> Iterator[State]:
    yield jobs.written(jobs.job_stored(state, hand.job, jobs.RECORD[hand.phase], hand.token), number, hand)


def finishes_what_was_claimed(state: State, number: int, hand: Hand) -> State:
    return jobs.finished(state, number, hand)


def hears_nothing(state: State, number: int) -> Iterator[State]:
    yield from ()


BROKEN: dict[str, tuple[object, str, Any, str]] = {
    "the flock freed before death": (flock, "ended", frees_the_flock_first, "two runners"),
    "tokens forgotten": (flock, "raised", forgets_tokens, "enters after"),
    "a job's record not compared": (jobs, "resolved", writes_without_comparing, "writes over token"),
    "an early end": (jobs, "written", finishes_what_was_claimed, "not ended"),
    "the guard's death not heard": (flock, "hears_of_its_guard", hears_nothing, "stuck"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_protocol_is_found(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    room, what, broken, law = BROKEN[name]
    was = getattr(room, what)
    monkeypatch.setattr(room, what, broken)
    for acts in ("ITS_OWN", "PROMPT"):
        replaced = tuple(broken if act is was else act for act in getattr(steps, acts))
        monkeypatch.setattr(steps, acts, replaced)
    found = explore(workers=2, jobs=2, faults=1)
    if not found.broken:
        found = explore(workers=2, jobs=2, faults=2)
    assert law in found.broken, str(found)
