"""Few queues that hold jobs are read at a time, and each has its turn."""

from workers.queue.readturns import AT_ONCE, ReadTurns


def reading() -> ReadTurns[str]:
    """All turns are taken, by queues named ``r0`` and on."""
    turns: ReadTurns[str] = ReadTurns()
    assert all(turns.take(f"r{number}", "mid", 4) for number in range(AT_ONCE))
    return turns


def test_more_than_a_few_wait_for_their_turn_in_order() -> None:
    turns = reading()
    assert not turns.take("a", "mid", 5)
    assert not turns.take("b", "mid", 6)
    assert (turns.waiting("a"), turns.waiting("b"), turns.next()) == (5, 6, None)
    turns.end("r0")
    assert (turns.next(), turns.next()) == (("a", 5), None)
    assert turns.is_reading("a")
    assert turns.waiting("a") == 0
    turns.end("r1")
    assert turns.next() == ("b", 6)


def test_queues_of_higher_priority_come_first() -> None:
    turns = reading()
    turns.take("low", "lo", 1)
    turns.take("high", "hi", 1)
    turns.end("r0")
    assert turns.next() == ("high", 1)


def test_a_queue_that_is_read_may_ask_for_more_unless_others_wait() -> None:
    turns = reading()
    assert turns.take("r0", "mid", 2)
    turns.take("a", "mid", 1)
    assert not turns.take("r0", "mid", 2), "it would never end"
    assert not turns.take("r0", "mid", 3)
    turns.end("r0")
    assert turns.next() == ("a", 1)
    turns.end("r1")
    assert turns.next() == ("r0", 5)


def test_a_queue_that_is_asked_no_more_gives_its_turn_and_its_place_up() -> None:
    turns = reading()
    turns.take("a", "mid", 1)
    turns.forget("a")
    turns.forget("r0")
    assert turns.next() is None
    assert turns.take("b", "mid", 1)
