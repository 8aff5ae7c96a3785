"""What a model's load asks for, what of it is heeded when, and how many workers that makes. In virtual time."""

import math
import random

import pytest

from console.scaling.rules import NO_CAPACITY, Load, Wants, Windows, classes, recommended, wants
from signalbox.wire.scaling import ModelScale, Scaling

ON = Scaling(is_on=True, min=0, max=10, backlog=10.0)
STEP_S = 1.0


@pytest.mark.parametrize(
    ("load", "changes", "devices"),
    [
        (Load(waiting=0, devices=3), {}, 1),
        (Load(waiting=35, devices=1), {}, 4),
        (Load(waiting=35, devices=3), {}, 4),
        (Load(waiting=22, devices=2), {}, 2),  # within a tenth of the target
        (Load(waiting=23, devices=2), {}, 3),
        (Load(waiting=1000, devices=1), {}, 10),
        (Load(waiting=1000, devices=1), {"max": 3}, 3),
        (Load(waiting=0, devices=1), {"min": 2}, 2),
        (Load(waiting=1, devices=1), {"activation": 3}, 3),
        (Load(waiting=0, devices=1), {"activation": 3}, 1),
        (Load(waiting=8, oldest_s=12.0, devices=1), {"target_wait_s": 4.0}, 3),  # the one that asks for most
        (Load(waiting=50, oldest_s=4.0, devices=1), {"target_wait_s": 4.0}, 5),
        (Load(waiting=500, devices=2), {"backlog": 0.0}, 2),
        (Load(waiting=4, items=31, devices=1), {}, 4),
        (Load(items=1, devices=1), {"activation": 3}, 3),
    ],
)
def test_devices_are_as_many_as_the_target_that_asks_for_most(
    load: Load, changes: dict[str, float], devices: int
) -> None:
    scaling = Scaling(**{**{name: getattr(ON, name) for name in ON.__struct_fields__ if name != "v"}, **changes})
    assert recommended(load, scaling).devices == devices


def test_a_bound_that_is_reached_says_how_much_was_asked_for() -> None:
    found = recommended(Load(waiting=1000), ON)
    assert found.reason == "1000 jobs wait: 100 asked for, at most 10"


@pytest.mark.parametrize(
    ("load", "words"),
    [
        (Load(waiting=1), "1 job waits"),
        (Load(items=1), "1 item of queues waits"),
        (Load(items=30), "30 items of queues wait"),
        (Load(waiting=1, items=30), "1 job and 30 items of queues wait"),
    ],
)
def test_the_reason_tells_jobs_from_items_that_are_none_yet(load: Load, words: str) -> None:
    assert load.waiting_words == words


def test_growth_is_heeded_at_once_and_shrinking_when_it_was_asked_for_all_through_the_window() -> None:
    windows = Windows()
    assert windows.settled(0.0, 1, 4, up_s=0.0, down_s=300.0) == 4
    assert windows.settled(10.0, 4, 1, up_s=0.0, down_s=300.0) == 4
    assert windows.settled(299.0, 4, 2, up_s=0.0, down_s=300.0) == 4
    assert windows.settled(310.1, 4, 1, up_s=0.0, down_s=300.0) == 2


def test_with_a_window_for_growing_a_peak_within_it_changes_nothing() -> None:
    windows = Windows()
    assert windows.settled(0.0, 1, 1, up_s=60.0, down_s=300.0) == 1
    assert windows.settled(30.0, 1, 9, up_s=60.0, down_s=300.0) == 1
    assert windows.settled(61.0, 1, 8, up_s=60.0, down_s=300.0) == 8


def test_a_controller_that_starts_anew_takes_nothing_down_before_the_window_has_passed() -> None:
    windows = Windows()
    assert windows.settled(1000.0, 6, 1, up_s=0.0, down_s=300.0) == 6
    assert windows.settled(1301.0, 6, 1, up_s=0.0, down_s=300.0) == 1


@pytest.mark.parametrize("seed", range(20))
def test_no_change_is_taken_back_within_its_window_and_the_backlog_is_worked_off(seed: int) -> None:
    """Arrivals in bursts, each device does a job a second: an hour and more, second by second."""
    chance = random.Random(seed)
    windows, devices, waiting, changes = Windows(), 1, 0, [(0.0, 1)]
    for second in range(5000):
        now = second * STEP_S
        burst = (second // 400) % 2 == 0 and second < 4000
        waiting += chance.choice([0, 1, 2, 12]) if burst else chance.random() < 0.2 and second < 4000
        waiting = max(0, waiting - devices)
        asked = recommended(Load(waiting=waiting, devices=devices), ON).devices
        settled = windows.settled(now, devices, asked, up_s=ON.up_window_s, down_s=ON.down_window_s)
        if settled != devices:
            changes.append((now, settled))
            devices = settled
    for (_, before), (up_at, up), (down_at, down) in zip(changes, changes[1:], changes[2:], strict=False):
        if up > before and down < up:
            assert down_at - up_at > ON.down_window_s
    assert max(n for _, n in changes) > 1
    assert (devices, waiting) == (1, 0)


def test_a_model_that_nobody_calls_needs_no_worker_after_its_grace_and_keeps_its_one_device() -> None:
    idle = wants(Load(called_at=0.0), ON, 1, "", now=600.0)
    assert (idle.scale.wanted, idle.scale.needed) == (1, 0)
    assert wants(Load(called_at=0.0), ON, 1, "", now=599.0).scale.needed == 1
    assert wants(Load(waiting=1, called_at=None), ON, 1, "", now=600.0).scale.needed == 1
    assert wants(Load(called_at=None), ON, 1, "", now=0.0).scale.needed == 0
    assert wants(Load(), Scaling(is_on=True, min=1, max=4), 1, "", now=9e9).scale.needed == 1
    assert wants(Load(), Scaling(), 2, "", now=9e9).scale.needed == 2  # set by hand


def _wants(needed: int, busy: float = 0.0) -> Wants:
    return Wants(ModelScale(wanted=needed, needed=needed), busy)


def test_a_class_has_as_many_devices_as_the_model_that_needs_most() -> None:
    found = classes([_wants(2), _wants(3), _wants(1)], {"a100": 0}, {"a100": 1})
    assert (found["a100"].wanted, found["a100"].actual, found["a100"].reason) == (3, 1, "as asked for")


def test_many_models_that_each_need_one_device_get_as_many_as_they_keep_busy() -> None:
    found = classes([_wants(1, busy=0.2) for _ in range(30)], {"a100": 0}, {})
    assert found["a100"].wanted == math.ceil(6.0 / 0.7)


def test_what_a_class_has_no_room_for_goes_to_the_next_and_is_no_capacity_in_the_last() -> None:
    found = classes([_wants(5)], {"a100": 2, "t4": 2}, {})
    assert (found["a100"].wanted, found["t4"].wanted) == (2, 2)
    assert found["t4"].reason == f"{NO_CAPACITY}: 3 asked for, at most 2"


def test_nothing_is_wanted_where_nothing_is_needed() -> None:
    assert classes([_wants(0)], {"a100": 4}, {"a100": 2})["a100"].wanted == 0
