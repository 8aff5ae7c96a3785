"""What jobs wait for while no worker runs: which one comes, when it can begin them, and why none comes."""

import pytest
from msgspec.structs import replace

from signalbox.jobs.forecast import starts_in
from signalbox.jobs.reasons import Fleet, QueuedJob, estimated, hindered, why_waiting
from signalbox.jobs.starts import learned, may_come, started
from signalbox.wire.modeldocs import Model, Version
from signalbox.wire.scaling import Host, HostDevice, HostWorker, Measured
from signalbox.wire.workerdocs import Device, Worker

NOW = 1_000.0
MB = 10**6
LOCAL = Version(version=1, path="/models/half/1", size_bytes=10 * MB)
FAR = Version(version=2, path="s3://shop/half/2", repository="shop", size_bytes=100 * MB)
HALF = Model(name="half", versions=(LOCAL, FAR))
JOB = QueuedJob("half", 1, "mid")
MEASURED = Measured(start_s=6.0, load_s={"half": 2.0}, rates={"half": 5.0}, fetch_rates={"shop": 20.0 * MB})
STARTING = HostWorker(id="w1", device="CPU-h-0", since=NOW - 4)


def host(*workers: HostWorker, measured: Measured = MEASURED, is_draining: bool = False) -> Host:
    """A host with one device, and the workers that its agent keeps."""
    device = HostDevice(device=Device(id="CPU-h-0", kind="cpu", name="cpu"), class_="cpu")
    return Host(id="h", host="h", devices=(device,), workers=workers, measured=measured, is_draining=is_draining)


def worker(name: str = "w1", **more: object) -> Worker:
    """One that a host has started and that tells so itself."""
    known: dict[str, object] = {"id": name, "boot": "b", "host": "h", "pid": 1, "state": "starting", "started_at": 0.0}
    device = Device(id="CPU-h-0", kind="cpu", name="cpu")
    return Worker(**{**known, "device": device, "beat_at": NOW, "load_s": {"half": 2.0}, **more})  # type: ignore[arg-type]


def wait(*hosts: Host, workers: tuple[Worker, ...] = (), version: int = 1, ahead: int = 0) -> float | None:
    """Seconds that a job is told."""
    return starts_in(HALF, version, workers, ahead, NOW, fleet=workers, hosts=hosts).wait_s


def test_without_a_worker_a_job_waits_for_one_to_start_and_to_load_its_version() -> None:
    assert wait(host()) == pytest.approx(6.0 + 2.0)
    assert wait(host(), ahead=10) == pytest.approx(6.0 + 2.0 + 2.0)
    assert wait() is None, "nobody starts one"


def test_a_worker_that_drains_is_none() -> None:
    leaving = replace(STARTING, state="draining")
    fleet = (worker(state="draining"),)
    assert starts_in(HALF, 1, (), 0, NOW, fleet=fleet, hosts=[host(leaving)]).wait_s == pytest.approx(6.0 + 2.0)


def test_files_come_while_the_worker_starts() -> None:
    assert wait(host(), version=2) == pytest.approx(6.0 + 2.0), "5 s of fetching are over before"
    slow = replace(MEASURED, fetch_rates={"shop": 10.0 * MB})
    assert wait(host(measured=slow), version=2) == pytest.approx(10.0 + 2.0)


def test_what_has_passed_of_a_start_counts_no_more() -> None:
    assert wait(host(STARTING)) == pytest.approx(2.0 + 2.0)
    second = replace(STARTING, id="w2")
    assert wait(host(STARTING, second), ahead=10) == pytest.approx(2.0 + 2.0 + 2.0), "two at one device are one device"


def test_a_worker_that_tells_already_that_it_starts_is_not_yet_at_work() -> None:
    assert wait(host(STARTING), workers=(worker(),)) == pytest.approx(2.0 + 2.0)
    assert wait(host(replace(STARTING, state="ready")), workers=(worker(state="ready"),)) == pytest.approx(2.0)


def test_a_start_that_takes_longer_than_usual_or_was_never_measured_has_no_estimate() -> None:
    late = host(replace(STARTING, since=NOW - 9))
    assert starts_in(HALF, 1, (), 0, NOW, hosts=(late,)) == (None, True)
    assert wait(host(measured=Measured())) is None


def test_a_job_says_that_a_worker_comes() -> None:
    fleet = Fleet(HALF, is_paused=False, workers=(), hosts=(host(),))
    place = estimated(JOB, 0, fleet, NOW)
    assert place.wait_s == pytest.approx(8.0)
    assert why_waiting(JOB, place, fleet, NOW) == "waiting: no worker serves half yet: one is being started"
    paused = fleet_of(fleet, is_paused=True)
    assert hindered(JOB, paused, NOW) == "half is paused by an operator"
    assert estimated(JOB, 0, paused, NOW).wait_s is None


def test_a_job_says_why_no_worker_comes() -> None:
    failing = host(replace(STARTING, state="waiting", why="ended with status 2"))
    assert hindered(JOB, fleet_of(hosts=(failing,)), NOW) == "no worker serves half: ended with status 2"
    assert hindered(JOB, fleet_of(hosts=(host(is_draining=True),)), NOW) == "no worker serves half"
    assert hindered(JOB, fleet_of(), NOW) == "no worker serves half"
    assert not may_come([failing])
    assert not may_come([host(is_draining=True)])
    assert may_come([failing, host()])


def test_while_others_run_none_is_started_for_a_model_that_they_do_not_serve() -> None:
    other = worker("w9", state="ready", serves=("other",))
    assert hindered(JOB, fleet_of(workers=(other,), hosts=(host(),)), NOW) == "no worker serves half"


def test_a_0_set_by_hand_is_the_reason_whatever_comes() -> None:
    none = fleet_of(model=replace(HALF, replicas=0), hosts=(host(STARTING),))
    assert hindered(JOB, none, NOW) == "the model half has no replicas"


def fleet_of(fleet: Fleet | None = None, **changes: object) -> Fleet:
    """A fleet without a worker, but for the changes."""
    known = fleet or Fleet(HALF, is_paused=False, workers=())
    fields: dict[str, object] = {name: getattr(known, name) for name in ("model", "is_paused", "workers", "hosts")}
    return Fleet(**{**fields, **changes})  # type: ignore[arg-type]


def test_what_workers_have_told_outlives_them() -> None:
    known = learned(Measured(start_s=6.0), worker(rates={"half": 4.0}, load_rate=9.0, fetch_rates={"shop": 1.0}))
    known = learned(known, worker(load_s={"other": 3.0}, rates={"half": 5.0}))
    assert known.start_s == 6.0
    assert (known.rates, known.load_s) == ({"half": 5.0}, {"other": 3.0, "half": 2.0})
    assert (known.load_rate, known.fetch_rates) == (9.0, {"shop": 1.0})


def test_of_many_models_a_host_tells_those_that_were_told_last() -> None:
    known = Measured()
    for number in range(200):
        known = learned(known, worker(load_s={f"m{number}": 1.0}))
    assert list(known.load_s) == [f"m{number}" for number in range(199, 135, -1)]


def test_the_newest_start_counts_most() -> None:
    assert started(Measured(), 8.0).start_s == 8.0
    assert started(started(Measured(), 8.0), 4.0).start_s == pytest.approx(6.0)
