"""Which batch leaves next, and which models jobs are asked of, with many models that have nothing to do."""

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

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
        key_id="k",
        created_at=0.0,
        deadline_at=9e9,
        batch_key=batch_key,
        priority=priority,
        rows=1,
    )
    return InFlightJob(cast("Any", Message()), job, now_s=arrived_s)


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
        assert made.end(batch_run)
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
        assert made.end(first)
        assert first.over.is_set()
        assert not made.end(first), "a slot is given back once"


def test_no_second_batch_is_given_behind_one_that_turns_out_to_be_long() -> None:
    made = dispatcher("m")
    made.add(held("m"), served())
    (long,) = made.begin(NOW_S)
    long.is_long = True
    made.add(held("m", arrived_s=NOW_S + 1), served())
    assert made.begin(NOW_S + 1) == []
    made.end(long)
    assert leaves(made, NOW_S + 1) == "m"


def test_only_models_that_have_changed_are_asked_for_more_jobs() -> None:
    made = dispatcher("m")
    made.credits_changed(*(f"idle{number}" for number in range(1000)))
    assert len(made.changed()) == 1000
    job = held("m")
    made.add(job, served())
    (batch_run,) = made.begin(NOW_S)
    assert made.changed() == {"m"}
    made.end(batch_run)
    assert made.changed() == set(), "as many are asked for beside a quick run as after it"


def test_a_job_taken_out_of_its_queue_leaves_in_no_batch() -> None:
    made = dispatcher()
    job = held("m")
    made.add(job, served())
    assert made.remove(job)
    assert not made.remove(job)
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
