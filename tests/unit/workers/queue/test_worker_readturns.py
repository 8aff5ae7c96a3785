"""Few queues that hold jobs are read at a time, and each has its turn."""

import pytest

from workers.queue.readturns import AT_ONCE, LONG_TURN_S, LONGEST_REST_S, ReadTurns

NOW_S = 100.0


def reading() -> ReadTurns[str]:
    """All turns are taken, by queues named ``r0`` and on."""
    turns: ReadTurns[str] = ReadTurns()
    assert all(turns.take(f"r{number}", "mid", 4, NOW_S) for number in range(AT_ONCE))
    return turns


def test_more_than_a_few_wait_for_their_turn_in_order() -> None:
    turns = reading()
    assert not turns.take("a", "mid", 5, NOW_S)
    assert not turns.take("b", "mid", 6, NOW_S)
    assert (turns.waiting("a"), turns.waiting("b"), turns.next(NOW_S)) == (5, 6, None)
    turns.end("r0", NOW_S)
    assert (turns.next(NOW_S), turns.next(NOW_S)) == (("a", 5), None)
    assert turns.is_reading("a")
    assert turns.waiting("a") == 0
    turns.end("r1", NOW_S)
    assert turns.next(NOW_S) == ("b", 6)


def test_queues_of_higher_priority_come_first() -> None:
    turns = reading()
    turns.take("low", "lo", 1, NOW_S)
    turns.take("high", "hi", 1, NOW_S)
    turns.end("r0", NOW_S)
    assert turns.next(NOW_S) == ("high", 1)


def test_a_queue_that_is_read_may_ask_for_more_unless_others_wait() -> None:
    turns = reading()
    assert turns.take("r0", "mid", 2, NOW_S)
    turns.take("a", "mid", 1, NOW_S)
    assert not turns.take("r0", "mid", 2, NOW_S), "it would never end"
    assert not turns.take("r0", "mid", 3, NOW_S)
    turns.end("r0", NOW_S)
    assert turns.next(NOW_S) == ("a", 1)
    turns.end("r1", NOW_S)
    assert turns.next(NOW_S) == ("r0", 5)


def test_a_queue_that_is_asked_no_more_gives_its_turn_and_its_place_up() -> None:
    turns = reading()
    turns.take("a", "mid", 1, NOW_S)
    turns.forget("a")
    turns.forget("r0")
    assert turns.next(NOW_S) is None
    assert turns.take("b", "mid", 1, NOW_S)


def test_after_a_long_turn_none_is_asked_for_as_long_again() -> None:
    turns = reading()
    turns.is_crowded = True
    turns.take("a", "mid", 1, NOW_S)
    later_s = NOW_S + 2 * LONG_TURN_S
    turns.end("r0", NOW_S)
    turns.end("r1", later_s)
    assert turns.next(later_s) is None
    assert not turns.take("b", "mid", 1, later_s), "nor one that does not wait yet"
    assert turns.rests_until_s == later_s + 2 * LONG_TURN_S
    assert turns.next(turns.rests_until_s) == ("a", 1)


def test_a_rest_is_no_longer_than_a_search_may_be() -> None:
    turns = reading()
    turns.is_crowded = True
    turns.end("r0", NOW_S + 60.0)
    assert turns.rests_until_s == NOW_S + 60.0 + LONGEST_REST_S


@pytest.mark.parametrize(("is_crowded", "took_s"), [(True, LONG_TURN_S / 2), (False, 5.0)])
def test_after_a_short_turn_or_where_requests_wait_the_next_begins_at_once(*, is_crowded: bool, took_s: float) -> None:
    turns = reading()
    turns.is_crowded = is_crowded
    turns.take("a", "mid", 1, NOW_S)
    turns.end("r0", NOW_S)
    turns.end("r1", NOW_S + took_s)
    assert turns.next(NOW_S + took_s) == ("a", 1)


def test_where_one_is_read_at_a_time_the_next_begins_when_the_last_is_over() -> None:
    turns = reading()
    turns.is_crowded = True
    turns.take("a", "mid", 1, NOW_S)
    turns.end("r0", NOW_S)
    assert turns.next(NOW_S) is None
    turns.end("r1", NOW_S)
    assert turns.next(NOW_S) == ("a", 1)
    assert turns.next(NOW_S) is None
