"""Which batch leaves next, and which models jobs are asked of, with many models that have nothing to do."""

import math
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.jobs.times import BATCH, Span
from signalbox.program.errors import NotServing
from signalbox.wire.messages import Job
from signalbox.wire.modeldocs import Batching, Model, Version
from signalbox.wire.names import PRIORITIES, Priority
from workers.serving.batchrun import BatchRun
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


def dispatcher(*quick: str, **more: Any) -> Dispatcher:
    statistics = Statistics()
    for model in quick:
        statistics.ran(model, jobs=1, seconds=QUICK_RUN_S / 10, size_bytes=1)
    return Dispatcher(statistics, **more)


class Memory:
    """The versions that are ready, and those for which nothing would have to leave."""

    def __init__(self, *ready: str) -> None:
        self.ready = {(model, 1) for model in ready}
        self.has_room = True

    def dispatcher(self, *quick: str) -> Dispatcher:
        return dispatcher(*quick, is_ready=self.ready.__contains__, has_room=lambda _: self.has_room)

    def loads(self, made: Dispatcher, *leaving: str, now_s: float = NOW_S) -> str:
        """The model whose load begins and has ended at once, for which others have left; empty where none begins."""
        if (key := made.load(now_s)) is None:
            return ""
        self.ready -= {(model, 1) for model in leaving}
        self.ready.add(key)
        assert made.loaded(now_s, now_s) is None
        return key[0]


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


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(PRIORITIES)), max_size=30))
def test_versions_are_loaded_in_the_order_of_their_models_heads_and_their_jobs_leave_in_order(
    arrivals: list[tuple[int, Priority]],
) -> None:
    memory = Memory()
    made = memory.dispatcher()
    heads: dict[str, tuple[int, float]] = {}
    for at, (number, priority) in enumerate(arrivals):
        job = held(f"m{number}", arrived_s=at, priority=priority)
        made.add(job, served())
        rank = (PRIORITIES.index(priority), job.arrived_s)
        heads[job.job.model] = min(rank, heads.get(job.job.model, rank))
    assert leaves(made) == "", "no version is ready"
    assert [memory.loads(made) for _ in heads] == sorted(heads, key=heads.__getitem__)
    assert memory.loads(made) == ""
    left = [leaves(made) for _ in arrivals]
    assert "" not in left
    assert leaves(made) == ""


def test_a_version_is_loaded_beside_what_runs_and_takes_no_slot() -> None:
    memory = Memory("warm")
    made = memory.dispatcher()
    made.add(held("cold"), served())
    for number in range(2):
        made.add(held("warm", arrived_s=NOW_S + number), served())
    (running,) = made.begin(NOW_S)
    assert made.load(NOW_S) == ("cold", 1)
    assert made.load(NOW_S) is None, "one at a time"
    made.end(running, NOW_S + 1)
    assert leaves(made, NOW_S + 2) == "warm", "though the other came first"
    memory.ready.add(("cold", 1))
    assert made.loaded(NOW_S + 3, NOW_S + 3) is None
    assert leaves(made, NOW_S + 3) == "cold"


def test_what_would_push_out_a_version_that_older_jobs_wait_for_is_loaded_after_they_have_left() -> None:
    memory = Memory("a")
    memory.has_room = False
    made = memory.dispatcher()
    for number in range(3):
        made.add(held("a", arrived_s=NOW_S + number), served())
    made.add(held("b", arrived_s=NOW_S + 10), served())
    made.add(held("a", arrived_s=NOW_S + 20), served())
    for _ in range(3):
        assert memory.loads(made) == ""
        assert leaves(made, NOW_S + 30) == "a"
    assert memory.loads(made, "a") == "b", "the last one came after it"
    assert leaves(made, NOW_S + 30) == "b"
    assert leaves(made, NOW_S + 30) == ""
    assert memory.loads(made, "b") == "a"
    assert leaves(made, NOW_S + 30) == "a"


def test_what_has_left_the_memory_is_loaded_again_and_what_was_loaded_ahead_is_not() -> None:
    memory = Memory("a")
    made = memory.dispatcher()
    for model in "ab":
        made.add(held(model), served())
    made.due_s()
    assert made.load(NOW_S) == ("b", 1)
    memory.ready.clear()  # the runner has died
    assert leaves(made) == ""
    made.loaded(NOW_S, NOW_S)
    memory.ready.add(("a", 1))
    made.version_changed("a")
    assert leaves(made) == "a"
    assert memory.loads(made) == "b"


def test_where_a_load_has_failed_one_batch_ends_with_that_and_the_next_head_is_tried() -> None:
    memory = Memory()
    made = memory.dispatcher()
    bad, other = held("bad"), held("bad", arrived_s=NOW_S + 1)
    for job in (bad, other):
        made.add(job, served())
    failure = NotServing("It cannot be loaded.")
    for job in (bad, other):
        assert made.load(NOW_S) == ("bad", 1)
        batch_run = made.loaded(NOW_S, NOW_S, failure=failure)
        assert batch_run is not None
        assert (batch_run.jobs, batch_run.failure) == ([job], failure)
        assert made.end(batch_run, NOW_S)
    assert made.load(NOW_S) is None
    made.add(held("bad"), served())
    assert made.load(NOW_S) == ("bad", 1)
    made.clear()
    assert made.loaded(NOW_S, NOW_S, failure=failure) is None, "nobody waits for it any more"


def test_a_job_says_how_long_its_version_was_loaded_and_how_long_that_of_another() -> None:
    memory = Memory()
    made = memory.dispatcher()
    first, second, cancelled = held("a"), held("b"), held("b", arrived_s=NOW_S + 1)
    for job in (first, second, cancelled):
        made.add(job, served())
    assert made.load(NOW_S) == ("a", 1)
    made.load_begins(NOW_S + 2)
    memory.ready.add(("a", 1))
    made.loaded(NOW_S + 5, NOW_S + 5)
    (running,) = made.begin(NOW_S + 5)
    assert parts(first, NOW_S + 5) == {"other-model": 2.0, "load": 3.0, "batch": 0.0}
    assert made.load(NOW_S + 5) == ("b", 1)
    made.load_begins(NOW_S + 5)
    assert made.remove(cancelled, NOW_S + 6)
    assert parts(cancelled, NOW_S + 6) == {"other-model": 4.0, "load": 1.0, "batch": 0.0}
    memory.ready.add(("b", 1))
    began = NOW_S + 3  # ahead of need, so before its turn here
    verify, load = Span("verify", began, NOW_S + 4), Span("load", NOW_S + 4, NOW_S + 9)
    made.loaded(NOW_S + 10, NOW_S + 10, [verify, load, Span("warm", NOW_S + 9, NOW_S + 10)])
    made.end(running, NOW_S + 12)
    made.begin(NOW_S + 12)
    assert parts(second, NOW_S + 13) == {
        "other-model": 5.0,
        "verify": 1.0,
        "load": 5.0,
        "warm": 1.0,
        "batch": 1.0,
    }


def test_it_is_idle_only_while_no_job_waits_and_no_batch_is_with_the_runner() -> None:
    memory = Memory("m")
    one = dispatcher(is_ready=lambda key: key in memory.ready)

    def look(at_s: float) -> tuple[list[BatchRun], bool]:
        begun = one.begin(at_s)
        return begun, one.is_idle

    assert look(NOW_S) == ([], True)
    one.add(held("cold"), served())
    assert look(NOW_S) == ([], False), "one waits for a load"
    one.clear()
    one.add(held("m", batch_key="b"), served(max_delay_ms=1000.0))
    assert look(NOW_S) == ([], False), "one waits for others to run with"
    begun, is_idle = look(NOW_S + 1.0)
    assert not is_idle
    one.end(begun[0], NOW_S + 2.0)
    assert look(NOW_S + 2.0) == ([], True)
