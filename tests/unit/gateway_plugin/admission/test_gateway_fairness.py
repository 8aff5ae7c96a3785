"""Shares of a model's queue, in a world where the classes are served strictly one after the other."""

from collections import Counter, deque
from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.admission.estimate import QueueCounts, QueueEstimate
from gateway_plugin.admission.fairness import LEAST, Shares
from signalbox.wire.names import PRIORITIES, Priority

ROOM = 8


class Waiting(NamedTuple):
    number: int
    account: str
    asked: Priority


class World:
    """One model's queues and the accounts that fill them. Each gateway knows what it let in, and what it measured."""

    def __init__(self, *, gateways: int = 1, room: int = ROOM) -> None:
        self.gateways = [Shares(room) for _ in range(gateways)]
        self.queues: dict[Priority, deque[Waiting]] = {p: deque() for p in PRIORITIES}
        self.served: list[Waiting] = []
        self.delivered: Counter[Priority] = Counter()
        self.sent = 0
        self.now = 0.0

    def measure(self) -> None:
        reported = {
            priority: QueueCounts(len(queue), self.delivered[priority]) for priority, queue in self.queues.items()
        }
        for gateway in self.gateways:
            for estimate in gateway.estimates.values():
                estimate.ask()
            gateway.measured(reported, self.now)

    def send(self, account: str, asked: Priority = "mid", *, gateway: int = 0) -> Priority:
        shares = self.gateways[gateway]
        placed = shares.place(account, asked, self.now)
        shares.enter(account, asked, placed)
        self.queues[placed].append(Waiting(self.sent, account, asked))
        self.sent += 1
        return placed

    def serve(self, number: int = 1) -> None:
        for _ in range(number):
            priority = next((priority for priority, queue in self.queues.items() if queue), None)
            if priority is None:
                return
            self.served.append(self.queues[priority].popleft())
            self.delivered[priority] += 1

    def serve_until(self, number: int) -> int:
        """How many others are served before this one."""
        before = len(self.served)
        while not any(job.number == number for job in self.served[before:]):
            self.serve()
        return len(self.served) - before - 1

    def has_waiting(self, account: str) -> bool:
        return any(job.account == account for queue in self.queues.values() for job in queue)


ACCOUNTS = tuple("abcdefghijkl")
SENDS = st.tuples(st.sampled_from(ACCOUNTS), st.sampled_from(PRIORITIES))
STEPS = st.lists(st.one_of(SENDS, st.integers(1, 12)), max_size=150)


@given(STEPS)
def test_who_has_nothing_waiting_gets_what_it_asks_for(steps: list[int | tuple[str, str]]) -> None:
    world = World()
    for step in steps:
        world.measure()
        if isinstance(step, int):
            world.serve(step)
            continue
        account, asked = step
        is_new = not world.has_waiting(account)
        placed = world.send(account, asked)  # type: ignore[arg-type]  # hypothesis widens the literal
        assert placed in {asked, LEAST}
        assert placed == asked or not is_new


@given(STEPS)
def test_a_class_never_holds_more_than_its_room_and_one_job_of_each_account(steps: list[int | tuple[str, str]]) -> None:
    world = World()
    for step in steps:
        world.measure()
        if isinstance(step, int):
            world.serve(step)
        else:
            world.send(*step)  # type: ignore[arg-type]  # hypothesis widens the literal
        for priority in ("hi", "mid"):
            assert len(world.queues[priority]) < ROOM + len(ACCOUNTS)


@given(st.lists(st.integers(-6, 6).filter(bool), max_size=200))
def test_an_account_alone_is_served_in_the_order_it_sent(steps: list[int]) -> None:
    world = World()
    for step in steps:
        for _ in range(max(0, step)):
            world.measure()
            world.send("a")
        world.serve(max(0, -step))
    world.serve(world.sent)
    assert [job.number for job in world.served] == list(range(world.sent))


def test_each_of_more_accounts_than_there_is_room_for_has_one_job_before_the_flood() -> None:
    world = World()
    for account in range(3 * ROOM):
        assert world.send(f"account {account}") == "mid"
    assert world.send("account 0") == LEAST
    assert world.send("newcomer") == "mid"


def test_a_newcomer_waits_behind_less_than_the_room_of_a_flood() -> None:
    world = World()
    for _ in range(1000):
        world.send("flood")
    assert world.send("newcomer") == "mid"
    assert world.serve_until(1000) <= ROOM // 2


def test_a_newcomer_waits_behind_the_room_of_each_gateway_at_most() -> None:
    world = World(gateways=3)
    for number in range(900):
        world.send("flood", gateway=number % 3)
    assert world.send("newcomer", gateway=1) == "mid"
    assert world.serve_until(900) <= 3 * ROOM


def test_who_sends_one_by_one_through_a_flood_waits_behind_two_jobs_of_it_at_most() -> None:
    world = World()
    for _ in range(500):
        world.measure()
        world.send("flood")
    world.serve(100)
    ahead = []
    for _ in range(50):
        for _ in range(5):
            world.measure()
            world.send("flood")
        assert world.send("other") == "mid"
        for _ in range(5):
            world.measure()
            world.send("flood")
        ahead.append(world.serve_until(world.sent - 6))
        world.serve()
    assert max(ahead) <= 2


@pytest.mark.parametrize("rate", [2, 7])
def test_two_who_send_more_than_can_be_done_are_served_alike(rate: int) -> None:
    world = World()
    for tick in range(2000):
        world.measure()
        for _ in range(10):
            world.send("a")
        for _ in range(rate):
            world.send("b")
        world.serve(2)
        if tick == 500:
            world.served.clear()
    served = Counter(job.account for job in world.served)
    assert served["a"] == pytest.approx(served["b"], rel=0.15)


def test_who_sends_little_is_served_all_of_it_beside_a_flood() -> None:
    world = World()
    for tick in range(1000):
        world.measure()
        for _ in range(10):
            world.send("flood")
        if tick % 3 == 0:
            assert world.send("little") == "mid"
        world.serve(1)
        assert not any(job.account == "little" for job in world.queues[LEAST])
        assert sum(job.account == "little" for job in world.queues["mid"]) <= 2
    assert sum(job.account == "flood" for job in world.served) > 500


def test_a_flood_of_urgent_jobs_leaves_room_for_others_that_are_urgent() -> None:
    world = World()
    for _ in range(100):
        world.send("a", "hi")
    assert world.send("b", "hi") == "hi"
    assert world.serve_until(100) <= ROOM // 2


def test_an_urgent_job_is_not_kept_back_by_ordinary_ones_of_its_account() -> None:
    world = World()
    for _ in range(100):
        world.send("a")
    assert world.send("a") == LEAST
    assert world.send("a", "hi") == "hi"


def test_a_batch_of_its_own_in_lo_keeps_nobody_there() -> None:
    world = World()
    for _ in range(100):
        assert world.send("a", LEAST) == LEAST
    assert world.send("a") == "mid"


def test_an_account_whose_flood_is_over_starts_afresh() -> None:
    world = World()
    for _ in range(100):
        world.send("a")
    assert world.send("a") == LEAST
    world.serve(101)
    world.measure()
    assert world.send("a") == "mid"


def test_without_room_everybody_gets_what_was_asked_for() -> None:
    world = World(room=0)
    assert {world.send("a") for _ in range(1000)} == {"mid"}


def busy(rate: int) -> World:
    """A world in which ``a`` has sent so many jobs a second for a while, and as many were taken."""
    world = World()
    for _ in range(20):
        world.measure()
        world.now += 0.1
        for _ in range(rate // 10):
            world.send("a")
        world.serve(rate // 10)
    world.measure()
    return world


def test_between_measurements_the_workers_are_taken_to_go_on_as_they_did() -> None:
    world = busy(10)
    for _ in range(50):
        world.now += 0.1
        assert world.send("a") == "mid"
    assert [world.send("a") for _ in range(ROOM)][-1] == LEAST


@pytest.mark.parametrize("rate", [10, 1000])
def test_a_quick_model_s_room_is_what_is_done_in_half_a_second(rate: int) -> None:
    world = busy(rate)
    placed = [world.send("a") for _ in range(2 * rate)]
    room = max(ROOM, rate // 2)
    assert placed.count("mid") == room // 2
    assert world.send("newcomer") == "mid"


def test_what_comes_while_the_server_is_asked_counts_beside_its_answer() -> None:
    shares = Shares(ROOM)
    shares.enter("a", "mid", "mid")
    for estimate in shares.estimates.values():
        estimate.ask()
    shares.enter("a", "mid", "mid")
    assert shares.most == 2
    shares.measured({"hi": QueueCounts(0, 0), "mid": QueueCounts(1, 0), "lo": QueueCounts(0, 0)}, 1.0)
    assert (shares.most, shares.since) == (2, 1)


def measured(estimate: QueueEstimate, waiting: int, delivered: int, now: float) -> int:
    estimate.ask()
    estimate.measured(QueueCounts(waiting, delivered), now)
    return estimate.waiting


def test_what_the_server_has_acknowledged_and_does_not_count_yet_waits_and_was_not_taken() -> None:
    estimate = QueueEstimate()
    measured(estimate, 0, 0, 0.0)
    for _ in range(100):
        estimate.enter("a")
    assert measured(estimate, 0, 0, 1.0) == 100
    assert measured(estimate, 60, 40, 2.0) == 60
    assert (estimate.rate, estimate.of("a", 60)) == (40, 60)


def test_what_was_ended_in_the_queue_does_not_wait_for_ever() -> None:
    estimate = QueueEstimate()
    measured(estimate, 0, 0, 0.0)
    for _ in range(100):
        estimate.enter("a")
    measured(estimate, 100, 0, 1.0)
    assert measured(estimate, 0, 10, 2.0) == 0
    assert estimate.rate == 10


def test_a_consumer_that_was_made_anew_tells_of_no_rate_at_first() -> None:
    estimate = QueueEstimate()
    for _ in range(50):
        estimate.enter("a")
    assert measured(estimate, 10, 5_000, 1.0) == 10
    assert measured(estimate, 30, 20, 2.0) == 30
    assert estimate.rate == 0
    measured(estimate, 20, 30, 3.0)
    assert estimate.rate == 10
