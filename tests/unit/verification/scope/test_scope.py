"""Every state of a small scope keeps the laws, and broken machines do not get away with it."""

from typing import Any

import pytest

from signalbox.wire.workerdocs import Lease as Record
from tests import depth
from verification.scope import frozen
from verification.scope.explore import explore
from verification.scope.nodes import Machines
from verification.scope.steps import KINDS, faults_of
from verification.scope.walk import walk_many
from workers.guard.machine import LEAVE_NS, GuardMachine
from workers.lease.machine import HELD, Flock, HeldLease, LeaseMachine


class SeizesFromOtherHosts(LeaseMachine):
    """Does not compare host and boot id."""

    def _turn_at(self, record: Record | None, now: float) -> float:
        if record is not None and record.state == HELD and self.flock is Flock.HELD:
            return now
        return super()._turn_at(record, now)


class ReleasesWithoutComparing(LeaseMachine):
    """Overwrites whatever is there."""

    def _write(self, op: Any, record: Record, expect: int, ttl_s: int | None, now: float) -> None:
        blind: Any = expect if record.state == HELD else None
        super()._write(op, record, blind, ttl_s, now)


class CountsFromTheAnswer(LeaseMachine):
    """The deadline counts from when the answer came instead of when the write was sent."""

    def _on_written(self, revision: int, now: float) -> None:
        self._sent_at = now
        super()._on_written(revision, now)


class ForgetsTokens(LeaseMachine):
    """Does not go on from the token in the lock file."""

    def _raise_token(self, held: HeldLease) -> None:
        pass


class FreesTheFlockFirst(GuardMachine):
    """Does not wait for the runner's death."""

    __slots__ = ()

    def _end(self, ending: str) -> None:
        if self.runner and self.is_locked:
            self._do("kill")
            self.runner = 0
        super()._end(ending)


class IgnoresItsTimer(GuardMachine):
    """Lets the runner outlive its deadline."""

    __slots__ = ()

    def _set_deadline(self, at_ns: int) -> None:
        self.deadline_ns = 0


class OutlastsTheLease(GuardMachine):
    """Gives a kept runner its full patience, also where the lease ends before."""

    __slots__ = ()

    def _on_leave(self, now_ns: int) -> None:
        super()._on_leave(now_ns)
        if self.ending == "left":
            self._set_deadline(now_ns + LEAVE_NS)


class NeverGivesBack(GuardMachine):
    """Keeps the flock for ever."""

    __slots__ = ()

    def _release_flock(self) -> None:
        self._end_wait()

    def _finish(self) -> None:
        if self.ending != "exit":
            self.ending = ""


pytestmark = pytest.mark.proof
BROKEN = {
    "seize without boot id": (Machines(lease=SeizesFromOtherHosts, hosts=("h", "i")), "without proof"),
    "release without compare-and-set": (Machines(lease=ReleasesWithoutComparing), "frees what"),
    "deadline from the answer": (Machines(lease=CountsFromTheAnswer), "outlived its lease"),
    "tokens forgotten": (Machines(lease=ForgetsTokens), "enters under token"),
    "flock freed before death": (Machines(guard=FreesTheFlockFirst), "its runner is inside"),
    "deadline not kept": (Machines(guard=IgnoresItsTimer), "outlived its lease"),
    "leave outlasts the lease": (Machines(guard=OutlastsTheLease, is_kept=True), "outlived its lease"),
    "flock never given back": (Machines(guard=NeverGivesBack), "stuck"),
}


ALL = ",".join(KINDS)


@pytest.mark.parametrize(
    ("machines", "workers", "jobs", "faults", "kinds", "at_least"),
    [
        (Machines(), 3, 2, 0, ALL, 200),
        pytest.param(Machines(), 2, 1, 1, ALL, 6_800, marks=pytest.mark.slow),
        (Machines(), 3, 1, 1, "kill", 1_800),
        (Machines(is_kept=True), 2, 1, 1, "cut,loss,delay", 3_000),
        (Machines(), 3, 2, 4, "queue", 350),
    ],
    ids=["no fault", "two workers", "three workers", "a kept runner", "an impatient queue"],
)
def test_every_state_within_the_scope_keeps_the_laws(
    machines: Machines, workers: int, jobs: int, faults: int, kinds: str, at_least: int
) -> None:
    found = explore(machines, workers=workers, jobs=jobs, max_faults=faults, names=faults_of(kinds))
    assert not found.broken, str(found)
    assert found.states > at_least


@pytest.mark.slow
def test_four_faults_at_rest_keep_the_laws() -> None:
    found = explore(Machines(), workers=3, jobs=2, max_faults=4, names=faults_of("stream"), is_at_rest=True)
    assert not found.broken, str(found)
    assert found.states > 7_000


@pytest.mark.parametrize("name", BROKEN)
def test_broken_machine_is_found(name: str) -> None:
    machines, law = BROKEN[name]
    # Two jobs: an exploration ends where all have, and only before another is the lease handed over in good order.
    found = explore(machines, workers=2, jobs=2, max_faults=0)
    if not found.broken:
        found = explore(machines, workers=2, jobs=2, max_faults=1)
    assert law in found.broken, str(found)


@pytest.mark.parametrize("is_kept", [False, True], ids=["a new runner", "a kept runner"])
def test_walks_of_four_faults_keep_the_laws_and_end(is_kept: bool) -> None:
    walks, of_each, faults = depth.at(short=(60, 0, 150), full=(200, 5, 500))
    walked = walk_many(Machines(is_kept=is_kept), workers=3, jobs=2, max_faults=4, walks=walks)
    assert not walked.broken, str(walked)
    assert min(walked.faults.values()) > of_each, str(walked)
    assert sum(walked.faults.values()) > faults, str(walked)


LONG_WALKED = {
    "release without compare-and-set",
    "deadline from the answer",
    "leave outlasts the lease",
    "flock never given back",
}
"""Found after hundreds of walks."""


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] * (name in LONG_WALKED)) for name in BROKEN]
)
def test_walks_find_a_broken_machine_and_its_seed_finds_it_again(name: str) -> None:
    machines, law = BROKEN[name]
    law = law.replace("stuck", "no end")
    walked = walk_many(machines, workers=2, jobs=2, max_faults=4, walks=1_000)
    assert law in walked.broken, str(walked)
    again = walk_many(machines, workers=2, jobs=2, max_faults=4, walks=1, first=walked.seed)
    assert again.path == walked.path, str(again)


def explore_twins(kinds: str) -> str:
    """What is broken where states that are taken for one must have one future."""
    found = explore(Machines(), workers=2, jobs=1, max_faults=1, names=faults_of(kinds), are_twins_compared=True)
    return found.broken


@pytest.mark.slow
@pytest.mark.parametrize("kinds", ["kill", "clock"])
def test_states_of_one_key_have_one_future(kinds: str) -> None:
    assert not explore_twins(kinds)


@pytest.mark.parametrize(("forgotten", "kinds"), [("due", "kill"), ("sent", "clock"), ("job_record", "clock")])
def test_a_key_that_forgets_too_much_is_found(forgotten: str, kinds: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frozen._View, forgotten, lambda *_: 0)
    assert explore_twins(kinds) == "two states have the same key and another future"
