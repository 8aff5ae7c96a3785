"""Shares of what callers hold for a while."""

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.admission.pool import Pool, PoolShare
from signalbox.program.errors import LimitExceeded, Unavailable

SIZE = 16


def pool(size: int = SIZE) -> Pool:
    return Pool(size, bound="things", of_all="All gone", of_account="Yours are gone", mend="Wait.")


def fill(made: Pool, account: str, *, most: int = 0) -> int:
    """As much as one account can get."""
    while True:
        try:
            made.take(account, most=most)
        except LimitExceeded:
            return made.of(account)


def test_an_account_alone_gets_half_and_the_next_half_of_the_rest() -> None:
    made = pool()
    assert [fill(made, account) for account in "abc"] == [8, 4, 2]
    assert made.free == 2
    made.take("d")
    assert made.of("d") == 1


def test_a_share_that_was_given_to_an_account_is_no_more_than_is_free() -> None:
    made = pool()
    assert fill(made, "a", most=3) == 3
    assert fill(made, "b", most=1000) == 7


def test_past_its_share_an_account_is_told_so_and_past_all_everybody_is() -> None:
    made = pool(2)
    made.take("a")
    with pytest.raises(LimitExceeded) as mine:
        made.take("a")
    assert mine.value.facts == {"bound": "things", "held": 1, "limit": 1}
    made.take("b")
    with pytest.raises(Unavailable) as all_of_it:
        made.take("c")
    assert all_of_it.value.facts == {"bound": "things"}


def test_who_wants_nothing_gets_it_even_past_its_share() -> None:
    made = pool()
    fill(made, "a")
    fill(made, "b")
    with PoolShare(made, "a") as share:
        share.take(0)
        assert made.of("a") == 8


def test_what_is_held_in_a_block_is_free_after_it_however_it_ends() -> None:
    made = pool()

    def fail_inside() -> None:
        with PoolShare(made, "a") as share:
            share.take(5)
            assert (made.held, made.of("a")) == (5, 5)
            raise KeyError

    with pytest.raises(KeyError):
        fail_inside()
    assert (made.held, made.of("a")) == (0, 0)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(1, 6), st.booleans())))
def test_an_account_gets_what_it_asks_for_exactly_while_it_has_no_more_than_is_free(
    acts: list[tuple[str, int, bool]],
) -> None:
    made, held = pool(), Counter[str]()
    for account, units, is_taking in acts:
        if is_taking:
            free = SIZE - held.total()
            if held[account] + units <= free:
                made.take(account, units)
                held[account] += units
            else:
                with pytest.raises(LimitExceeded if units <= free else Unavailable):
                    made.take(account, units)
        elif held[account]:
            made.release(account, held[account])
            del held[account]
        assert made.held == held.total() <= SIZE
        assert all(made.of(each) == held[each] for each in "abcd")
