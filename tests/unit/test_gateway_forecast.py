"""What a waiting job is told of its start: from presence alone, with a clock of our own."""

from typing import Any

import pytest

from gateway_plugin.service.forecast import in_front, starts_in
from signalbox.messages import Device, Model, Residency, Run, Worker

NOW = 1_000.0
HALF = Model(name="half")


def worker(**fields: Any) -> Worker:
    """A worker that holds its device, has ``half`` in memory and does ten of it a second."""
    known = {
        "id": "w1", "boot": "b", "host": "h", "pid": 1, "state": "ready", "started_at": 0.0,
        "device": Device(id="CPU-0", kind="cpu", name="cpu"), "beat_at": NOW, "token": 7,
        "models": (Residency(model="half", version=1, state="ready"),), "rates": {"half": 10.0},
    }  # fmt: skip
    return Worker(**{**known, **fields})


def run(model: str = "slow", activity: str = "computing", *, ago_s: float, usual_s: float) -> Run:
    return Run(activity=activity, model=model, version=1, since=NOW - ago_s, expected_s=usual_s)


def wait(*workers: Worker, ahead: int | None, now: float = NOW) -> float | None:
    return starts_in(HALF, 1, workers, ahead, now)


def test_the_wait_is_the_place_over_the_rate_of_all() -> None:
    assert wait(worker(), ahead=9) == 1.0
    assert wait(worker(), worker(rates={"half": 30.0}), ahead=9) == 0.25
    assert wait(worker(), ahead=0) == 0.1


def test_a_run_in_front_is_waited_for_whoever_s_it_is() -> None:
    busy = worker(run=run(ago_s=2.0, usual_s=12.0))
    assert wait(busy, ahead=0) == pytest.approx(10.1)
    assert wait(busy, ahead=0, now=NOW + 4) == pytest.approx(6.1)
    assert wait(busy, ahead=0, now=NOW + 60) == pytest.approx(0.1)
    assert wait(busy, worker(), ahead=0) == pytest.approx(0.1)
    assert wait(busy, worker(rates={"half": 0.1}), ahead=1) == pytest.approx(10.099, abs=0.02)


def test_a_run_that_is_late_is_taken_to_last_as_long_again() -> None:
    assert wait(worker(run=run(ago_s=5.0, usual_s=1.0)), ahead=0) == pytest.approx(5.1)


def test_jobs_that_the_worker_has_pulled_are_in_front() -> None:
    crowded = worker(waiting={"half": 5, "slow": 2}, rates={"half": 10.0, "slow": 0.5})
    assert wait(crowded, ahead=0) == pytest.approx(4.6)
    assert wait(crowded, ahead=None) == pytest.approx(4.5)


def test_a_job_that_a_worker_has_pulled_waits_behind_its_run() -> None:
    busy = worker(run=run(ago_s=2.0, usual_s=12.0), waiting={"half": 1})
    assert wait(busy, ahead=None) == pytest.approx(10.1)
    assert wait(worker(), busy, ahead=None) == pytest.approx(10.1), (
        "the other one has not pulled it"
    )
    unmeasured = worker(run=busy.run, waiting={"half": 1}, rates={})
    assert wait(unmeasured, ahead=None) == pytest.approx(10.0), "but what is before it is known"


@pytest.mark.parametrize(
    ("presence", "ahead"),
    [
        (worker(rates={}), 0),
        (worker(rates={}, run=run(ago_s=1.0, usual_s=9.0)), 3),
        (worker(run=run(ago_s=1.0, usual_s=0.0)), 0),
        (worker(waiting={"slow": 1}), 0),
        (worker(models=()), 0),
        (worker(models=(Residency(model="half", version=2, state="ready"),)), 0),
        (worker(models=(Residency(model="half", version=1, state="failed"),)), 0),
        (worker(token=0), 0),
        (worker(), None),
        (worker(rates={}, waiting={"half": 1}), None),
        (worker(rates={}, waiting={"half": 2}, run=run(ago_s=1.0, usual_s=9.0)), None),
    ],
)
def test_what_is_not_known_is_not_told(presence: Worker, ahead: int | None) -> None:
    assert wait(presence, ahead=ahead) is None


def test_a_load_is_waited_for_where_its_length_is_known() -> None:
    loading = (Residency(model="half", version=1, state="loading"),)
    at_it = run("half", "loading", ago_s=1.0, usual_s=4.0)
    assert wait(worker(models=loading, run=at_it), ahead=0) == pytest.approx(3.1)
    unknown = run("half", "loading", ago_s=1.0, usual_s=0.0)
    assert wait(worker(models=loading, run=unknown), ahead=0) is None


def test_what_is_in_front_is_named() -> None:
    slow, own = run(ago_s=1, usual_s=2), run("half", ago_s=1, usual_s=2)
    load = run("digits", "loading", ago_s=1, usual_s=2)
    assert in_front("half", [worker(run=slow)], is_pulled=False) == "behind a run of slow"
    assert in_front("half", [worker(run=load)], is_pulled=False) == "while digits is loaded"
    assert in_front("half", [worker(run=own)], is_pulled=False) == ""
    assert in_front("half", [worker(run=slow), worker()], is_pulled=False) == ""
    assert in_front("half", [worker(run=slow), worker(token=0)], is_pulled=False) != ""
    pulled = [worker(), worker(run=own, waiting={"half": 1})]
    assert in_front("half", pulled, is_pulled=True) == "behind a run of half"
