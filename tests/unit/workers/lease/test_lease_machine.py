"""One rule of the lease at a time."""

import pytest

from signalbox.program.errors import Misconfigured
from signalbox.wire import workerdocs
from workers.lease import effects, events
from workers.lease.machine import FREE, HELD, Claimant, Flock, LeaseMachine, RunnerPlace
from workers.lease.rules import Rules
from workers.lease.tickets import DropTicket, OwnTicket, PutTicket, WaitQueue

RULES = Rules()
ME = Claimant("me", "boot-me", "host/boot")


def held_by(owner: str, *, host: str = "host/boot", token: int = 0, beats: int = 0) -> workerdocs.Lease:
    return workerdocs.Lease(state=HELD, gpu="g", owner=owner, boot=f"boot-{owner}", host=host, token=token, beats=beats)


def free(next_: str = "") -> workerdocs.Lease:
    return workerdocs.Lease(state=FREE, gpu="g", next=next_, reserved_s=2.0, boot="boot-other")


def standby(record: workerdocs.Lease | None = None, revision: int = 0) -> tuple[LeaseMachine, WaitQueue]:
    """A lease that has read ``record`` and has no runner yet."""
    waiters = WaitQueue()
    lease = LeaseMachine("g", ME, RULES, waiters)
    lease.on(events.Tick(), 0.0)
    lease.on(events.Observed(record, revision, is_leader=True), 0.0)
    return lease, waiters


def holder(revision: int = 10) -> tuple[LeaseMachine, WaitQueue]:
    """Inside since 0.0, under token ``revision``."""
    lease, waiters = standby()
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.Locked(0), 0.0)
    lease.on(events.Written(revision), 0.0)
    lease.on(events.Entered(revision), 0.0)
    assert lease.place is RunnerPlace.IN
    return lease, waiters


def kinds(asked: list[effects.Effect]) -> list[type]:
    return [type(effect) for effect in asked]


def write_of(asked: list[effects.Effect]) -> effects.WriteRecord:
    (write,) = [effect for effect in asked if isinstance(effect, effects.WriteRecord)]
    return write


def test_free_device_is_taken_as_soon_as_there_is_a_runner() -> None:
    lease, _ = standby()
    write = write_of(lease.on(events.RunnerReady(), 0.0))
    assert (write.record.state, write.expect, write.ttl_s) == (HELD, 0, RULES.ttl_s)


def test_runner_enters_only_when_lease_and_flock_are_there() -> None:
    lease, _ = standby()
    lease.on(events.RunnerReady(), 0.0)
    assert effects.Enter not in kinds(lease.on(events.Written(4), 0.5))
    assert lease.on(events.Locked(0), 0.5) == [effects.Enter(4, 0.0 + RULES.fence_s)]


@pytest.mark.parametrize("is_unsure", [False, True])
def test_who_cannot_write_leaves_the_flock_to_others_for_a_while(is_unsure: bool) -> None:
    lease, _ = standby()
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.Locked(0), 0.0)
    assert effects.Unlock in kinds(lease.on(events.WriteFailed(is_unsure), 1.0))
    lease.on(events.Unlocked(), 1.0)
    stale = events.Observed(held_by("other"), 5, is_leader=True)
    assert effects.Lock not in kinds(lease.on(stale, 1.2))
    assert effects.Lock in kinds(lease.on(events.Tick(), 1.0 + RULES.reserved_s))


def test_deadline_counts_from_the_send_time_of_the_acknowledged_beat() -> None:
    lease, _ = holder()
    assert effects.WriteRecord in kinds(lease.on(events.Tick(), 2.5))
    assert lease.on(events.Written(11), 3.4)[0] == effects.Deadline(2.5 + RULES.fence_s)


def test_refused_heartbeat_fences_at_once() -> None:
    lease, _ = holder()
    lease.on(events.Tick(), 2.0)
    assert kinds(lease.on(events.WriteRefused(), 2.1))[:2] == [effects.Fence, effects.Ended]
    assert lease.held is None


def test_beat_that_timed_out_and_arrived_is_recognised_as_ours() -> None:
    lease, _ = holder()
    lease.on(events.Tick(), 2.0)
    lease.on(events.WriteFailed(is_unsure=True), 3.0)
    assert effects.WriteRecord in kinds(lease.on(events.Tick(), 3.2))
    assert effects.ReadLeader in kinds(lease.on(events.WriteRefused(), 3.21))
    ours = held_by("me", token=10, beats=1)
    asked = lease.on(events.Observed(ours, 11, is_leader=True), 3.3)
    assert effects.Deadline(2.0 + RULES.fence_s) in asked  # of the beat that arrived, not of the last
    assert write_of(asked).expect == 11


def test_beat_that_timed_out_and_lost_is_recognised_as_lost() -> None:
    lease, _ = holder()
    lease.on(events.Tick(), 2.0)
    lease.on(events.WriteFailed(is_unsure=True), 3.0)
    lease.on(events.Tick(), 3.2)
    lease.on(events.WriteRefused(), 3.21)
    asked = lease.on(events.Observed(held_by("other"), 12, is_leader=True), 3.3)
    assert effects.Fence in kinds(asked)


def test_lease_seen_in_other_hands_is_lost_before_the_next_beat() -> None:
    lease, _ = holder()
    assert effects.Ended("taken") in lease.on(events.Observed(held_by("other"), 11), 0.5)


def test_without_acknowledgements_the_lease_is_given_up_at_the_deadline() -> None:
    lease, _ = holder()
    lease.on(events.Tick(), 2.0)
    assert effects.AtRisk() in lease.on(events.Tick(), RULES.fence_s / 2 + 0.1)
    assert effects.Ended("deadline") in lease.on(events.Tick(), RULES.fence_s)


def test_holder_is_at_risk_until_a_beat_is_confirmed_again() -> None:
    lease, _ = holder()
    half = RULES.fence_s / 2
    lease.on(events.Tick(), half - 1.0)
    found = [lease.is_at_risk]
    assert lease.wake_at == half, "it says so by itself"
    assert effects.AtRisk() in lease.on(events.Tick(), half)
    assert effects.AtRisk() not in lease.on(events.Tick(), half + 0.1), "once"
    found.append(lease.is_at_risk)
    assert effects.OutOfRisk() in lease.on(events.Written(11), half + 0.2)
    assert [*found, lease.is_at_risk] == [False, True, False]


def test_holder_whose_beats_fate_is_unknown_is_at_risk_until_it_is_known() -> None:
    lease, _ = holder()
    half = RULES.fence_s / 2
    lease.on(events.Tick(), half - 2.0)
    lease.on(events.WriteFailed(is_unsure=True), half - 1.0)
    lease.on(events.Tick(), half - 0.5)
    lease.on(events.WriteRefused(), half - 0.4)
    assert effects.AtRisk() in lease.on(events.Tick(), half)
    ours = held_by("me", token=10, beats=1)
    assert effects.OutOfRisk() in lease.on(events.Observed(ours, 11, is_leader=True), half + 0.1)


def test_living_holder_is_left_alone_however_long_the_wait() -> None:
    lease, _ = standby(held_by("other"), 7)
    lease.on(events.RunnerReady(), 0.0)
    assert lease.flock is Flock.ASKED
    assert effects.WriteRecord not in kinds(lease.on(events.Tick(), 1000.0))


def test_flock_proves_the_holder_dead_and_the_leader_is_asked_first() -> None:
    lease, _ = standby(held_by("other"), 7)
    lease.on(events.RunnerReady(), 0.0)
    assert kinds(lease.on(events.Locked(3), 1.0)) == [effects.ReadLeader]
    write = write_of(lease.on(events.Observed(held_by("other"), 8, is_leader=True), 1.1))
    assert write.expect == 8


def test_flock_proves_nothing_about_a_holder_that_is_on_its_way_to_it() -> None:
    lease, _ = standby(held_by("old"), 7)
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.Observed(free("new"), 8, is_leader=False), 1.0)
    lease.on(events.Observed(held_by("new"), 9, is_leader=False), 1.01)
    asked = lease.on(events.Locked(0), 1.02)  # the old holder let go, and we were first
    assert effects.WriteRecord not in kinds(asked)
    assert effects.Unlock in kinds(asked)
    lease.on(events.Unlocked(is_fenced=False), 1.03)
    lease.on(events.Tick(), 1.6)
    lease.on(events.Locked(0), 1.7)  # it had the time: nobody alive would have left it to us
    write = write_of(lease.on(events.Observed(held_by("new"), 9, is_leader=True), 1.71))
    assert (write.record.owner, write.expect) == ("me", 9)


def test_flock_proves_nothing_about_another_host() -> None:
    lease, _ = standby(held_by("other", host="host/earlier-boot"), 7)
    lease.on(events.RunnerReady(), 0.0)
    asked = lease.on(events.Locked(3), 1.0)
    assert kinds(asked) == [effects.Unlock]


def test_reservation_of_another_is_waited_out() -> None:
    lease, _ = standby(free("other"), 7)
    assert effects.WriteRecord not in kinds(lease.on(events.RunnerReady(), 0.0))
    assert effects.WriteRecord not in kinds(lease.on(events.Tick(), 1.99))
    assert write_of(lease.on(events.Tick(), 2.0)).expect == 7


def test_who_is_named_next_takes_it_at_once() -> None:
    lease, waiters = standby(free("me"), 7)
    waiters.put("other", 1)
    assert write_of(lease.on(events.RunnerReady(), 0.0)).expect == 7


def test_expired_lease_goes_to_the_line_before_those_without_a_ticket() -> None:
    lease, waiters = standby(None, 7)
    waiters.put("first", 1)
    waiters.put("second", 2)
    assert effects.WriteRecord not in kinds(lease.on(events.RunnerReady(), 0.0))
    assert effects.WriteRecord not in kinds(lease.on(events.Tick(), 3.9))
    assert effects.WriteRecord in kinds(lease.on(events.Tick(), 4.0))


def test_lost_race_is_followed_by_a_read_of_the_leader() -> None:
    lease, _ = standby()
    lease.on(events.RunnerReady(), 0.0)
    assert kinds(lease.on(events.WriteRefused(), 0.1)) == [effects.ReadLeader]


def test_own_write_that_arrived_after_its_time_out_is_taken_up() -> None:
    lease, _ = standby()
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.WriteFailed(is_unsure=True), 1.0)
    lease.on(events.Tick(), 1.2)
    write = write_of(lease.on(events.Observed(held_by("me"), 9, is_leader=True), 1.3))
    assert write.expect == 9


def test_record_is_read_again_though_no_event_comes() -> None:
    lease, _ = standby(held_by("other"), 7)
    lease.on(events.RunnerReady(), 0.0)
    assert lease.wake_at <= RULES.recheck_s
    assert effects.ReadLeader in kinds(lease.on(events.Tick(), RULES.recheck_s))


def test_token_goes_on_from_what_the_host_remembers_when_the_stream_was_lost() -> None:
    lease, _ = standby()
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.Written(2), 0.0)
    asked = lease.on(events.Locked(500), 0.1)
    assert effects.Enter not in kinds(asked)
    assert write_of(asked).record.token == 501
    assert effects.Enter(501, 0.1 + RULES.fence_s) in lease.on(events.Written(3), 0.2)


def test_device_whose_flock_never_comes_is_quarantined() -> None:
    lease, _ = standby()
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.Written(2), 0.0)
    now, written, reported = 0.0, workerdocs.Lease(state=HELD, gpu="g"), list[type]()
    while written.state == HELD:
        now = lease.wake_at
        asked = lease.on(events.Tick(), now)
        reported += kinds(asked)
        while writes := [effect for effect in asked if isinstance(effect, effects.WriteRecord)]:
            written = writes[0].record
            asked = lease.on(events.Written(int(now * 10)), now)
    assert now == RULES.lock_wait_s
    assert reported.count(effects.NoFlock) == 1, "an operator should know"
    assert lease.held is None
    lease.on(events.Unlocked(), now)
    assert effects.WriteRecord not in kinds(lease.on(events.Tick(), now + RULES.quarantine_s - 1))
    assert effects.WriteRecord in kinds(lease.on(events.Tick(), now + RULES.quarantine_s))


def test_release_names_the_first_ticket_and_leaves_after_it_is_stored() -> None:
    lease, waiters = holder()
    waiters.put("second", 9)
    waiters.put("first", 8)
    write = write_of(lease.on(events.ReleaseAsked(), 1.0))
    assert (write.record.state, write.record.next, write.ttl_s) == (FREE, "first", None)
    assert lease.place is RunnerPlace.IN
    assert kinds(lease.on(events.Written(11), 1.1))[:2] == [effects.Leave, effects.Ended]


def test_device_is_left_even_if_nats_cannot_be_told() -> None:
    lease, _ = holder()
    lease.on(events.ReleaseAsked(), 1.0)
    assert effects.Leave in kinds(lease.on(events.WriteFailed(is_unsure=False), 1.1))
    assert effects.WriteRecord in kinds(lease.on(events.Tick(), 1.4))


def test_holder_keeps_the_lease_while_nobody_waits() -> None:
    lease, _ = holder()
    for second in range(2, 100, 2):
        assert effects.AskYield() not in lease.on(events.Tick(), float(second))
        lease.on(events.Written(10 + second), float(second))


def test_idle_holder_yields_to_a_waiter() -> None:
    lease, waiters = holder()
    waiters.put("other", 3)
    assert effects.AskYield() not in lease.on(events.Tick(), RULES.idle_s / 2)
    assert effects.AskYield() in lease.on(events.Tick(), RULES.idle_s)


def test_nobody_is_asked_to_yield_before_the_runner_is_inside() -> None:
    lease, waiters = standby()
    waiters.put("other", 3)
    lease.on(events.RunnerReady(), 0.0)
    lease.on(events.Tick(), 2.0)
    lease.on(events.Locked(0), 2.0)
    lease.on(events.Written(4), 2.0)
    assert effects.AskYield() not in lease.on(events.Tick(), 2.0 + RULES.idle_s)
    assert effects.AskYield() in lease.on(events.Entered(4), 2.3)


def test_busy_holder_yields_at_the_end_of_its_quantum() -> None:
    lease, waiters = holder()
    lease.busy()
    waiters.put("other", 3)
    revision = 10
    asked_at = 0.0
    for tenth in range(400):
        now = tenth / 10
        asked = lease.on(events.Tick(), now)
        if effects.AskYield() in asked:
            asked_at = now
            break
        if effects.WriteRecord in kinds(asked):
            revision += 1
            lease.on(events.Written(revision), now)
    assert asked_at == RULES.quantum_s


def test_operator_gets_the_lease_moved_though_nobody_waits() -> None:
    lease, _ = holder()
    assert effects.AskYield() in lease.on(events.YieldAsked(), 1.0)
    lease.on(events.ReleaseAsked(), 1.0)
    lease.on(events.Written(11), 1.0)
    assert effects.WriteRecord not in kinds(lease.on(events.Unlocked(), 1.1))  # stands back for another
    assert effects.WriteRecord in kinds(lease.on(events.Tick(), 3.5))


def test_draining_worker_does_not_take_the_lease() -> None:
    lease, _ = standby()
    lease.on(events.Intent(is_allowed=False), 0.0)
    assert effects.WriteRecord not in kinds(lease.on(events.RunnerReady(), 0.0))


def test_crashed_runner_is_let_in_again_under_the_same_token() -> None:
    lease, _ = holder()
    lease.on(events.RunnerDied(), 1.0)
    assert lease.token == 10
    assert effects.Enter(10, RULES.fence_s) in lease.on(events.RunnerReady(), 1.5)


def test_end_of_the_guard_ends_the_hold() -> None:
    lease, _ = holder()
    assert effects.Ended("guard_gone") in lease.on(events.GuardGone(), 1.0)


def test_ticket_is_wanted_only_while_another_holds() -> None:
    lease, _ = standby(held_by("other"), 7)
    lease.on(events.Intent(is_wanted=True), 0.0)
    assert lease.needs_ticket is False  # there is no runner that could use the turn
    lease.on(events.RunnerReady(), 0.0)
    with_holder = lease.needs_ticket
    lease.on(events.Observed(None, 8), 0.0)
    assert (with_holder, lease.needs_ticket) == (True, False)


def test_line_orders_by_number_and_not_by_arrival() -> None:
    waiters = WaitQueue()
    waiters.put("late", 9)
    waiters.put("early", 4)
    assert waiters.head(but="") == "early"
    assert waiters.head(but="early") == "late"
    assert (waiters.ahead("late"), waiters.ahead("early"), waiters.ahead("stranger")) == (1, 0, 2)
    waiters.put("early", 4)
    waiters.drop("early")
    assert waiters.head(but="late") == ""


def test_waiter_whose_end_nobody_learned_of_is_forgotten() -> None:
    waiters = WaitQueue()
    waiters.put("ghost", 3, at=0.0)
    waiters.put("alive", 4, at=0.0)
    waiters.put("alive", 4, at=30.0)
    waiters.forget(before=10.0)
    assert waiters.head(but="") == "alive"
    assert waiters.others("alive") == 0


def test_ticket_keeps_its_number_over_renewals_and_is_given_up() -> None:
    ticket = OwnTicket("g", "me", "boot", ttl_s=20, epoch=0.0)
    assert ticket.due(0.0) is None
    ticket.want(is_wanted=True, now=1.0)
    first = ticket.due(1.0)
    assert isinstance(first, PutTicket)
    assert (first.expect, first.ttl_s) == (0, 20)
    assert ticket.due(1.0) is None  # in flight
    ticket.written(5, 1.0)
    assert ticket.number == 5
    renewal = ticket.due(1.0 + 20 / 3)
    assert isinstance(renewal, PutTicket)
    assert (renewal.expect, renewal.ticket.number) == (5, 5)
    ticket.written(8, 8.0)
    ticket.want(is_wanted=False, now=9.0)
    assert ticket.due(9.0) == DropTicket(8)
    ticket.written(9, 9.0)
    assert ticket.number == 0
    assert ticket.due(9.0) is None


def test_expired_ticket_goes_to_the_end_of_the_line() -> None:
    ticket = OwnTicket("g", "me", "boot", ttl_s=20, epoch=0.0)
    ticket.want(is_wanted=True, now=0.0)
    ticket.due(0.0)
    ticket.written(5, 0.0)
    ticket.due(30.0)
    ticket.refused(17, 30.0)
    again = ticket.due(30.0)
    assert isinstance(again, PutTicket)
    assert (again.expect, again.ticket.number) == (17, 0)


def test_renewal_whose_answer_was_lost_costs_no_place_in_the_line() -> None:
    ticket = OwnTicket("g", "me", "boot", ttl_s=20, epoch=0.0)
    ticket.want(is_wanted=True, now=0.0)
    ticket.due(0.0)
    ticket.written(5, 0.0)
    ticket.due(7.0)
    ticket.failed(8.0)
    ticket.due(9.0)
    ticket.refused(None, 9.0)  # it is still under way
    assert ticket.due(9.0) is None
    ticket.due(10.0)
    ticket.refused(8, 10.0)  # it was stored
    again = ticket.due(10.0)
    assert isinstance(again, PutTicket)
    assert (again.expect, again.ticket.number) == (8, 5)


def test_giving_up_whose_answer_was_lost_gives_the_place_up() -> None:
    ticket = OwnTicket("g", "me", "boot", ttl_s=20, epoch=0.0)
    ticket.want(is_wanted=True, now=0.0)
    ticket.due(0.0)
    ticket.written(5, 0.0)
    ticket.want(is_wanted=False, now=1.0)
    ticket.due(1.0)
    ticket.failed(2.0)
    ticket.want(is_wanted=True, now=3.0)
    ticket.due(3.0)
    ticket.refused(6, 3.0)
    again = ticket.due(3.0)
    assert isinstance(again, PutTicket)
    assert again.ticket.number == 0


def test_default_rules_fit_together() -> None:
    Rules().check()


@pytest.mark.parametrize(
    ("rules", "broken"),
    [
        (Rules(fence_s=10.0), "failover_s"),
        (Rules(ttl_s=19), "<= ttl_s"),
        (Rules(margin_s=0.3), "<= margin_s"),
        (Rules(heartbeat_s=4.0), "4 * heartbeat_s"),
    ],
)
def test_rules_that_do_not_fit_are_refused_by_name(rules: Rules, broken: str) -> None:
    with pytest.raises(Misconfigured, match=broken.replace("*", r"\*")):
        rules.check()
