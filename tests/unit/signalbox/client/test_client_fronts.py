"""Which front gets a request, and what is done when it fails: the client's core, told what the world answers."""

from collections.abc import Callable
from typing import Any

import pytest

from signalbox.client import errors
from signalbox.client.delivery import Delivery
from signalbox.client.exchange import Effect, Pause, Request, Resolve, Response, Send, Steps, Target
from signalbox.client.fronts import Front, Fronts

GET = Request("GET", "/v1/models")
GOOD = Response(200, {}, b"{}")
A, B, C = (f"http://10.0.0.{number}:80" for number in (1, 2, 3))


def refusal(status: int, **headers: str) -> Response:
    return Response(status, {name.replace("_", "-"): value for name, value in headers.items()}, b"{}")


class World:
    """Answers effects, and keeps what was asked. Time passes only in pauses."""

    def __init__(self, answer: Callable[[Send], Response], addresses: dict[str, list[str]] | None = None) -> None:
        self.now = 1000.0
        self.sent: list[str] = []
        self.pauses: list[float] = []
        self.looked_up: list[str] = []
        self.addresses = addresses or {}
        self._answer = answer

    def run(self, steps: Steps[Any]) -> Any:
        try:
            effect = next(steps)
            while True:
                try:
                    got = self._give(effect)
                except errors.SignalboxError as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(got)
        except StopIteration as done:
            return done.value

    def _give(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            self.sent.append(effect.target.url)
            return self._answer(effect)
        if isinstance(effect, Resolve):
            self.looked_up.append(effect.host)
            if effect.host not in self.addresses:
                raise errors.Unavailable("no such name")
            return self.addresses[effect.host]
        assert isinstance(effect, Pause)
        self.pauses.append(effect.seconds)
        self.now += effect.seconds
        return None

    def delivery(self, *urls: str, retries: int = 3, **more: Any) -> Delivery:
        fronts = Fronts(urls, clock=lambda: self.now, **more)
        return Delivery(fronts, retries=retries, clock=lambda: self.now)


def dead(*urls: str, error: type[errors.SignalboxError] = errors.Unavailable) -> Callable[[Send], Response]:
    """Fronts that fail; the others answer."""

    def answer(sent: Send) -> Response:
        if sent.target.url in urls:
            raise error("gone")
        return GOOD

    return answer


def test_fronts_are_taken_in_turn() -> None:
    world = World(dead())
    delivery = world.delivery(A, B, C)
    for _ in range(6):
        world.run(delivery.send(GET, 60))
    assert world.sent == [A, B, C, A, B, C]


def test_a_dead_front_s_call_goes_to_the_next_and_its_turns_to_all_others_alike() -> None:
    world = World(dead(B))
    delivery = world.delivery(A, B, C)
    for _ in range(9):
        world.run(delivery.send(GET, 60))
    assert world.sent == [A, B, C, A, C, A, C, A, C, A]
    assert world.pauses == []
    world.now += 6
    world.run(delivery.send(GET, 60))
    assert world.sent[-2:] == [B, C]  # whether it is back is tried by one call


def test_the_fewest_unanswered_requests_have_precedence_where_that_is_asked_for() -> None:
    fronts = Fronts([A, B], balance="least_outstanding")
    world = World(dead())
    held: list[Front] = [world.run(fronts.choose()) for _ in range(3)]
    assert [one.target.url for one in held] == [A, B, A]
    fronts.release(held[0])
    fronts.release(held[2])
    assert [world.run(fronts.choose()).target.url for _ in range(2)] == [A, B]


def test_a_name_stands_for_its_addresses_and_is_looked_up_by_a_timer() -> None:
    world = World(dead(), {"front.example": ["10.0.0.1", "10.0.0.2"]})
    delivery = world.delivery("https://front.example/base", refresh_s=30)
    for _ in range(4):
        world.run(delivery.send(GET, 60))
    assert world.sent == ["https://10.0.0.1:443/base", "https://10.0.0.2:443/base"] * 2
    world.addresses["front.example"] = ["10.0.0.2", "10.0.0.3"]
    world.now += 29
    world.run(delivery.send(GET, 60))
    assert world.looked_up == ["front.example"]
    world.now += 1
    world.sent.clear()
    for _ in range(3):
        world.run(delivery.send(GET, 60))
    assert sorted(set(world.sent)) == ["https://10.0.0.2:443/base", "https://10.0.0.3:443/base"]
    world.addresses.clear()  # the name server is away: what was known goes on
    world.now += 31
    assert world.run(delivery.send(GET, 60)) == GOOD


def test_a_front_is_called_by_its_name_wherever_its_address_is() -> None:
    seen: list[Target] = []

    def answer(sent: Send) -> Response:
        seen.append(sent.target)
        return GOOD

    world = World(answer, {"front.example": ["2001:db8::1"]})
    world.run(world.delivery("https://front.example:8443").send(GET, 60))
    assert seen == [Target("https://[2001:db8::1]:8443", "front.example:8443", "front.example")]


def test_a_name_without_an_address_is_unavailable() -> None:
    world = World(dead())
    with pytest.raises(errors.Unavailable, match="no such name"):
        world.run(world.delivery("http://nowhere.example").send(GET, 60))


def test_what_may_have_been_done_is_repeated_too() -> None:
    world = World(dead(A, error=errors.Ambiguous))
    assert world.run(world.delivery(A, B).send(GET, 60)) == GOOD
    assert world.sent == [A, B]


def test_a_front_that_does_not_answer_in_time_is_not_asked_again() -> None:
    world = World(dead(A, error=errors.DeadlineExceeded))
    with pytest.raises(errors.DeadlineExceeded):
        world.run(world.delivery(A, B).send(GET, 60))
    assert world.sent == [A]


def test_retry_after_is_obeyed_within_the_call_s_time() -> None:
    answers = [refusal(429, retry_after="7"), refusal(429, retry_after="2"), GOOD]
    world = World(lambda _: answers.pop(0))
    assert world.run(world.delivery(A).send(GET, 60)) == GOOD
    assert world.pauses == [7, 2]
    answers = [refusal(429, retry_after="61")]
    with pytest.raises(errors.LimitExceeded) as caught:
        world.run(world.delivery(A).send(GET, 60))
    assert (caught.value.retry_after_s, world.pauses) == (61, [7, 2])
    answers = [refusal(503, retry_after="1"), GOOD]
    assert world.run(world.delivery(A, B).send(GET, 60)) == GOOD
    assert world.pauses == [7, 2]  # another front is asked at once


def test_to_be_told_to_come_back_at_once_is_no_loop() -> None:
    world = World(lambda _: refusal(429, retry_after="0"))
    with pytest.raises(errors.LimitExceeded):
        world.run(world.delivery(A).send(GET, 10.0))
    assert len(world.sent) <= 51


def test_a_submission_that_is_still_being_accepted_is_asked_for_again() -> None:
    answers = [refusal(409, retry_after="1")] * 9 + [GOOD]
    world = World(lambda _: answers.pop(0))
    keyed = Request("POST", "/v1/jobs", headers={"Idempotency-Key": "k"})
    assert world.run(world.delivery(A, B, retries=1).send(keyed, 60)) == GOOD
    assert world.pauses == [1] * 9
    answers = [refusal(409, retry_after="1")]
    with pytest.raises(errors.Conflict):
        world.run(world.delivery(A).send(GET, 60))


@pytest.mark.parametrize("retries", [0, 2])
def test_a_call_is_repeated_so_many_times_and_no_more(retries: int) -> None:
    world = World(dead(A, B))
    with pytest.raises(errors.Unavailable):
        world.run(world.delivery(A, B, retries=retries).send(GET, 60))
    assert len(world.sent) == 1 + retries
    answers = [refusal(429, retry_after="1"), GOOD]
    world = World(lambda _: answers.pop(0))
    if retries:
        assert world.run(world.delivery(A, retries=retries).send(GET, 60)) == GOOD
    else:
        with pytest.raises(errors.LimitExceeded):
            world.run(world.delivery(A, retries=retries).send(GET, 60))


@pytest.mark.parametrize("url", ["front:8080", "ftp://front", "http://", "http://front/?q=1"])
def test_what_is_no_url_of_a_front_is_refused_at_once(url: str) -> None:
    with pytest.raises(ValueError, match="not an http"):
        Fronts(url)
    with pytest.raises(ValueError, match="needs the URL"):
        Fronts([])
