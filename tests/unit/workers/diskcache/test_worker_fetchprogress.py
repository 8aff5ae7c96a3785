"""How far a fetch is and how fast, and the usual rate that is made of many."""

import pytest

from workers.diskcache.progress import Progress
from workers.statistics.byterate import ByteRate


def test_a_fetch_says_what_is_here_and_its_rate_after_a_second() -> None:
    now = 10.0
    progress = Progress(lambda: now)
    assert (progress.fetched_bytes, progress.size_bytes, progress.per_s, progress.seconds) == (0, 0, 0.0, 0.0)
    progress.begin(100, kept_bytes=20)
    progress.received(30)
    now += 0.5
    assert (progress.fetched_bytes, progress.size_bytes, progress.per_s) == (50, 100, 0.0)
    now += 1.5
    assert progress.per_s == 15.0, "what was here before came at no rate"
    progress.stop()
    assert (progress.fetched_bytes, progress.received_bytes, progress.per_s) == (50, 0, 0.0)
    progress.begin(100, kept_bytes=120)
    assert progress.fetched_bytes == 100, "of an earlier list of files"


def test_the_rate_is_that_of_the_last_few_seconds() -> None:
    now = 0.0
    progress = Progress(lambda: now)
    progress.begin(1000, kept_bytes=0)
    assert progress.per_s == 0.0
    now = 20.0
    progress.received(1)
    assert progress.per_s < 0.1, "it stood still for long"
    for _ in range(15):
        now += 1.0
        progress.received(10)
    assert progress.per_s == pytest.approx(10.0, rel=0.05)
    now += 0.5
    assert progress.per_s == pytest.approx(10.0, rel=0.05)
    now += 12.0
    assert progress.per_s < 0.5, "it stands still again"


def test_what_is_small_says_little_of_the_rate() -> None:
    rate = ByteRate()
    assert rate.per_s == 0.0
    rate.measured(1000, 1.0)
    assert rate.per_s == 1000.0
    rate.measured(0, 0.01)
    assert rate.per_s == pytest.approx(1000.0, rel=0.01)
    for _ in range(100):
        rate.measured(50, 1.0)
    assert rate.per_s == 50.0
