"""Why a job waits, in the words that its owner and operators read: from presence alone."""

from typing import Any

from signalbox.jobs.reasons import Fleet, QueuedJob, QueuePosition, estimated, why_waiting
from signalbox.wire.modeldocs import Model
from signalbox.wire.workerdocs import Device, Residency, Run, Worker

NOW = 1_000.0
JOB = QueuedJob("half", 1, "mid")


def worker(**fields: Any) -> Worker:
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


def fleet(*workers: Worker, is_paused: bool = False, **settings: Any) -> Fleet:
    return Fleet(Model(name="half", **settings), is_paused, workers)


def test_place_and_what_runs_in_front_are_told_together() -> None:
    run = Run(activity="computing", model="slow", version=1, since=NOW - 2, expected_s=6.0)
    around = fleet(worker(run=run))
    place = estimated(JOB, 3, around, NOW)
    assert place == QueuePosition(3, 4.3)
    assert why_waiting(JOB, place, around, NOW) == "waiting: 3 jobs ahead, behind a run of slow"
    late = fleet(worker(run=Run(activity="computing", model="slow", version=1, since=NOW - 20, expected_s=6.0)))
    assert estimated(JOB, 3, late, NOW) == QueuePosition(3, None, is_late=True)


def test_an_unknown_place_is_no_place() -> None:
    assert why_waiting(JOB, QueuePosition(), fleet(worker()), NOW) == "waiting"
    assert why_waiting(JOB, QueuePosition(0), fleet(worker()), NOW) == "waiting: next in line"
    assert why_waiting(JOB, QueuePosition(is_pulled=True), fleet(worker()), NOW) == "waiting: a worker has it"


def test_a_hindrance_is_told_instead_of_a_place() -> None:
    place = QueuePosition(3)
    assert why_waiting(JOB, place, Fleet(None, False, ()), NOW) == "waiting: there is no model half"
    assert why_waiting(JOB, place, fleet(), NOW) == "waiting: no worker serves half"
    paused = fleet(worker(), is_paused=True)
    assert why_waiting(JOB, place, paused, NOW) == "waiting: half is paused by an operator"
    assert estimated(JOB, 3, paused, NOW) == QueuePosition(3), "when it goes on is not known"


def test_a_delayed_job_waits_for_its_time_and_a_second_attempt_for_none() -> None:
    delayed = JOB._replace(not_before=NOW + 60)
    told = "waiting until 1970-01-01T00:17:40.000Z: not before"
    assert why_waiting(delayed, QueuePosition(), fleet(), NOW) == told
    again = JOB._replace(attempt=2, error="Out of memory.")
    told = "waiting for another attempt after attempt 2: Out of memory."
    assert why_waiting(again, QueuePosition(), fleet(worker()), NOW) == told
