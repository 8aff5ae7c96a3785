"""What NATS tells of a stream's replicas, and how many of them are late."""

from typing import Any

import pytest

from signalbox.bus.storage import late_replicas

CURRENT: dict[str, Any] = {"name": "b", "current": True, "active": 1}
LAGS = {"name": "c", "current": False, "active": 1, "lag": 7}
AWAY = {"name": "c", "current": False, "offline": True, "active": 90}


@pytest.mark.parametrize(
    ("info", "count"),
    [
        ({}, 0),
        ({"cluster": None}, 0),
        ({"cluster": {"leader": "a"}}, 0),
        ({"cluster": {"leader": "a", "replicas": [CURRENT, CURRENT]}}, 0),
        ({"cluster": {"leader": "a", "replicas": [CURRENT, LAGS]}}, 1),
        ({"cluster": {"leader": "a", "replicas": [LAGS, AWAY, CURRENT | {"offline": True}]}}, 3),
    ],
)
def test_a_replica_that_lags_or_is_away_is_late(info: dict[str, Any], count: int) -> None:
    assert late_replicas(info) == count
