"""Rate and quota with a clock of our own."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway_plugin.edge import limits
from gateway_plugin.edge.limits import KeyLimits
from gateway_plugin.hooks.session import Session


@dataclass
class Clocked:
    """The limits and the clock they read."""

    now: float = 100.0
    limits: KeyLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = KeyLimits(lambda: self.now, lambda: self.now + 1_000_000)

    def takes(self, count: int, key: str = "k", **session: Any) -> list[bool]:
        made = Session(**{"rate": 2, "per": 10, "last_updated": "1", **session})
        taken = [self.limits.take(key, made) for _ in range(count)]
        assert None not in taken
        return [each.is_allowed for each in taken if each]

    def spends(self, count: int, key: str = "k", **session: Any) -> list[bool]:
        made = Session(**{"quota_max": 2, "quota_renewal_rate": 60, **session})
        spent = [self.limits.spend(key, made) for _ in range(count)]
        assert None not in spent
        return [each.is_allowed for each in spent if each]


def test_window_opens_with_its_first_call_and_again_when_it_has_passed() -> None:
    at = Clocked()
    assert at.takes(3) == [True, True, False]
    at.now += 10
    assert at.takes(1) == [False]
    at.now += 0.1
    assert at.takes(3) == [True, True, False]


def test_rate_tells_what_is_left_and_when_it_comes_back() -> None:
    at = Clocked()
    session = Session(rate=2, per=10, last_updated="1")
    first = at.limits.take("k", session)
    at.now += 4
    second = at.limits.take("k", session)
    assert first is not None
    assert second is not None
    assert (first.limit, first.remaining, first.reset_at) == (2, 1, 1_000_110)
    assert (second.remaining, second.reset_at) == (0, 1_000_110)


def test_a_refused_call_is_told_how_long_its_window_lasts() -> None:
    at = Clocked()
    at.takes(2)
    at.now += 4
    refused = at.limits.take("k", Session(rate=2, per=10, last_updated="1"))
    assert refused is not None
    assert (refused.is_allowed, refused.left_s) == (False, 6)


@pytest.mark.parametrize(("renewal_s", "left_s"), [(60, 10), (0, None)])
def test_a_call_refused_by_its_quota_is_told_when_that_renews(renewal_s: int, left_s: float | None) -> None:
    at = Clocked()
    at.spends(2, quota_renewal_rate=renewal_s)
    at.now += 50
    session = Session(quota_max=2, quota_renewal_rate=renewal_s)
    spent = at.limits.spend("k", session)
    assert spent is not None
    assert (spent.is_allowed, spent.left_s) == (False, left_s)


def test_no_rate_and_no_quota_are_no_limits() -> None:
    limits_ = Clocked().limits
    assert limits_.take("k", Session(rate=0, per=10)) is None
    assert limits_.spend("k", Session(quota_max=-1)) is None


def test_keys_and_version_stamps_have_windows_of_their_own() -> None:
    at = Clocked()
    assert at.takes(3) == [True, True, False]
    assert at.takes(1, key="kk") == [True]
    assert at.takes(1, last_updated="2") == [True]


def test_window_keeps_the_capacity_it_began_with() -> None:
    at = Clocked()
    assert at.takes(3) == [True, True, False]
    assert at.takes(1, rate=100) == [False]


def test_refused_calls_count_against_the_quota() -> None:
    at = Clocked()
    assert at.spends(5) == [True, True, False, False, False]
    assert at.spends(1, quota_max=5) == [False]
    assert at.spends(1, quota_max=7) == [True]


def test_quota_renews_when_its_window_has_passed() -> None:
    at = Clocked()
    assert at.spends(3) == [True, True, False]
    at.now += 60
    assert at.spends(3) == [True, True, False]


def test_quota_without_renewal_never_comes_back() -> None:
    at = Clocked()
    assert at.spends(3, quota_renewal_rate=0) == [True, True, False]
    at.now += 1e9
    assert at.spends(1, quota_renewal_rate=0) == [False]


def test_a_call_learns_what_is_left_of_its_quota() -> None:
    spent = Clocked().limits.spend("k", Session(quota_max=2, quota_renewal_rate=60))
    assert spent is not None
    assert (spent.remaining, spent.renews_at) == (1, 1_000_160)


def test_tables_forget_what_has_run_out(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "_SWEEP_AT", 10)
    at = Clocked()
    at.limits._sweep_at = 10
    for number in range(100):
        at.now += 11
        at.takes(1, key=f"k{number}")
        at.spends(1, key=f"k{number}")
    assert len(at.limits._windows) <= 11
    assert len(at.limits._counters) <= 17
