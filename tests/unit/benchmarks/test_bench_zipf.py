"""The calls of the benchmark of many models, and the hits that the policy alone would have."""

from collections import Counter

from benchmarks.zipf import policy


def test_the_least_recently_used_model_of_a_full_home_leaves_and_no_other_home_is_touched() -> None:
    homes = {"a": "one", "b": "one", "c": "one", "z": "two"}
    assert policy.hits("abacbaz", homes, 2) == [False, False, True, False, False, False, False]
    assert policy.hits("zabazb", homes, 2) == [False, False, False, True, True, True]


def test_a_model_asked_for_once_leaves_before_one_that_was_asked_for_again() -> None:
    homes = dict.fromkeys("abcd", "one")
    assert policy.hits("aabcda", homes, 2, per_s=0.05) == [False, True, False, False, False, True]


def test_the_calls_are_the_same_each_time_and_the_first_rank_is_called_about_twice_as_often_as_the_second() -> None:
    names = [f"m{number}" for number in range(500)]
    called = policy.called(names, 50_000)
    assert called == policy.called(names, 50_000)
    (_, first), (_, second), *_ = Counter(called).most_common(2)
    assert 1.6 < first / second < 2.2
