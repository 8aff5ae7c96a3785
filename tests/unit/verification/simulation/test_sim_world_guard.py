"""What the guard decides, without a process."""

from workers.guard.machine import LEAVE_NS, Effect, GuardMachine


def fed(machine: GuardMachine, *events: tuple[str, *tuple[int, ...]], now_ns: int = 0) -> list[Effect]:
    """The effects of the last of these events."""
    effects: list[Effect] = []
    for name, *numbers in events:
        effects = machine.on(name, *numbers, now_ns=now_ns)
    return effects


def inside(*, is_kept: bool = True) -> GuardMachine:
    machine = GuardMachine(is_kept)
    fed(machine, ("spawn",), ("spawned", 7), ("lock", 100), ("taken", 3), ("enter", 4, 50))
    assert fed(machine, ("stored", 4)) == [("arm", 50), ("say", "enter 4")]
    return machine


def test_flock_of_a_supervisor_that_froze_before_it_entered_is_given_back() -> None:
    machine = GuardMachine(True)
    fed(machine, ("spawn",), ("spawned", 7), ("lock", 100))
    assert fed(machine, ("taken", 3), now_ns=10) == [("tell", "locked 3"), ("arm", 110)]
    assert fed(machine, ("timer",), now_ns=109) == []
    effects = fed(machine, ("timer",), now_ns=110)
    assert ("unlock", 0) in effects
    assert effects[-1] == ("tell", "fenced 1")
    assert ("kill", 0) not in effects  # it was never let in
    assert fed(machine, ("enter", 4, 500)) == [("tell", "error enter 11")]


def test_heartbeats_keep_a_flock_whose_runner_is_still_on_its_way() -> None:
    machine = GuardMachine(True)
    fed(machine, ("spawn",), ("spawned", 7), ("lock", 100), ("taken", 3))
    assert fed(machine, ("deadline", 500), now_ns=50)[0] == ("arm", 500)
    assert fed(machine, ("timer",), now_ns=110) == []
    assert fed(machine, ("enter", 4, 900), now_ns=400) == [("store", 4)]


def test_flock_that_was_given_back_has_no_deadline() -> None:
    machine = GuardMachine(True)
    fed(machine, ("lock", 100), ("taken", 3))
    assert ("arm", 0) in fed(machine, ("unlock",))
    assert fed(machine, ("timer",), now_ns=200) == []


def test_token_that_cannot_be_stored_lets_nobody_in() -> None:
    machine = GuardMachine(True)
    fed(machine, ("spawn",), ("spawned", 7), ("lock",), ("taken", 3))
    assert fed(machine, ("enter", 4, 50)) == [("store", 4)]
    assert fed(machine, ("refused", 28)) == [("tell", "error enter 28")]
    assert machine.token == 0


def test_nobody_is_let_in_after_the_lease_has_ended() -> None:
    """A guard that was stopped finds a word that came in time, and is late itself."""
    machine = GuardMachine(True)
    fed(machine, ("spawn",), ("spawned", 7), ("lock",), ("taken", 3))
    assert fed(machine, ("enter", 4, 50), now_ns=40) == [("store", 4)]
    late = fed(machine, ("stored", 4), now_ns=50)
    assert ("say", "enter 4") not in late
    assert [effect for effect in late if effect[0] in {"unlock", "tell"}] == [("unlock", 0), ("tell", "fenced 1")]
    assert ("kill", 0) not in late  # it was never let in


def test_way_out_is_not_longer_than_the_lease() -> None:
    """A supervisor that was cut off says leave late: what is left of the lease is all the time there is."""
    machine = inside()
    assert fed(machine, ("leave",), now_ns=40) == [("say", "leave"), ("arm", 50)]
    assert fed(machine, ("timer",), now_ns=50) == [("arm", 0), ("kill", 0)]
    unhurried = inside()
    fed(unhurried, ("deadline", 5 * LEAVE_NS))
    assert fed(unhurried, ("leave",), now_ns=7)[-1] == ("arm", 7 + LEAVE_NS)


def test_runner_that_dies_on_its_way_out_has_left() -> None:
    machine = inside()
    assert fed(machine, ("leave",)) == [("say", "leave"), ("arm", 50)]
    assert fed(machine, ("died", 7, -9)) == [("tell", "died 7 -9"), ("reopen", 0), ("tell", "left")]


def test_flock_of_a_runner_that_died_is_given_back_when_the_supervisor_asks() -> None:
    machine = inside()
    assert fed(machine, ("died", 7, -9)) == [("tell", "died 7 -9")]
    assert fed(machine, ("unlock",)) == [("arm", 0), ("reopen", 0), ("tell", "unlocked")]
    assert (machine.is_locked, machine.token) == (False, 0)


def test_new_runner_that_shares_the_flock_dies_before_it_is_given_back() -> None:
    machine = inside()
    fed(machine, ("died", 7, -9), ("spawn",), ("spawned", 8))
    assert fed(machine, ("unlock",)) == [("arm", 0), ("kill", 0)]
    assert machine.is_locked
    assert fed(machine, ("died", 8, -9)) == [("tell", "died 8 -9"), ("reopen", 0), ("tell", "unlocked")]


def test_end_of_the_supervisor_waits_for_the_end_of_the_runner() -> None:
    machine = inside()
    assert fed(machine, ("hung_up",)) == [("arm", 0), ("kill", 0)]
    assert fed(machine, ("fence",)) == [("arm", 0), ("kill", 0)]
    assert fed(machine, ("died", 7, -9))[-1] == ("exit", 0)


def test_deadline_of_a_lost_lease_is_not_moved_while_the_runner_dies() -> None:
    machine = inside()
    fed(machine, ("timer",), now_ns=60)
    assert fed(machine, ("deadline", 900)) == [("tell", "pong 900")]
    assert machine.deadline_ns == 0
