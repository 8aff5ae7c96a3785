"""Which batch leaves next, and which models jobs are asked of, with many models that have nothing to do."""

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.jobs.times import BATCH
from signalbox.wire.messages import Batching, Job, Model, Version
from signalbox.wire.names import PRIORITIES, Priority
from workers.serving.dispatch import QUICK_RUN_S, Dispatcher
from workers.serving.inflight import InFlightJob
from workers.statistics.worker import Statistics

NOW_S = 100.0


class Message:
    data = b""


def held(model: str, *, arrived_s: float = NOW_S, priority: Priority = "mid", batch_key: str = "") -> InFlightJob:
    job = Job(
        id=f"{model}{arrived_s}{priority}",
        model=model,
        version=1,
        signature="s",
        account_id="k",
        created_at=0.0,
        deadline_at=9e9,
        batch_key=batch_key,
        priority=priority,
        rows=1,
    )
    made = InFlightJob(cast("Any", Message()), job, now_s=arrived_s)
    made.stages.append((BATCH, arrived_s))
    return made


def served(max_size: int = 32, max_delay_ms: float = 0.0) -> Model:
    batching = Batching(max_size=max_size, max_delay_ms=max_delay_ms, rows_independent=True)
    return Model(name="m", versions=(Version(version=1, path="/m", joined=("s",)),), batching=batching)


def dispatcher(*quick: str) -> Dispatcher:
    statistics = Statistics()
    for model in quick:
        statistics.ran(model, jobs=1, seconds=QUICK_RUN_S / 10, size_bytes=1)
    return Dispatcher(statistics)


def leaves(made: Dispatcher, now_s: float = NOW_S) -> str:
    """The model of the batches that leave and have ended at once; empty where none does."""
    begun = made.begin(now_s)
    for batch_run in begun:
        assert made.end(batch_run, NOW_S)
    return " ".join(batch_run.model for batch_run in begun)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(PRIORITIES), st.integers(0, 50)), max_size=40))
def test_the_most_important_head_leaves_first_then_the_oldest(
    arrivals: list[tuple[int, Priority, int]],
) -> None:
    made = dispatcher()
    waiting: list[tuple[int, float, str]] = []
    for number, priority, tens in sorted(arrivals, key=lambda arrival: arrival[2]):
        job = held(f"m{number}", arrived_s=tens / 10 + len(waiting) / 1000, priority=priority)
        made.add(job, served())
        waiting.append((PRIORITIES.index(priority), job.arrived_s, job.job.model))
    assert [leaves(made) for _ in waiting] == [model for _, _, model in sorted(waiting)]
    assert leaves(made) == ""


def test_a_batch_waits_for_others_and_leaves_when_its_time_has_come() -> None:
    made = dispatcher()
    made.add(held("m", batch_key="k"), served(max_size=8, max_delay_ms=10))
    assert leaves(made) == ""
    assert made.due_s() == pytest.approx(NOW_S + 0.01)
    assert leaves(made, NOW_S + 0.011) == "m"
    assert made.due_s() == math.inf


def test_a_batch_that_is_full_leaves_at_once() -> None:
    made = dispatcher()
    for number in range(8):
        made.add(
            held("m", arrived_s=NOW_S + number / 1e6, batch_key="k"),
            served(max_size=8, max_delay_ms=1000),
        )
    assert leaves(made, NOW_S + 0.001) == "m"


def test_a_second_batch_is_given_only_behind_a_quick_one() -> None:
    for made, second in ((dispatcher(), []), (dispatcher("m"), ["m"])):
        for number in range(3):
            made.add(held("m", arrived_s=NOW_S + number), served())
        first, *behind = made.begin(NOW_S)
        assert [batch_run.model for batch_run in behind] == second
        assert made.begin(NOW_S) == [], "no third"
        assert made.end(first, NOW_S)
        assert first.over.is_set()
        assert not made.end(first, NOW_S), "a slot is given back once"


def test_no_second_batch_is_given_behind_one_that_turns_out_to_be_long() -> None:
    made = dispatcher("m")
    made.add(held("m"), served())
    (long,) = made.begin(NOW_S)
    long.is_long = True
    made.add(held("m", arrived_s=NOW_S + 1), served())
    assert made.begin(NOW_S + 1) == []
    made.end(long, NOW_S)
    assert leaves(made, NOW_S + 1) == "m"


def test_only_models_that_have_changed_are_asked_for_more_jobs() -> None:
    made = dispatcher("m")
    made.credits_changed(*(f"idle{number}" for number in range(1000)))
    assert len(made.changed()) == 1000
    job = held("m")
    made.add(job, served())
    (batch_run,) = made.begin(NOW_S)
    assert made.changed() == {"m"}
    made.end(batch_run, NOW_S)
    assert made.changed() == set(), "as many are asked for beside a quick run as after it"


def test_a_job_taken_out_of_its_queue_leaves_in_no_batch() -> None:
    made = dispatcher()
    job = held("m")
    made.add(job, served())
    assert made.remove(job, NOW_S)
    assert not made.remove(job, NOW_S)
    assert leaves(made) == ""
    assert made.run_of(job) is None


def test_jobs_of_a_model_that_is_served_no_more_are_given_back() -> None:
    made = dispatcher()
    kept, left = held("kept"), held("left")
    made.add(kept, served())
    made.add(left, served())
    assert made.follow({"kept": Model(name="kept")}) == [left]
    assert (leaves(made), leaves(made)) == ("kept", "")
    made.add(left, served())
    assert made.clear() == [left]


def parts(job: InFlightJob, until_s: float) -> dict[str, float]:
    """Seconds of each stage, from the job's pull until then."""
    ends = [at for _, at in job.stages[1:]] + [until_s]
    found: dict[str, float] = {}
    for (stage, at), end in zip(job.stages, ends, strict=True):
        found[stage] = round(found.get(stage, 0.0) + end - at, 6)
    return found


def test_a_job_says_how_long_it_was_behind_another_model_and_how_long_behind_its_own() -> None:
    made = dispatcher()
    first, own = held("slow"), held("m", arrived_s=NOW_S + 1)
    made.add(first, served())
    (running,) = made.begin(NOW_S)
    made.add(own, served())
    behind_both = held("m", arrived_s=NOW_S + 2)
    made.add(behind_both, served())
    assert made.begin(NOW_S + 3) == []
    made.end(running, NOW_S + 14)
    (running,) = made.begin(NOW_S + 14)
    assert parts(own, NOW_S + 14) == {"other-model": 13.0, "batch": 0.0}
    made.end(running, NOW_S + 20)
    made.begin(NOW_S + 20)
    assert parts(behind_both, NOW_S + 20) == {"other-model": 12.0, "batch": 6.0}


def test_a_job_that_leaves_its_queue_says_what_it_has_waited_for() -> None:
    made = dispatcher()
    made.add(held("slow"), served())
    made.begin(NOW_S)
    job = held("m")
    made.add(job, served())
    assert made.remove(job, NOW_S + 5)
    assert parts(job, NOW_S + 5) == {"other-model": 5.0, "batch": 0.0}


def test_a_job_given_to_the_runner_behind_another_model_waits_for_that() -> None:
    made = dispatcher("quick")
    made.add(held("quick"), served())
    made.begin(NOW_S)
    job = held("m", arrived_s=NOW_S + 1)
    made.add(job, served())
    assert len(made.begin(NOW_S + 1)) == 1
    assert parts(job, NOW_S + 14) == {"batch": 0.0, "other-model": 13.0}


def test_while_the_lease_is_at_risk_jobs_wait_for_that() -> None:
    made = dispatcher()
    job = held("m")
    made.add(job, served())
    made.put_off(NOW_S + 1)
    assert leaves(made, NOW_S + 6) == "m"
    assert parts(job, NOW_S + 6) == {"lease": 5.0, "batch": 1.0}
