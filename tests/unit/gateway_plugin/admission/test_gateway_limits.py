"""Rate and quota of calls that come past no gateway, with a clock of our own."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway_plugin.admission import limits
from gateway_plugin.admission.limits import KeyLimits
from signalbox.program.errors import LimitExceeded
from signalbox.wire.keydocs import ApiKey


@dataclass
class Clocked:
    """The limits and the clock they read."""

    now: float = 100.0
    limits: KeyLimits = field(init=False)

    def __post_init__(self) -> None:
        self.limits = KeyLimits(lambda: self.now, lambda: self.now + 1_000_000)

    def takes(self, count: int, **fields: Any) -> list[bool]:
        made = limited(**{"rate": 2, "per_s": 10, "updated_at": 1.0, **fields})
        taken = [self.limits.take(made) for _ in range(count)]
        assert None not in taken
        return [each.is_allowed for each in taken if each]

    def spends(self, count: int, **fields: Any) -> list[bool]:
        made = limited(**{"quota": 2, "quota_window_s": 60, **fields})
        spent = [self.limits.spend(made) for _ in range(count)]
        assert None not in spent
        return [each.is_allowed for each in spent if each]


def limited(**fields: Any) -> ApiKey:
    return ApiKey(**{"id": "k", "account_id": "k", "hmac": "", **fields})


def test_window_opens_with_its_first_call_and_again_when_it_has_passed() -> None:
    at = Clocked()
    assert at.takes(3) == [True, True, False]
    at.now += 10
    assert at.takes(1) == [False]
    at.now += 0.1
    assert at.takes(3) == [True, True, False]


def test_rate_tells_what_is_left_and_when_it_comes_back() -> None:
    at = Clocked()
    key = limited(rate=2, per_s=10)
    first = at.limits.take(key)
    at.now += 4
    second = at.limits.take(key)
    assert first is not None
    assert second is not None
    assert (first.limit, first.remaining, first.reset_at) == (2, 1, 1_000_110)
    assert (second.remaining, second.reset_at) == (0, 1_000_110)


def test_a_refused_call_is_told_how_long_its_window_lasts() -> None:
    at = Clocked()
    at.takes(2)
    at.now += 4
    refused = at.limits.take(limited(rate=2, per_s=10, updated_at=1.0))
    assert refused is not None
    assert (refused.is_allowed, refused.left_s) == (False, 6)


@pytest.mark.parametrize(("renewal_s", "left_s"), [(60, 10), (0, None)])
def test_a_call_refused_by_its_quota_is_told_when_that_renews(renewal_s: int, left_s: float | None) -> None:
    at = Clocked()
    at.spends(2, quota_window_s=renewal_s)
    at.now += 50
    spent = at.limits.spend(limited(quota=2, quota_window_s=renewal_s))
    assert spent is not None
    assert (spent.is_allowed, spent.left_s) == (False, left_s)


def test_no_rate_and_no_quota_are_no_limits() -> None:
    limits_ = Clocked().limits
    for _ in range(100):
        assert limits_.charge(limited()) is None
    assert limits_.take(limited(per_s=10)) is None
    assert limits_.spend(limited()) is None


def test_keys_and_version_stamps_have_windows_of_their_own() -> None:
    at = Clocked()
    assert at.takes(3) == [True, True, False]
    assert at.takes(1, id="kk") == [True]
    assert at.takes(1, updated_at=2.0) == [True]


def test_window_keeps_the_capacity_it_began_with() -> None:
    at = Clocked()
    assert at.takes(3) == [True, True, False]
    assert at.takes(1, rate=100) == [False]


def test_refused_calls_count_against_the_quota() -> None:
    at = Clocked()
    assert at.spends(5) == [True, True, False, False, False]
    assert at.spends(1, quota=5) == [False]
    assert at.spends(1, quota=7) == [True]


def test_quota_renews_when_its_window_has_passed() -> None:
    at = Clocked()
    assert at.spends(3) == [True, True, False]
    at.now += 60
    assert at.spends(3) == [True, True, False]


def test_quota_without_renewal_never_comes_back() -> None:
    at = Clocked()
    assert at.spends(3, quota_window_s=0) == [True, True, False]
    at.now += 1e9
    assert at.spends(1, quota_window_s=0) == [False]


def test_a_call_above_the_rate_is_told_when_to_come_back() -> None:
    at, key = Clocked(), limited(rate=2, per_s=10)
    at.limits.charge(key)
    at.now += 4
    at.limits.charge(key)
    with pytest.raises(LimitExceeded) as refused:
        at.limits.charge(key)
    assert (refused.value.retry_after_s, refused.value.facts["bound"]) == (6, "rate")
    at.now += 6.1
    found = at.limits.charge(key)
    assert found is not None
    assert found.headers == {
        "X-Ratelimit-Limit": "2",
        "X-Ratelimit-Remaining": "1",
        "X-Ratelimit-Reset": str(int(at.now) + 1_000_010),
    }


@pytest.mark.parametrize(("renewal_s", "left_s"), [(60, 60), (0, None)])
def test_a_call_above_the_quota_is_told_when_it_renews(renewal_s: int, left_s: float | None) -> None:
    at, key = Clocked(), limited(quota=1, quota_window_s=renewal_s)
    at.limits.charge(key)
    with pytest.raises(LimitExceeded) as refused:
        at.limits.charge(key)
    assert (refused.value.retry_after_s, refused.value.facts["bound"]) == (left_s, "quota")


def test_a_call_refused_for_its_rate_spends_no_quota() -> None:
    at, key = Clocked(), limited(rate=1, per_s=10, quota=2)
    at.limits.charge(key)
    with pytest.raises(LimitExceeded, match="rate"):
        at.limits.charge(key)
    at.now += 10.1
    at.limits.charge(key)


def test_tables_forget_what_has_run_out(monkeypatch: Any) -> None:
    monkeypatch.setattr(limits, "_SWEEP_AT", 10)
    at = Clocked()
    at.limits._sweep_at = 10
    for number in range(100):
        at.now += 11
        at.takes(1, id=f"k{number}")
        at.spends(1, id=f"k{number}")
    assert len(at.limits._windows) <= 11
    assert len(at.limits._counters) <= 17
