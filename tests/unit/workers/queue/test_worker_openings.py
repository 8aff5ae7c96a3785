"""Each model's queue is opened by one task at a time, as often as is requested."""

from workers.queue.openings import LONGEST_PAUSE_S, Openings


def test_who_asks_first_opens_for_all() -> None:
    openings = Openings()
    assert openings.request("a", is_anew=False)
    assert not openings.request("a", is_anew=True)
    assert not openings.request("a", is_anew=False)
    assert openings.take("a") is True, "one of them requested it"
    assert openings.take("a") is None
    assert openings.is_working("a")
    openings.end("a")
    assert openings.request("a", is_anew=False)
    assert openings.take("a") is False


def test_what_is_forgotten_is_not_opened() -> None:
    openings = Openings()
    openings.request("a", is_anew=True)
    openings.forget()
    assert openings.take("a") is None


def test_the_pause_grows_with_refusals_in_a_row() -> None:
    openings = Openings()
    pauses = [openings.pause_s("a")]
    for _ in range(9):
        openings.refused("a")
        pauses.append(openings.pause_s("a"))
    assert pauses[:2] == [0.0, 0.0], "the consumer was made anew"
    assert pauses == sorted(pauses)
    assert pauses[-1] == LONGEST_PAUSE_S
    openings.answered("a")
    assert openings.pause_s("a") == 0.0


def test_refusals_count_once_while_it_is_being_opened() -> None:
    openings = Openings()
    openings.refused("a")
    openings.request("a", is_anew=False)
    openings.refused("a")
    assert openings.pause_s("a") == 0.0
