"""Which devices of hosts have workers, and who starts the first: the same for every host, and few moves."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire.duties import ReconcilerPosition
from signalbox.wire.hosts import NEXT_S, SETTLED_S, FirstStart, first_start, is_overruled, kept_devices, needed_at
from signalbox.wire.scaling import ClassScale, Host, HostDevice, HostWorker, HostWorkerState, Scale
from signalbox.wire.workerdocs import Device

CLASS = "a100"


def host(name: str, devices: int = 2, *, class_: str = CLASS, is_draining: bool = False) -> Host:
    """A host with devices ``<name>-<n>``."""
    ids = [f"{name}-{n}" for n in range(devices)]
    known = tuple(HostDevice(device=Device(id=each, kind="gpu", name=class_), class_=class_) for each in ids)
    return Host(id=name, host=name, devices=known, is_draining=is_draining)


def failing(one: Host, device: str, *states: HostWorker) -> Host:
    """The host with these workers at a device."""
    return Host(id=one.id, host=one.host, devices=one.devices, workers=states or (_worker(device, why="no memory"),))


def _worker(device: str, *, state: HostWorkerState = "starting", why: str = "") -> HostWorker:
    return HostWorker(id=f"w-{device}-{state}-{why}", device=device, state=state, why=why)


def wanted(**classes: int) -> Scale:
    """So many devices of each class."""
    return Scale(classes={name: ClassScale(wanted=count) for name, count in classes.items()})


FLEET = [host("h1"), host("h2"), host("h3")]
ALL = {each.device.id for one in FLEET for each in one.devices}


def test_as_many_devices_are_kept_as_are_wanted_and_no_more_than_there_are() -> None:
    assert [len(kept_devices(wanted(a100=count), FLEET)) for count in range(9)] == [0, 1, 2, 3, 4, 5, 6, 6, 6]


def test_each_further_device_leaves_those_that_are_kept() -> None:
    for count in range(6):
        assert kept_devices(wanted(a100=count), FLEET) < kept_devices(wanted(a100=count + 1), FLEET)


def test_devices_are_spread_over_hosts_first() -> None:
    kept = kept_devices(wanted(a100=3), FLEET)
    assert {device.split("-")[0] for device in kept} == {"h1", "h2", "h3"}


def test_until_somebody_has_decided_each_device_is_kept() -> None:
    assert kept_devices(None, [*FLEET, host("h4", is_draining=True)]) == ALL


def test_of_a_class_that_nobody_decided_about_none_is_kept() -> None:
    fleet = [*FLEET, host("h4", class_="t4")]
    assert not kept_devices(wanted(), fleet)
    assert kept_devices(wanted(t4=9), fleet) == {"h4-0", "h4-1"}


def test_what_a_host_that_drains_had_others_take() -> None:
    before = kept_devices(wanted(a100=2), FLEET)
    gone = next(iter(before)).split("-")[0]
    fleet = [host(one.id, is_draining=one.id == gone) for one in FLEET]
    after = kept_devices(wanted(a100=2), fleet)
    assert len(after) == 2
    assert len(before & after) == 1
    assert not any(device.startswith(gone) for device in after)


def test_a_device_whose_workers_cannot_start_is_kept_and_takes_nobody_s_place() -> None:
    (first,) = kept_devices(wanted(a100=1), FLEET)
    fleet = [failing(one, first) if first.startswith(one.id) else one for one in FLEET]
    assert kept_devices(wanted(a100=1), fleet) == kept_devices(wanted(a100=2), FLEET)


@pytest.mark.parametrize(
    "states",
    [
        [("ready", "")],
        [("starting", "")],
        [("ready", ""), ("waiting", "ended with status 1")],
    ],
)
def test_a_device_with_a_worker_that_is_up_or_comes_up_counts(states: list[tuple[HostWorkerState, str]]) -> None:
    (first,) = kept_devices(wanted(a100=1), FLEET)
    workers = [_worker(first, state=state, why=why) for state, why in states]
    fleet = [failing(one, first, *workers) if first.startswith(one.id) else one for one in FLEET]
    assert kept_devices(wanted(a100=1), fleet) == {first}


@given(st.permutations(FLEET), st.integers(0, 6))
def test_the_order_in_which_hosts_are_read_changes_nothing(fleet: list[Host], count: int) -> None:
    assert kept_devices(wanted(a100=count), fleet) == kept_devices(wanted(a100=count), FLEET)
    assert [first_start(one.id, fleet, wanted()) for one in FLEET] == [
        first_start(one.id, FLEET, wanted()) for one in FLEET
    ]


@given(st.integers(1, 6), st.sampled_from(["h1", "h2", "h3"]))
def test_a_host_that_is_lost_moves_only_what_it_had(count: int, lost: str) -> None:
    left = [one for one in FLEET if one.id != lost]
    before, after = kept_devices(wanted(a100=count), FLEET), kept_devices(wanted(a100=count), left)
    assert {device for device in before if not device.startswith(lost)} <= after


def test_the_first_worker_is_started_by_one_host_at_once_and_by_others_a_second_later_each() -> None:
    starts = [start for one in FLEET if (start := first_start(one.id, FLEET, None)) is not None]
    assert sorted(start.after_s for start in starts) == [0.0, NEXT_S, 2 * NEXT_S]


def test_the_first_worker_is_at_the_device_that_is_kept_once_one_is_wanted() -> None:
    (kept,) = kept_devices(wanted(a100=1), FLEET)
    assert first_start(kept.split("-")[0], FLEET, wanted(a100=0)) == FirstStart(kept, 0.0)


def test_the_class_that_the_controller_fills_first_is_the_one_that_starts() -> None:
    fleet = [*FLEET, host("h4", class_="t4")]
    start = first_start("h4", fleet, wanted(t4=0, a100=0))
    assert start is not None
    assert start.after_s == 0.0
    start = first_start("h4", fleet, wanted(a100=0, t4=0))
    assert start is not None
    assert start.after_s == 3 * NEXT_S


def test_a_host_that_drains_or_has_no_device_starts_nothing() -> None:
    fleet = [*FLEET, host("h4", is_draining=True), host("h5", 0)]
    assert first_start("h4", fleet, None) is None
    assert first_start("h5", fleet, None) is None
    assert first_start("h6", fleet, None) is None


def test_a_first_worker_stays_until_the_controller_has_decided_with_its_work_in_sight() -> None:
    assert not is_overruled(None, Scale(at=1_000.0))
    assert not is_overruled(100.0, None)
    assert not is_overruled(100.0, Scale(at=100.0 + SETTLED_S))
    assert is_overruled(100.0, Scale(at=100.1 + SETTLED_S))


LEFT = ReconcilerPosition(read_to=10, due_at=500.0)


def test_without_a_worker_one_is_needed_when_the_last_one_has_left_word() -> None:
    assert needed_at(LEFT, None, newest_job_at=None, last_record=9) == 500.0
    assert needed_at(ReconcilerPosition(read_to=10), None, newest_job_at=None, last_record=9) == math.inf
    assert needed_at(ReconcilerPosition(), None, newest_job_at=None, last_record=0) == math.inf


def test_a_record_that_nobody_has_read_needs_a_worker_at_once() -> None:
    assert needed_at(LEFT, None, newest_job_at=None, last_record=10) == 0.0
    assert needed_at(ReconcilerPosition(), None, newest_job_at=None, last_record=1) == 0.0


def test_jobs_that_wait_need_a_worker_at_once_unless_the_controller_wants_none_with_them_in_sight() -> None:
    assert needed_at(LEFT, None, newest_job_at=100.0, last_record=9) == 0.0
    assert needed_at(LEFT, Scale(at=100.0 + SETTLED_S), newest_job_at=100.0, last_record=9) == 0.0
    assert needed_at(LEFT, Scale(at=100.1 + SETTLED_S), newest_job_at=100.0, last_record=9) == 500.0
