"""An account's oldest ends go where it has more than its share, and nobody else's."""

from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.outbound.shares import AccountShares

MOST = 1000


def test_the_oldest_tenth_goes_at_once_and_what_is_below_the_share_stays() -> None:
    shares = AccountShares(MOST)
    for seq in range(1, 12):
        shares.add("a", seq, 100)
    shares.add("b", 12, 1000)
    assert list(shares.above()) == ["a"]
    assert shares.give_up("a") == 2
    assert (shares.held("a"), shares.held("b")) == (900, 1000)
    assert list(shares.above()) == []


def test_the_largest_account_makes_room_though_none_has_more_than_its_share() -> None:
    shares = AccountShares(MOST)
    assert shares.largest() is None
    shares.add("a", 1, 100)
    shares.add("b", 2, 100)
    shares.add("b", 3, 100)
    assert shares.largest() == "b"
    assert shares.give_up("b") == 2
    assert shares.held("b") == 100
    assert shares.give_up("b") == 3
    assert shares.largest() == "a"


def test_what_the_stream_let_go_by_its_age_counts_no_more() -> None:
    shares = AccountShares(MOST)
    for seq in range(1, 21):
        shares.add("a", seq, 100)
    shares.add("b", 21, 10)
    shares.forget_below(16)
    assert (shares.held("a"), shares.held("b")) == (500, 10)
    shares.forget_below(22)
    assert shares.largest() is None


@given(st.lists(st.tuples(st.sampled_from("abc"), st.integers(1, 400)), max_size=200))
def test_whatever_comes_each_account_keeps_its_newest_and_no_more_than_its_share(
    written: list[tuple[str, int]],
) -> None:
    shares = AccountShares(MOST)
    kept: dict[str, list[tuple[int, int]]] = {"a": [], "b": [], "c": []}
    for seq, (account, size) in enumerate(written, 1):
        shares.add(account, seq, size)
        kept[account].append((seq, size))
        for above in list(shares.above()):
            assert above == account
            upto = shares.give_up(above)
            kept[above] = [one for one in kept[above] if one[0] > upto]
        for name, ends in kept.items():
            assert shares.held(name) == sum(size for _, size in ends) <= MOST
        assert kept[account], "the newest stays"
