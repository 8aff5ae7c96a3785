import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire.eviction import AGAIN_S, Loaded, explain, order

MB = 2**20


def loaded(
    name: str, size_bytes: int = MB, idle_s: float = 5.0, before_s: float | None = 60.0, **more: object
) -> Loaded:
    return Loaded((name, 1), size_bytes, idle_s, before_s)._replace(**more)  # type: ignore[arg-type]


def names(*known: Loaded) -> list[str]:
    return [one.key[0] for one in order(known)]


def test_of_equal_ones_the_least_recently_used_leaves_first() -> None:
    assert names(loaded("new", idle_s=1), loaded("old", idle_s=9), loaded("middle", idle_s=4)) == [
        "old",
        "middle",
        "new",
    ]


def test_of_equally_old_ones_the_larger_leaves_first() -> None:
    assert names(loaded("small"), loaded("large", 9 * MB)) == ["large", "small"]


def test_of_equally_old_ones_what_is_dear_to_bring_back_stays_longer() -> None:
    assert names(loaded("dear", return_s=60.0), loaded("cheap", return_s=2.0)) == ["cheap", "dear"]


def test_age_size_and_cost_are_weighed_against_each_other() -> None:
    dear = loaded("dear", 10 * MB, idle_s=30.0, return_s=60.0)  # 5 MB s for each second that it saves
    assert names(dear, loaded("cheap", MB, idle_s=4.0, return_s=1.0)) == ["dear", "cheap"]
    assert names(dear, loaded("cheap", MB, idle_s=6.0, return_s=1.0)) == ["cheap", "dear"]


def test_what_was_asked_for_once_leaves_before_what_was_asked_for_again_however_small_recent_and_dear_it_is() -> None:
    once = loaded("once", 1, idle_s=0.0, before_s=None, return_s=600.0)
    assert names(loaded("again", 900 * MB, idle_s=1800.0), once) == ["once", "again"]


def test_a_walk_over_all_models_pushes_out_itself_and_nothing_that_is_in_use() -> None:
    memory = [loaded(f"used{n}", idle_s=300.0) for n in range(3)]
    memory += [loaded(f"walk{n}", idle_s=10.0 - n, before_s=None) for n in range(3)]
    assert names(*memory)[:3] == ["walk0", "walk1", "walk2"]


def test_uses_of_more_than_an_hour_ago_protect_nothing() -> None:
    stale = loaded("stale", idle_s=5000.0, before_s=AGAIN_S + 1500)
    assert names(loaded("once", idle_s=1.0, before_s=None), stale) == ["stale", "once"]


def test_what_is_spare_leaves_first_and_what_jobs_wait_for_last() -> None:
    known = [
        loaded("waited, and spare", is_waited=True, is_spare=True),
        loaded("placed"),
        loaded("once", before_s=None),
        loaded("spare", idle_s=0.0, is_spare=True),
    ]
    assert names(*known) == ["spare", "once", "placed", "waited, and spare"]


def test_what_is_in_use_or_pinned_stays() -> None:
    assert names(loaded("used", is_used=True), loaded("pinned", is_pinned=True, is_spare=True), loaded("idle")) == [
        "idle"
    ]


def test_costs_below_a_tenth_of_a_second_make_no_difference() -> None:
    assert names(loaded("a", idle_s=2, return_s=0.0), loaded("b", idle_s=1, return_s=0.001)) == ["a", "b"]


@pytest.mark.parametrize(
    ("one", "why"),
    [
        (loaded("a", 1536 * MB, idle_s=600.0, return_s=12.4), "idle for 10 min, 1.5 GiB, 12 s to bring back"),
        (
            loaded("a", before_s=None),
            "not asked for twice within an hour; idle for 5.0 s, 1.0 MiB, no time to bring back",
        ),
        (
            loaded("a", is_spare=True, idle_s=3 * 3600.0),
            "placed elsewhere or no longer what requests get; idle for 3 h, 1.0 MiB, no time to bring back",
        ),
        (
            loaded("a", is_waited=True),
            "jobs wait for it, so it leaves last; idle for 5.0 s, 1.0 MiB, no time to bring back",
        ),
        (loaded("a", is_used=True), "stays: in use"),
        (loaded("a", is_pinned=True), "stays: pinned"),
    ],
)
def test_each_reason_is_told_in_words(one: Loaded, why: str) -> None:
    (said,) = explain([one])
    assert (said.why, said.turn) == (why, 1 if one.may_leave else 0)


@given(
    st.lists(
        st.builds(
            Loaded,
            key=st.tuples(st.text(max_size=3), st.integers(1, 5)),
            size_bytes=st.integers(0, 10**12),
            idle_s=st.floats(0, 10**7),
            before_s=st.none() | st.floats(0, 10**7),
            return_s=st.floats(0, 10**4),
            is_spare=st.booleans(),
            is_pinned=st.booleans(),
            is_used=st.booleans(),
            is_waited=st.booleans(),
        )
    )
)
def test_everything_is_told_once_in_turn_and_what_stays_has_none(known: list[Loaded]) -> None:
    told = explain(known)
    leaving = [one for one in known if one.may_leave]
    assert sorted(said.key for said in told) == sorted(one.key for one in known)
    assert [said.turn for said in told] == [*range(1, len(leaving) + 1), *[0] * (len(known) - len(leaving))]
    assert [one.key for one in order(known)] == [said.key for said in told if said.turn]
