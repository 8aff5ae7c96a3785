"""A stream that answers no write is known as such, and tried again now and then."""

import pytest

from signalbox.bus.stalls import KNOWN_S, STALLED_S, TRY_S, WHY, Stalls
from signalbox.program.errors import Unavailable


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def stalls(clock: Clock) -> Stalls:
    return Stalls(clock)


def stall(stalls: Stalls, clock: Clock, subject: str) -> None:
    stalls.lost(subject)
    clock.now += STALLED_S
    stalls.lost(subject)


def test_one_lost_answer_says_nothing_and_none_for_long_says_that_nothing_is_stored(
    stalls: Stalls, clock: Clock
) -> None:
    stalls.lost("jobs.m.mid.1")
    stalls.check("jobs")
    stall(stalls, clock, "jobs.m.mid.2")
    assert stalls.is_stalled("jobs.n.hi.3")
    assert not stalls.is_stalled("st.1")
    stalls.check("st.1")


def test_one_lost_answer_and_no_write_for_long_is_no_stall(stalls: Stalls, clock: Clock) -> None:
    stalls.lost("jobs.m.mid.1")
    clock.now += 2 * STALLED_S
    assert not stalls.is_stalled("jobs.m.mid.2")
    for _ in range(3):
        stalls.check("jobs")


def test_while_nothing_is_stored_one_try_in_a_while_is_let_through(stalls: Stalls, clock: Clock) -> None:
    stall(stalls, clock, "jobs.m.mid.1")
    stalls.check("jobs")
    for _ in range(3):
        with pytest.raises(Unavailable, match="make room and restart nats-server"):
            stalls.check("jobs")
    clock.now += TRY_S
    stalls.check("jobs")
    stalls.answered("jobs.m.mid.9")
    for _ in range(3):
        stalls.check("jobs")


def test_a_stall_that_nobody_has_met_lately_is_no_fault_any_more(stalls: Stalls, clock: Clock) -> None:
    stall(stalls, clock, "jobs.m.mid.1")
    assert stalls.faults() == [f"jobs.>: {WHY}"]
    clock.now += KNOWN_S
    assert stalls.faults() == []
    stalls.check("jobs")
    stalls.lost("jobs.m.mid.2")
    assert stalls.faults() == [f"jobs.>: {WHY}"]


def test_a_new_connection_knows_of_nothing(stalls: Stalls, clock: Clock) -> None:
    stall(stalls, clock, "$KV.leases.a")
    assert stalls.is_stalled("$KV.leases.b")
    assert not stalls.is_stalled("$KV.workers.b")
    stalls.clear()
    assert not stalls
    assert not stalls.is_stalled("$KV.leases.b")
