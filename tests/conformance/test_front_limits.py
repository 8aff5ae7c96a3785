"""Rate and quota as a Tyk counts them, and so the edge (``test_gateway_limits``). Every test has keys of its own."""

import uuid
from typing import Any

import pytest

from tests.conformance.conftest import Front, FrontMaker

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]


def key(**session: Any) -> dict[str, Any]:
    """What the auth hook says of a fresh key."""
    return {"id": f"k-{uuid.uuid4()}", "session": session}


def statuses(front: Front, auth: dict[str, Any], count: int) -> list[int]:
    return [front.ask({"auth": auth}).status_code for _ in range(count)]


def test_call_above_the_rate_is_429_and_post_is_not_called(front: Front) -> None:
    probe = {"tag": "rate", "auth": key(rate=5, per=60, last_updated="1")}
    answers = [front.ask(probe) for _ in range(6)]
    assert [answer.status_code for answer in answers] == [200] * 5 + [429]
    refused = answers[-1]
    assert refused.json()["code"] == "limit_exceeded"
    # An override has constant headers: when to come back is in X-RateLimit-Reset alone.
    assert refused.headers["retry-after"] == "1"
    assert front.seen({"post": {"calls_of": "rate"}})["calls"] == {"auth": 6, "post": 5}


def test_rate_headers_count_down_on_replies_and_on_429(front: Front) -> None:
    auth = key(rate=2, per=60, last_updated="1")
    answers = [front.ask({"auth": auth}) for _ in range(3)]
    assert [a.headers["x-ratelimit-remaining"] for a in answers] == ["1", "0", "0"]
    assert {a.headers["x-ratelimit-limit"] for a in answers} == {"2"}
    resets = {a.headers["x-ratelimit-reset"] for a in answers}
    assert all(reset.isdigit() for reset in resets)
    assert max(map(int, resets)) - min(map(int, resets)) <= 1


def test_key_without_limits_gets_no_rate_headers(front: Front) -> None:
    assert "x-ratelimit-limit" not in front.ask({"auth": key()}).headers


def test_new_version_stamp_brings_a_new_limit_at_once(front: Front) -> None:
    auth = key(rate=1, per=60, last_updated="1")
    assert statuses(front, auth, 2) == [200, 429]
    auth["session"] |= {"rate": 3, "last_updated": "2"}
    assert statuses(front, auth, 4) == [200, 200, 200, 429]


def test_higher_rate_under_the_same_stamp_changes_nothing(front: Front) -> None:
    auth = key(rate=1, per=60, last_updated="1")
    assert statuses(front, auth, 2) == [200, 429]
    auth["session"] |= {"rate": 3}
    assert statuses(front, auth, 1) == [429]


def test_window_opens_again_when_it_has_passed(front: Front) -> None:
    auth = key(rate=1, per=1, last_updated="1")
    assert statuses(front, auth, 2) == [200, 429]
    # Post of another key waits out the window inside the plugin.
    front.ask({"post": {"wait": 1.2}})
    assert statuses(front, auth, 1) == [200]


def test_quota_counts_down_and_then_refuses(front: Front) -> None:
    auth = key(quota_max=3, quota_renewal_rate=600)
    left = [front.seen({"auth": auth})["session"].get("quota_remaining", "0") for _ in range(3)]
    assert left == ["2", "1", "0"]
    refused = front.ask({"auth": auth})
    assert refused.status_code == 429
    assert refused.json()["code"] == "limit_exceeded"
    assert refused.headers["retry-after"] == "60"


def test_refused_calls_count_against_the_quota(front: Front) -> None:
    auth = key(quota_max=3, quota_renewal_rate=600)
    assert statuses(front, auth, 7) == [200] * 3 + [429] * 4
    auth["session"] |= {"quota_max": 6}
    assert statuses(front, auth, 1) == [429]
    auth["session"] |= {"quota_max": 9}
    assert statuses(front, auth, 2) == [200, 429]


def test_call_refused_for_its_rate_spends_no_quota(front: Front) -> None:
    auth = key(rate=1, per=60, last_updated="1", quota_max=2, quota_renewal_rate=600)
    assert statuses(front, auth, 3) == [200, 429, 429]
    auth["session"] |= {"last_updated": "2"}
    assert front.seen({"auth": auth})["session"].get("quota_remaining", "0") == "0"


def test_quota_renews_with_its_window(front: Front) -> None:
    auth = key(quota_max=1, quota_renewal_rate=1)
    assert statuses(front, auth, 2) == [200, 429]
    front.ask({"post": {"wait": 1.2}})
    assert statuses(front, auth, 1) == [200]


@pytest.mark.parametrize("tail", ["a", "ab", "abc"])
def test_keys_that_differ_only_at_the_end_have_limits_of_their_own(front: Front, tail: str) -> None:
    stem = f"k-{uuid.uuid4().hex}"
    limits = {"rate": 2, "per": 60, "last_updated": "1", "quota_max": 1, "quota_renewal_rate": 60}
    for name in (stem, stem + tail, stem + tail[:-1] + "z"):
        assert statuses(front, {"id": name, "session": limits}, 2) == [200, 429]


def test_direct_refusal_of_the_auth_hook_spends_nothing(front: Front) -> None:
    auth = key(quota_max=1, quota_renewal_rate=600)
    assert front.ask({"auth": auth | {"status": 401}}).status_code == 401
    assert statuses(front, auth, 2) == [200, 429]


def test_quota_survives_a_restart_of_the_gateway(new_front: FrontMaker) -> None:
    with new_front() as front:
        auth = key(quota_max=2, quota_renewal_rate=600)
        assert statuses(front, auth, 1) == [200]
        front.gateway.stop()
        front.gateway.start()
        assert statuses(front, auth, 2) == [200, 429]
