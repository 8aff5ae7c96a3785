"""What ends a websocket that brings too much or nothing, and how it hears that its listener stops."""

from signalbox.front.sockets import FLOODS, SILENT, OpenSocket, SocketBounds

BOUNDS = SocketBounds(lambda _: True, silence_s=30.0, most_bytes=1000)


def opened(*, is_draining: bool = False) -> OpenSocket:
    return OpenSocket(BOUNDS, 0.0, is_draining=is_draining)


def check(one: OpenSocket, now: float, *, is_stuck: bool = False, is_unread: bool = False) -> str:
    return one.check(now, is_stuck=is_stuck, is_unread=is_unread)


def test_who_sends_nothing_is_gone_after_the_silence() -> None:
    one = opened()
    assert check(one, 30.0) == ""
    assert check(one, 30.5) == SILENT


def test_each_sign_of_life_begins_the_silence_anew() -> None:
    one = opened()
    for now in range(0, 300, 20):
        one.heard(6)
        assert check(one, float(now)) == ""
    assert check(one, 310.0) == ""
    assert check(one, 311.0) == SILENT


def test_who_is_not_read_is_not_silent() -> None:
    one = opened()
    assert check(one, 100.0, is_unread=True) == ""
    assert check(one, 129.0) == ""
    assert check(one, 131.0) == SILENT


def test_a_flood_ends_it_and_as_much_over_many_seconds_does_not() -> None:
    one = opened()
    for now in range(10):
        one.heard(1000)
        assert check(one, float(now)) == ""
    one.heard(1001)
    assert check(one, 10.0) == FLOODS


def test_what_comes_while_the_client_takes_nothing_adds_up() -> None:
    one = opened()
    one.heard(600)
    assert check(one, 1.0, is_stuck=True) == ""
    one.heard(600)
    assert check(one, 2.0, is_stuck=True) == FLOODS


def test_a_listener_that_stops_tells_once_also_who_comes_late() -> None:
    told: list[str] = []
    one, late, deaf = opened(), opened(is_draining=True), opened()
    one.on_drain(lambda: told.append("one"))
    one.drain()
    one.drain()
    late.on_drain(lambda: told.append("late"))
    deaf.drain()
    assert told == ["one", "late"]
