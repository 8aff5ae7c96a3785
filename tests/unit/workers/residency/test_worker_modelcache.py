from contextlib import suppress
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program.errors import OutOfMemory
from signalbox.wire.eviction import ResidencyUse
from workers.residency.cache import ModelCache


def cache(**sizes: int) -> ModelCache:
    """A cache whose clock is a second further each time that it is looked at."""
    seconds = count()
    made = ModelCache(100, lambda: float(next(seconds)))
    for name, size in sizes.items():
        made.reserve((name, 1), size)
        made.mark_ready((name, 1))
    return made


def test_what_fits_evicts_nothing() -> None:
    assert cache(a=40).evictions(60) == []


def test_the_least_recently_used_leaves_first_and_only_as_much_as_needed() -> None:
    made = cache(a=40, b=30, c=30)
    made.pin(("a", 1))
    made.unpin(("a", 1))
    assert made.evictions(20) == [("b", 1)]
    assert made.evictions(50) == [("b", 1), ("c", 1)]


def test_a_version_that_comes_back_was_asked_for_before_and_its_neighbour_that_was_not_leaves_first() -> None:
    now_s = 0.0
    made = ModelCache(100, lambda: now_s)
    for name in "aba":
        for key in made.evictions(60):
            made.drop(key)
        made.reserve((name, 1), 60)
        made.mark_ready((name, 1))
        made.pin((name, 1))
        made.unpin((name, 1))
        now_s += 30.0
    made.reserve(("c", 1), 40)
    made.mark_ready(("c", 1))
    made.pin(("c", 1))
    made.unpin(("c", 1))
    now_s += 1.0
    assert made.evictions(30) == [("c", 1)], "though it is smaller and was used later"


def test_the_run_of_a_trial_is_no_use() -> None:
    now_s = 0.0
    made = ModelCache(100, lambda: now_s)
    made.reserve(("a", 1), 10)
    made.came_in(("a", 1), 2.5)
    made.mark_ready(("a", 1))
    now_s = 20.0
    made.pin(("a", 1), is_asked=False)
    assert [r.use for r in made.residencies()] == [ResidencyUse(20.0, None, 2.5, is_used=True)]
    made.unpin(("a", 1))
    made.pin(("a", 1))
    now_s = 40.0
    made.unpin(("a", 1))
    now_s = 45.0
    made.pin(("a", 1))
    assert [r.use for r in made.residencies()] == [ResidencyUse(0.0, 25.0, 2.5, is_used=True)]


def test_no_more_versions_are_in_memory_at_once_than_the_setting_says() -> None:
    seconds = count()
    made = ModelCache(100, lambda: float(next(seconds)), most=2)
    for name in "ab":
        assert made.evictions(1) == []
        made.reserve((name, 1), 1)
        made.mark_ready((name, 1))
    assert made.excess() == []
    assert made.evictions(1) == [("a", 1)]
    assert made.has_room(1, is_waited=lambda _: False)
    assert not made.has_room(1, is_waited=lambda _: True)
    assert not made.fits_freely(1, is_spare=lambda _: False)
    assert made.fits_freely(1, is_spare=lambda key: key[0] == "b")
    for name in "ab":
        made.pin((name, 1))
    made.fail(("broken", 1), "takes no place")
    with pytest.raises(OutOfMemory, match="SIGNALBOX_WORKER_MOST_VERSIONS"):
        made.evictions(1)


def test_what_is_pinned_stays_as_far_as_pins_may_take_the_memory_and_the_first_one_pinned_has_the_room() -> None:
    seconds = count()
    made = ModelCache(100, lambda: float(next(seconds)), pin_bytes=50)
    for name in "abc":
        made.reserve((name, 1), 30)
        made.mark_ready((name, 1))
    made.pinned = lambda: [("a", 1), ("c", 1), ("absent", 1)]
    assert made.kept() == {("a", 1)}, "both together take more"
    assert made.evictions(70, is_spare=lambda key: key[0] == "a") == [("b", 1), ("c", 1)]
    with pytest.raises(OutOfMemory):
        made.evictions(71)
    assert [r.use.is_pinned for r in made.residencies() if r.use] == [True, False, False]
    assert not made.has_room(71, is_waited=lambda _: False)
    assert not made.fits_freely(11, is_spare=lambda key: key[0] == "a")


def test_what_was_dear_to_bring_here_stays_longer() -> None:
    made = cache(a=40, b=40)
    made.came_in(("a", 1), 30.0)
    assert made.evictions(40) == [("b", 1)]


def test_what_is_in_use_or_loading_stays() -> None:
    made = cache(a=40)
    made.pin(("a", 1))
    made.reserve(("b", 1), 50)
    with pytest.raises(OutOfMemory, match="memory budget"):
        made.evictions(20)


def test_a_loading_version_is_not_ready_and_a_settled_one_is() -> None:
    made = ModelCache(100)
    made.reserve(("a", 1), 10)
    assert ("a", 1) not in made
    made.measure(("a", 1), 12)
    made.mark_ready(("a", 1))
    assert ("a", 1) in made
    assert made.used_bytes == 12


def test_a_failed_load_takes_no_room_and_tells_why() -> None:
    made = ModelCache(100)
    made.reserve(("a", 1), 90)
    made.fail(("a", 1), "no such file")
    assert ("a", 1) not in made
    assert made.failure(("a", 1)) == "no such file"
    assert made.evictions(100) == []
    assert [r.state for r in made.residencies()] == ["failed"]


def test_unpinning_after_the_runner_is_gone_is_harmless() -> None:
    made = cache(a=40)
    made.pin(("a", 1))
    made.clear()
    made.unpin(("a", 1))
    assert made.residencies() == ()


def test_the_true_size_is_booked_before_a_version_is_ready_and_what_is_idle_makes_up_for_it() -> None:
    made = cache(a=40, b=40)
    made.reserve(("c", 1), 20)
    made.measure(("c", 1), 50)
    assert made.is_over
    assert ("c", 1) not in made, "nothing runs on it while the budget is passed"
    assert made.excess() == [("a", 1)]
    made.drop(("a", 1))
    assert made.used_bytes == 90
    made.mark_ready(("c", 1))
    assert ("c", 1) in made


def test_a_failure_is_told_until_its_next_try_whoever_needs_room() -> None:
    made = cache(a=60)
    made.fail(("broken", 1), "no such file")
    assert made.evictions(100) == [("a", 1)]


@given(
    st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 60), st.integers(1, 130)), max_size=30),
    st.lists(st.sampled_from("abcdef"), max_size=30),
)
def test_the_budget_is_passed_between_a_load_and_the_eviction_after_it_only(
    loads: list[tuple[str, int, int]], used: list[str]
) -> None:
    """What a load takes is known when it has ended: sizes on the disk are only where room is made from."""
    made = ModelCache(100)
    uses = iter(used)
    for name, stored, measured in loads:
        key = (name, 1)
        if key in made:
            continue
        in_use = [user for user in [(next(uses, "-"), 1)] if user in made]
        for user in in_use:
            made.pin(user)
        with suppress(OutOfMemory):
            for idle in made.evictions(stored):
                made.drop(idle)
            assert made.used_bytes + stored <= 100
            made.reserve(key, stored)
            made.measure(key, measured)
            for idle in made.excess():
                made.drop(idle)
            left = sum(made.size_bytes(user) for user in in_use)
            assert not made.is_over or made.used_bytes == measured + left, "all that is idle left"
        for user in in_use:
            made.unpin(user)
        for idle in made.excess():
            made.drop(idle)
        made.drop(key) if made.is_over else made.mark_ready(key)
        assert made.used_bytes <= 100


def test_what_is_placed_elsewhere_leaves_first_and_is_told_as_spare() -> None:
    made = cache(a=40, b=40)
    made.pin(("a", 1))
    made.unpin(("a", 1))  # the most recently used, and yet it goes
    assert made.evictions(40, is_spare=lambda key: key[0] == "a") == [("a", 1)]
    reported = made.residencies(is_spare=lambda key: key[0] == "a", max_rows=lambda _: 8)
    assert [(r.model, r.state, r.max_rows) for r in reported] == [("a", "spare", 8), ("b", "ready", 8)]
