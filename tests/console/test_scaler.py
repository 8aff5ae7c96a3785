"""What is wanted of models and classes, decision after decision, in virtual time."""

import random
from collections.abc import Mapping

import pytest

from console.board.capacity import Devices, devices_of
from console.scaling.rules import NO_CAPACITY, Load
from console.scaling.scaler import Decision, Scaler
from signalbox.wire.scaling import ClassScale, Host, HostDevice, ModelScale, Scale, Scaling
from signalbox.wire.workerdocs import Device, Worker

ON = Scaling(is_on=True, min=0, max=4, backlog=10.0, down_window_s=10.0, zero_grace_s=30.0)
FOUR = Devices({"": 0}, {"": 4}, {"": 0})


class Fleet:
    """A scaler, and the replicas that it has published."""

    def __init__(self, last: Scale | None = None, devices: Devices = FOUR, **scaled: Scaling) -> None:
        self.scaler = Scaler(last or Scale(), 0.0)
        self.scaled = scaled
        self.devices = devices
        self.replicas = dict.fromkeys(scaled, 1)
        self.changes: list[tuple[float, int]] = []

    def decide(self, now: float, **loads: Load) -> Decision:
        """One decision, carried out. The loads have the devices that there are."""
        seen = {name: load._replace(devices=self.replicas[name]) for name, load in loads.items()}
        found = self.scaler.decide(now, self.scaled, self.replicas, seen, self.devices)
        self.replicas |= found.replicas
        self.changes += [(now, count) for count in found.replicas.values()]
        return found


def workers(decision: Decision) -> Mapping[str, int]:
    return {name: one.wanted for name, one in decision.scale.classes.items()}


def test_a_model_goes_from_zero_up_and_back_to_zero() -> None:
    fleet = Fleet(digits=ON)
    assert workers(fleet.decide(0.0)) == {"": 0}
    up = fleet.decide(1.0, digits=Load(waiting=35, oldest_s=1.0))
    assert (workers(up), fleet.replicas) == ({"": 4}, {"digits": 4})
    assert up.scale.models["digits"] == ModelScale(wanted=4, needed=4, reason="35 jobs wait")
    busy = fleet.decide(2.0, digits=Load(waiting=0, running=1))
    assert busy.scale.models["digits"].reason == "1 asked for (at least 1), heeded after 10 s of it"
    assert workers(busy) == {"": 4}
    assert workers(fleet.decide(12.0, digits=Load(running=1))) == {"": 1}
    assert workers(fleet.decide(41.0)) == {"": 1}
    down = fleet.decide(42.5)
    assert workers(down) == {"": 0}
    assert down.scale.models["digits"].reason == "no job for 30 s: no worker is kept for it"
    assert fleet.replicas == {"digits": 1}  # a model has a device though no worker is kept for it


def test_a_call_that_came_and_ended_between_two_decisions_counts() -> None:
    fleet = Fleet(digits=ON)
    assert workers(fleet.decide(100.0, digits=Load(called_at=99.5))) == {"": 1}
    assert workers(fleet.decide(129.0, digits=Load(called_at=99.5))) == {"": 1}
    assert workers(fleet.decide(130.0, digits=Load(called_at=99.5))) == {"": 0}


@pytest.mark.parametrize(("needed", "wanted"), [(1, 1), (0, 0)])
def test_a_controller_that_starts_anew_goes_on_where_the_last_one_was(needed: int, wanted: int) -> None:
    last = Scale(models={"digits": ModelScale(wanted=1, needed=needed)})
    assert workers(Fleet(last, digits=ON).decide(5.0)) == {"": wanted}


def test_a_least_number_keeps_its_workers_without_calls_and_bounds_are_heeded_at_once() -> None:
    fleet = Fleet(digits=Scaling(is_on=True, min=2, max=3, down_window_s=300.0))
    assert (workers(fleet.decide(0.0)), fleet.replicas) == ({"": 2}, {"digits": 2})
    fleet.decide(1.0, digits=Load(waiting=500))
    assert fleet.replicas == {"digits": 3}
    fleet.scaled = {"digits": Scaling(is_on=True, min=1, max=2, down_window_s=300.0)}
    fleet.decide(2.0, digits=Load(waiting=500))
    assert fleet.replicas == {"digits": 2}


def test_zero_that_an_operator_has_set_stays() -> None:
    fleet = Fleet(digits=ON)
    fleet.replicas = {"digits": 0}
    found = fleet.decide(0.0, digits=Load(waiting=50))
    assert (found.replicas, found.scale.models, workers(found)) == ({}, {}, {"": 0})


def test_models_that_do_not_scale_keep_their_workers_and_are_never_changed() -> None:
    fleet = Fleet(digits=ON)
    fleet.replicas |= {"fixed": 2}
    found = fleet.decide(0.0, fixed=Load(waiting=500))
    assert (found.replicas, workers(found), set(found.scale.models)) == ({}, {"": 2}, {"digits"})


def test_a_device_is_added_where_those_that_there_are_would_never_rest_and_stays_for_the_window() -> None:
    fleet = Fleet(digits=ON)
    load = Load(running=1, run_s=0.5, arrived_per_s=3.0)
    assert workers(fleet.decide(0.0, digits=load)) == {"": 3}  # 1.5 devices' work, each busy 70 % of its time
    assert workers(fleet.decide(9.0, digits=load._replace(arrived_per_s=1.0))) == {"": 3}
    assert workers(fleet.decide(19.5, digits=load._replace(arrived_per_s=1.0))) == {"": 1}


def test_no_device_is_asked_for_that_the_models_may_not_be_on() -> None:
    fleet = Fleet(digits=Scaling(is_on=True, min=0, max=2))
    fleet.replicas |= {"fixed": 1}
    busy = Load(running=2, run_s=2.0, arrived_per_s=3.0)
    assert fleet.decide(0.0, digits=busy).scale.classes[""].asked == 2
    assert fleet.decide(1.0, digits=busy, fixed=busy).scale.classes[""].asked == 3


def test_what_exceeds_a_class_says_so_and_goes_to_the_next() -> None:
    devices = Devices({"t4": 1, "a100": 0}, {"t4": 3, "a100": 2}, {"t4": 1, "a100": 0})
    found = Fleet(devices=devices, digits=ON).decide(0.0, digits=Load(waiting=500)).scale.classes
    assert (found["t4"].wanted, found["a100"].wanted, found["t4"].actual) == (1, 2, 1)
    assert found["t4"].reason == f"{NO_CAPACITY}: 4 asked for, at most 1"
    assert found["a100"].reason == f"{NO_CAPACITY}: 3 asked for, 2 devices there"


def test_without_any_host_the_last_number_stays() -> None:
    last = Scale(classes={"": ClassScale(wanted=2, actual=2)})
    fleet = Fleet(last, devices=Devices({}, {}, {}), digits=ON)
    assert fleet.decide(0.0).scale.classes == {"": ClassScale(wanted=2, actual=0, reason="no host there")}


def test_without_any_host_what_is_asked_for_follows_the_load_for_who_starts_hosts_by_it() -> None:
    last = Scale(classes={"a100": ClassScale(wanted=0)})
    fleet = Fleet(last, devices=Devices({"t4": 1, "a100": 0}, {}, {}), digits=ON)
    none = fleet.decide(0.0).scale.classes
    assert {name: (one.wanted, one.asked) for name, one in none.items()} == {"a100": (0, 0), "t4": (0, 0)}
    found = fleet.decide(1.0, digits=Load(waiting=35, called_at=1.0)).scale.classes
    assert {name: (one.wanted, one.asked) for name, one in found.items()} == {"a100": (0, 4), "t4": (0, 0)}
    assert found["a100"].reason == f"{NO_CAPACITY}: 4 asked for, no host there"
    fleet.devices = Devices({"a100": 0, "t4": 1}, {"a100": 1, "t4": 0}, {})
    assert workers(fleet.decide(2.0, digits=Load(waiting=35, called_at=2.0)))["a100"] == 1


def test_devices_are_counted_by_class_without_those_of_hosts_that_drain() -> None:
    def device(name: str) -> Device:
        return Device(id=name, kind="cpu", name=name)

    def host(name: str, *classes: str, is_draining: bool = False) -> Host:
        devices = tuple(HostDevice(device=device(f"{name}{n}"), class_=one) for n, one in enumerate(classes))
        return Host(id=name, host=name, devices=devices, is_draining=is_draining)

    hosts = [host("a", "t4", "t4", "a100"), host("b", "t4", is_draining=True)]
    worker = Worker(id="w", boot="", host="a", pid=1, state="ready", device=device("a1"), started_at=0.0, beat_at=0.0)
    found = devices_of({"a100": 1}, hosts, [worker])
    assert found == Devices({"a100": 1, "t4": 0}, {"a100": 1, "t4": 2}, {"a100": 0, "t4": 1})
    assert list(found.most) == ["a100", "t4"]


@pytest.mark.parametrize("seed", range(5))
def test_no_change_is_taken_back_within_the_windows(seed: int) -> None:
    """An hour of bursts, second by second, each device does a job a second."""
    chance = random.Random(seed)
    fleet, waiting = Fleet(digits=ON), 0
    for second in range(3600):
        burst = (second // 300) % 2 == 0
        waiting += chance.choice([0, 0, 1, 15]) if burst else chance.random() < 0.1
        waiting = max(0, waiting - fleet.replicas["digits"])
        fleet.decide(float(second), digits=Load(waiting=waiting, called_at=float(second)))
    assert len(fleet.changes) > 4
    for (_, one), (up_at, up), (down_at, down) in zip(
        fleet.changes, fleet.changes[1:], fleet.changes[2:], strict=False
    ):
        assert not (up > one and down < up) or down_at - up_at >= ON.down_window_s
