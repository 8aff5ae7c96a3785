"""Every state of a small scope keeps the laws, and broken machines do not get away with it."""

from typing import Any

import pytest

from signalbox.messages import Lease as Record
from tests.scope.explore import explore
from tests.scope.nodes import Machines
from workers.guardmachine import GuardMachine
from workers.lease import HELD, Flock, Lease, Mine


class SeizesFromOtherHosts(Lease):
    """Does not compare host and boot id."""

    def _turn_at(self, record: Record | None, now: float) -> float:
        if record is not None and record.state == HELD and self.flock is Flock.HELD:
            return now
        return super()._turn_at(record, now)


class ReleasesWithoutComparing(Lease):
    """Overwrites whatever is there."""

    def _write(self, op: Any, record: Record, expect: int, ttl_s: int | None, now: float) -> None:
        blind: Any = expect if record.state == HELD else None
        super()._write(op, record, blind, ttl_s, now)


class CountsFromTheAnswer(Lease):
    """The deadline counts from when the answer came instead of when the write was sent."""

    def _on_written(self, revision: int, now: float) -> None:
        self._sent_at = now
        super()._on_written(revision, now)


class ForgetsTokens(Lease):
    """Does not go on from the token in the lock file."""

    def _raise_token(self, mine: Mine) -> None:
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
    "seize without boot id": (
        Machines(lease=SeizesFromOtherHosts, hosts=("h", "i")),
        "without proof",
    ),
    "release without compare-and-set": (Machines(lease=ReleasesWithoutComparing), "frees what"),
    "deadline from the answer": (Machines(lease=CountsFromTheAnswer), "outlived its lease"),
    "tokens forgotten": (Machines(lease=ForgetsTokens), "enters under token"),
    "flock freed before death": (Machines(guard=FreesTheFlockFirst), "its runner is inside"),
    "deadline not kept": (Machines(guard=IgnoresItsTimer), "outlived its lease"),
    "flock never given back": (Machines(guard=NeverGivesBack), "stuck"),
}


@pytest.mark.parametrize(
    ("machines", "workers", "jobs", "faults", "at_least"),
    [
        (Machines(), 3, 2, 0, 200),
        (Machines(), 3, 1, 1, 20_000),
        (Machines(is_kept=True), 2, 1, 1, 4_000),
    ],
    ids=["no fault", "three workers", "a kept runner"],
)
def test_every_state_within_the_scope_keeps_the_laws(
    machines: Machines, workers: int, jobs: int, faults: int, at_least: int
) -> None:
    found = explore(machines, workers=workers, jobs=jobs, max_faults=faults)
    assert not found.broken, str(found)
    assert found.states > at_least


@pytest.mark.parametrize("name", BROKEN)
def test_broken_machine_is_found(name: str) -> None:
    machines, law = BROKEN[name]
    found = explore(machines, workers=2, jobs=1, max_faults=1)
    assert law in found.broken, str(found)
