"""What a worker tells of the results it has stored of late: by account, in a window, and no more than the largest."""

from workers.statistics.storedbytes import MOST_REPORTED, StoredBytes


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        return self.now


def test_what_was_stored_longer_ago_is_forgotten() -> None:
    clock = Clock()
    stored = StoredBytes(kept_s=600.0, clock=clock)
    stored.add("one", 100)
    clock.now += 300
    stored.add("one", 20)
    stored.add("two", 3)
    assert stored.most() == {"one": 120, "two": 3}
    clock.now += 299
    assert stored.most() == {"one": 120, "two": 3}, "never sooner than after that time"
    clock.now += 32
    assert stored.most() == {"one": 20, "two": 3}
    clock.now += 600
    assert stored.most() == {}


def test_a_window_of_any_traffic_has_few_parts() -> None:
    clock = Clock()
    stored = StoredBytes(kept_s=600.0, clock=clock)
    for _ in range(10_000):
        clock.now += 1.0
        stored.add("one", 1)
    assert len(stored._parts) < 30
    assert 600 <= stored.most()["one"] <= 660


def test_the_accounts_with_most_are_told() -> None:
    stored = StoredBytes(kept_s=600.0, clock=Clock())
    for number in range(1_000):
        stored.add(f"account {number}", number + 1)
    reported = stored.most()
    assert len(reported) == MOST_REPORTED
    assert min(reported.values()) == 1_000 - MOST_REPORTED + 1
