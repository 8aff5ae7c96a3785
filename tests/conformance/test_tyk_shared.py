"""Two real Tyks, each with a plugin of its own, on one Redis: what they count together, and what a lost Redis costs."""

import time
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pytest

from tests.conformance.conftest import Front, FrontMaker
from tests.conformance.test_tyk_itself import redis

pytestmark = pytest.mark.tyk
KINDS = ["tyk"]
SEEN_S: Final = 30.0
"""Each tells the other every two seconds that it is there, and forgets it after eight."""


def key(**session: Any) -> dict[str, Any]:
    """What the auth hooks of both plugins say of a fresh key."""
    return {"auth": {"id": f"k-{uuid.uuid4()}", "session": {"last_updated": "1", **session}}}


def answered(fronts: tuple[Front, ...], probe: dict[str, Any], count: int = 30) -> int:
    """How many of so many calls, in turn at each, are not refused for the key's limits."""
    found = [fronts[number % len(fronts)].ask(probe).status_code for number in range(count)]
    assert set(found) <= {200, 429}
    return found.count(200)


@pytest.fixture
def pair(new_front: FrontMaker) -> Iterator[tuple[Front, Front]]:
    """Both, once they know of each other: from then on they count a rate of some calls a second in Redis."""
    with new_front() as one, new_front(STORAGE_PORT=str(one.redis_port)) as other:
        deadline = time.monotonic() + SEEN_S
        for front in (one, other):
            before = redis(one, "KEYS", "rate-limit-*")
            while redis(one, "KEYS", "rate-limit-*") == before:
                assert time.monotonic() < deadline, "they do not know of each other"
                front.ask(key(rate=1, per=600))
        yield one, other


def test_rates_and_quotas_are_counted_together_and_a_lost_redis_forgets_them(pair: tuple[Front, Front]) -> None:
    one, _ = pair
    assert one.redis is not None
    spent = key(quota_max=5, quota_renewal_rate=600)
    assert [answered(pair, each) for each in (spent, key(rate=8, per=600))] == [5, 8]
    one.redis.stop()
    assert answered(pair, key()) == 30
    assert answered(pair, spent, 2) == 0, "a quota that cannot be counted is used up"
    deadline = time.monotonic() + SEEN_S
    while not all(answered((front,), key(rate=8, per=600), 1) for front in pair):
        assert time.monotonic() < deadline, "each counts by itself once it has forgotten the other"
    rate = key(rate=8, per=600)
    assert [answered((front,), rate) for front in pair] == [4, 4], "its part of the rate"
    one.redis.start()
    while not answered(pair, spent, 1):
        assert time.monotonic() < deadline + SEEN_S, "Redis is back, with nothing in it"
