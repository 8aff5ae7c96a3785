"""Calls that come past no gateway are charged to their keys as a gateway would charge them."""

from dataclasses import dataclass, field
from typing import Any

import pytest

from gateway_plugin.edge import gatewayerrors as errors
from gateway_plugin.edge.admit import Admission
from gateway_plugin.edge.definition import load
from gateway_plugin.edge.limits import KeyLimits
from gateway_plugin.hooks.session import Session
from signalbox.program.errors import Forbidden, LimitExceeded, Unauthorized

HOOKED = load().hooked


@dataclass
class Clocked:
    """Admission and the clock that it reads."""

    now: float = 1000.0
    admission: Admission = field(init=False)

    def __post_init__(self) -> None:
        self.admission = Admission(KeyLimits(lambda: self.now, lambda: self.now), lambda: self.now)


def session(**fields: Any) -> Session:
    return Session(**{"token": "t", "last_updated": "1", **fields})


def test_a_key_without_limits_is_let_in() -> None:
    at = Clocked()
    for _ in range(100):
        at.admission.admit(session())


def test_a_call_above_the_rate_is_told_when_to_come_back() -> None:
    at, limited = Clocked(), session(rate=2, per=10)
    at.admission.admit(limited)
    at.now += 4
    at.admission.admit(limited)
    with pytest.raises(LimitExceeded) as refused:
        at.admission.admit(limited)
    assert refused.value.retry_after_s == 6
    at.now += 6.1
    at.admission.admit(limited)


@pytest.mark.parametrize(("renewal_s", "left_s"), [(60, 60), (0, None)])
def test_a_call_above_the_quota_is_told_when_it_renews(renewal_s: int, left_s: float | None) -> None:
    at, limited = Clocked(), session(quota_max=1, quota_renewal_rate=renewal_s)
    at.admission.admit(limited)
    with pytest.raises(LimitExceeded) as refused:
        at.admission.admit(limited)
    assert refused.value.retry_after_s == left_s


@pytest.mark.parametrize(("fields", "error"), [({"is_inactive": True}, Forbidden), ({"expires": 999}, Unauthorized)])
def test_a_key_that_has_ended_is_refused_and_not_charged(fields: dict[str, Any], error: type[Exception]) -> None:
    at = Clocked()
    with pytest.raises(error):
        at.admission.admit(session(rate=1, per=10, **fields))
    at.admission.admit(session(rate=1, per=10))


def test_calls_of_all_apis_and_those_without_a_gateway_share_one_rate() -> None:
    at, limited = Clocked(), session(rate=3, per=10)
    assert at.admission.judge(limited, HOOKED).error is None
    checked = load().upstreams[-1].checked
    assert checked is not None
    assert at.admission.judge(limited, checked).error is None
    at.admission.admit(limited)
    judged = at.admission.judge(limited, HOOKED)
    assert (judged.error, judged.left_s) == (errors.RATE_EXCEEDED, 10)


def test_a_key_of_other_apis_is_refused_before_it_is_charged() -> None:
    at = Clocked()
    judged = at.admission.judge(session(rate=1, per=10, api_ids=frozenset({"another"})), HOOKED)
    assert (judged.error, judged.rate) == (errors.API_DISALLOWED, None)
