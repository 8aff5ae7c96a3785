"""What a waiting job is told of its start: from presence alone, with a clock of our own."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.jobs.forecast import in_front, starts_in
from signalbox.wire.modeldocs import Model
from signalbox.wire.workerdocs import Device, Residency, Run, Worker

NOW = 1_000.0
HALF = Model(name="half")


def worker(**fields: Any) -> Worker:
    """A worker that holds its device, has ``half`` in memory and does ten of it a second."""
    known = {
        "id": "w1",
        "boot": "b",
        "host": "h",
        "pid": 1,
        "state": "ready",
        "started_at": 0.0,
        "device": Device(id="CPU-0", kind="cpu", name="cpu"),
        "beat_at": NOW,
        "token": 7,
        "models": (Residency(model="half", version=1, state="ready"),),
        "rates": {"half": 10.0},
    }
    return Worker(**{**known, **fields})


def run(
    model: str = "slow", activity: str = "computing", *, ago_s: float, usual_s: float, is_beside: bool = False
) -> Run:
    return Run(activity=activity, model=model, version=1, since=NOW - ago_s, expected_s=usual_s, is_beside=is_beside)


def wait(*workers: Worker, ahead: int | None, now: float = NOW) -> float | None:
    return starts_in(HALF, 1, workers, ahead, now).wait_s


def test_the_wait_is_the_place_over_the_rate_of_all() -> None:
    assert wait(worker(), ahead=10) == 1.0
    assert wait(worker(), worker(rates={"half": 30.0}), ahead=10) == 0.25


def test_its_own_run_is_not_waited_for() -> None:
    """One job takes 12 s; a rate is of the worker's own telling, so 1 / 12 here."""
    each = {"half": 1 / 12}
    busy = worker(run=run("half", ago_s=0.0, usual_s=12.0), rates=each)
    assert wait(busy, ahead=0) == pytest.approx(12.0)
    assert wait(busy, ahead=1) == pytest.approx(24.0)
    assert wait(replace(busy, waiting={"half": 1}), ahead=None) == pytest.approx(12.0)
    assert wait(replace(busy, waiting={"half": 2}), ahead=None) == pytest.approx(24.0)
    assert wait(replace(busy, waiting={"half": 1}), ahead=0) == pytest.approx(24.0)
    idle = worker(rates=each)
    assert wait(idle, ahead=0) is None, "neither that it starts now nor a run's length"
    assert wait(idle, busy, ahead=0) is None


def test_a_device_without_a_rate_still_takes_the_next_job() -> None:
    busy = worker(run=run(ago_s=1.0, usual_s=600.0))
    assert wait(busy, ahead=0) == pytest.approx(599.0)
    assert wait(busy, worker(rates={}), ahead=0) is None
    short = worker(rates={}, run=run(ago_s=1.0, usual_s=5.0))
    assert wait(busy, short, ahead=0) == pytest.approx(4.0)
    assert wait(busy, short, ahead=1) == pytest.approx(599.1), "what it does after is not known"


def test_a_run_in_front_is_waited_for_whoever_s_it_is() -> None:
    busy = worker(run=run(ago_s=2.0, usual_s=12.0))
    assert wait(busy, ahead=0) == pytest.approx(10.0)
    assert wait(busy, ahead=0, now=NOW + 4) == pytest.approx(6.0)
    assert wait(busy, ahead=0, now=NOW + 60) is None
    assert wait(busy, worker(), ahead=0) is None
    assert wait(busy, worker(rates={"half": 0.1}), ahead=2) == pytest.approx(10.099, abs=0.02)


def test_a_run_that_takes_longer_than_usual_has_no_time_and_says_why() -> None:
    late = worker(run=run(ago_s=5.0, usual_s=1.0))
    for ahead in (0, 3):
        assert starts_in(HALF, 1, [late], ahead, NOW) == (None, True)
    assert starts_in(HALF, 1, [replace(late, waiting={"half": 1})], None, NOW) == (None, True)
    assert in_front("half", [late], is_pulled=False) == "behind a run of slow that takes longer than usual"
    own = worker(run=run("half", ago_s=5.0, usual_s=1.0))
    assert in_front("half", [own], is_pulled=False) == "behind a run of half that takes longer than usual"
    loads = worker(run=run("digits", "loading", ago_s=5.0, usual_s=1.0))
    assert in_front("half", [loads], is_pulled=False) == "behind the load of digits that takes longer than usual"


def test_a_run_that_is_a_little_late_is_about_to_end() -> None:
    """What is usual is a mean: half of all runs take longer."""
    late = worker(run=run("half", ago_s=0.02, usual_s=0.01))
    assert starts_in(HALF, 1, [late], 10, NOW) == (1.0, False)


def test_a_device_that_is_late_takes_no_number_away_where_it_hardly_matters() -> None:
    late = worker(run=run(ago_s=5.0, usual_s=1.0))
    many = [worker(waiting={"half": 10}) for _ in range(20)]
    assert starts_in(HALF, 1, [late, *many], 1000, NOW).wait_s == pytest.approx(6.0)
    other = worker(run=run(ago_s=1.0, usual_s=9.4))
    assert starts_in(HALF, 1, [late, other], 0, NOW) == (None, True), "not 8.4 s, where 0.9 were told before"
    assert starts_in(HALF, 1, [late, worker()], 0, NOW) == (None, False), "an idle one takes it"


@given(
    st.lists(
        st.tuples(st.floats(0.01, 30.0), st.floats(0.0, 50.0), st.integers(0, 5), st.sampled_from([0.0, 0.5, 10.0])),
        min_size=1,
        max_size=4,
    ),
    st.one_of(st.none(), st.integers(0, 50)),
)
def test_an_estimate_never_rises_because_runs_go_on(
    devices: list[tuple[float, float, int, float]], ahead: int | None
) -> None:
    """Nothing ends and nothing new comes for a minute; presence is told every two seconds."""
    last: float | None = None
    for half_seconds in range(120):
        now = NOW + half_seconds / 2
        beat_at = NOW + half_seconds // 4 * 2
        reported = [
            worker(
                id=f"w{number}",
                beat_at=beat_at,
                run=Run(activity="computing", model="slow", version=1, since=NOW - ago_s, expected_s=usual_s),
                waiting={"half": pulled} if pulled else {},
                rates={"half": rate} if rate else {},
            )
            for number, (usual_s, ago_s, pulled, rate) in enumerate(devices)
        ]
        found = starts_in(HALF, 1, reported, ahead, now).wait_s
        if found is not None:
            assert last is None or found <= last * 1.1 + 0.01
            last = found if last is None else min(last, found)


def test_jobs_that_the_worker_has_pulled_are_in_front() -> None:
    crowded = worker(waiting={"half": 5, "slow": 2}, rates={"half": 10.0, "slow": 0.5})
    assert wait(crowded, ahead=0) == pytest.approx(4.5)
    assert wait(crowded, ahead=None) == pytest.approx(4.4)


def test_a_job_that_a_worker_has_pulled_waits_behind_its_run() -> None:
    busy = worker(run=run(ago_s=2.0, usual_s=12.0), waiting={"half": 1})
    assert wait(busy, ahead=None) == pytest.approx(10.0)
    assert wait(worker(), busy, ahead=None) == pytest.approx(10.0), "the other one has not pulled it"
    unmeasured = worker(run=busy.run, waiting={"half": 1}, rates={})
    assert wait(unmeasured, ahead=None) == pytest.approx(10.0), "but what is before it is known"


@pytest.mark.parametrize(
    ("presence", "ahead"),
    [
        (worker(), 0),
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
    assert wait(worker(models=loading, run=at_it), ahead=0) == pytest.approx(3.0)
    unknown = run("half", "loading", ago_s=1.0, usual_s=0.0)
    assert wait(worker(models=loading, run=unknown), ahead=0) is None


def test_a_load_ahead_of_need_is_no_job_s_wait() -> None:
    ahead = run("half", "loading", ago_s=1.0, usual_s=30.0, is_beside=True)
    both = (Residency(model="half", version=1, state="ready"), Residency(model="half", version=2, state="loading"))
    rolling = worker(models=both, run=ahead)
    assert wait(rolling, ahead=0) is None
    assert wait(rolling, ahead=10) == 1.0
    assert starts_in(HALF, 2, [rolling], 10, NOW).wait_s is None, "the new version is not there yet"
    assert in_front("half", [rolling], is_pulled=False) == ""
    assert in_front("half", [replace(rolling, waiting={"half": 1})], is_pulled=True) == ""


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
