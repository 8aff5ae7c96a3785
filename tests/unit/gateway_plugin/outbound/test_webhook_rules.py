"""When deliveries are tried again, who may send at once, and that signatures are those of Standard Webhooks."""

import time
from base64 import b64encode

import pytest
from hypothesis import given
from hypothesis import strategies as st
from standardwebhooks import Webhook as Verifier

from gateway_plugin.outbound.hooks.places import Places, Share
from gateway_plugin.outbound.hooks.schedule import Decision, Outcome, decide, number
from gateway_plugin.outbound.hooks.signing import message_id, signed
from gateway_plugin.outbound.settings import OutboundSettings
from signalbox.program.errors import Misconfigured

DAY_S = 86_400
RETRIES_S = OutboundSettings().hook_retries_s


def test_a_delivery_is_tried_for_more_than_five_days() -> None:
    assert RETRIES_S[:2] == (5, 300)
    assert 5 * DAY_S < sum(RETRIES_S) * 0.99 < OutboundSettings().ends_kept_s


@pytest.mark.parametrize(
    ("status", "attempt", "expected"),
    [
        (200, 1, Decision(Outcome.DELIVERED)),
        (204, 12, Decision(Outcome.DELIVERED)),
        (410, 1, Decision(Outcome.GONE)),
        (500, 1, Decision(Outcome.FAILED, 5)),
        (302, 2, Decision(Outcome.FAILED, 300)),
        (0, len(RETRIES_S), Decision(Outcome.FAILED, DAY_S)),
        (0, len(RETRIES_S) + 1, Decision(Outcome.GIVEN_UP)),
        (404, 99, Decision(Outcome.GIVEN_UP)),
    ],
)
def test_the_status_and_the_attempt_decide(status: int, attempt: int, expected: Decision) -> None:
    assert decide(status, attempt, RETRIES_S, 0.5) == expected


@pytest.mark.parametrize(
    ("times", "age_s", "expected"), [(1, 9e9, 1), (9, 4.4, 1), (9, 4.5, 2), (2, 9e9, 2), (99, 9e9, len(RETRIES_S) + 1)]
)
def test_no_attempt_counts_before_its_time(times: int, age_s: float, expected: int) -> None:
    assert number(times, age_s, RETRIES_S) == expected


def test_jitter_is_a_tenth_either_way() -> None:
    assert [round(decide(500, 2, RETRIES_S, chance).delay_s) for chance in (0.0, 1.0)] == [270, 330]


@given(st.binary(min_size=24, max_size=64), st.binary(max_size=200).map(b64encode))
def test_any_secret_and_body_is_verified(secret: bytes, text: bytes) -> None:
    whsec = f"whsec_{b64encode(secret).decode()}"
    body = b'{"a":"%b"}' % text
    headers = signed([whsec], message_id("h1", "j1"), time.time(), body)
    assert Verifier(whsec).verify(body, headers) == {"a": text.decode()}


def test_a_secret_that_is_no_base64_is_refused() -> None:
    with pytest.raises(Misconfigured):
        signed(["whsec_?"], "m", 1.0, b"")


def test_a_full_house_leaves_each_webhook_one_place() -> None:
    places = Places(2)
    slow, other = Share(places, 8), Share(places, 8)
    assert [slow.take() for _ in range(4)] == [True, True, True, False]
    assert [other.take(), other.take()] == [True, False]
    slow.keep(1)
    assert places.free == 2
    slow.keep(0)
    assert (places.free, other.take(), slow.take()) == (2, True, True)


def test_a_webhook_holds_no_more_places_than_its_most() -> None:
    places = Places(64)
    share = Share(places, 8)
    assert sum(share.take() for _ in range(20)) == 8
    assert places.free == 64 - 7
