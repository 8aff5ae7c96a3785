"""Where a job's time went, by the one definition: its records as workers write them, with instants of our own."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from signalbox.jobs import life, times
from signalbox.jobs.penalty import Penalty
from signalbox.jobs.times import PARTS, Span, Stages, Times, split_stages
from signalbox.wire.messages import ErrorInfo, Job, Record, State, decode, header

DIED = ErrorInfo(code="runner_crashed", message="The process died.")
JOB = Job(id="j", model="m", version=1, signature="s", account_id="k", created_at=0.0, deadline_at=900.0)


def claim(record: Record | None, now: float, stages: Stages = (), worker: str = "w1") -> Record:
    return life.claimed(JOB, record, worker=worker, gpu="GPU-1", token=1, now=now, stages=stages)


def success(record: Record, now: float, stages: Stages) -> Record:
    return life.succeeded(record, now=now, stages=stages, batch=1, size_bytes=1)


def reported(record: Record) -> list[tuple[int, str, str, dict[str, float]]]:
    """Each attempt: its number, worker, how it ended, and its parts in seconds."""
    found = []
    for one in times.attempts(record):
        parts = {part.name: round((part.end_ms - part.start_ms) / 1000, 3) for part in one.parts}
        found.append((one.number, one.worker, one.how, parts))
    return found


def test_an_attempt_s_time_is_the_chain_of_its_stages() -> None:
    stages = [("batch", 2.0), ("load", 2.5), ("run", 3.0), ("commit", 5.0)]
    done = success(claim(None, 4.5, stages[:3]), 5.5, stages)
    assert reported(done) == [
        (1, "w1", "succeeded", {"queue": 2.0, "batch": 0.5, "load": 0.5, "run": 2.0, "commit": 0.5}),
    ]
    assert done.phases == {
        "pulled": 2000.0,
        "loading": 2500.0,
        "started": 3000.0,
        "claimed": 4500.0,
        "computed": 5000.0,
        "done": 5500.0,
    }
    assert times.split(done) == Times(wait_ms=3000.0, run_ms=2000.0, total_ms=5500.0)
    assert times.waited_ms(done) == 3000.0


def test_every_attempt_has_its_own_parts_and_the_wait_between_them_is_neither_queue_nor_run() -> None:
    """Three attempts of ten seconds: they were told as 23 s of queue and 10 s of run."""
    record: Record | None = None
    for at in (0.0, 14.5, 29.0):
        stages = [("batch", at + 0.5), ("run", at + 0.5), ("runner", at + 10.5), ("commit", at + 13.5)]
        record = claim(record, at + 0.6, stages[:2])
        if at < 29.0:
            record = life.requeued(
                record, DIED, now=at + 13.5, stages=stages, penalty=Penalty.STRIKE, retry_at=at + 14.5
            )
    assert record is not None
    done = success(record, 39.6, [("batch", 29.5), ("run", 29.5), ("commit", 39.5)])
    ran = {"queue": 0.5, "batch": 0.0, "run": 10.0, "runner": 3.0, "commit": 0.0}
    assert reported(done) == [
        (1, "w1", "runner_crashed", ran),
        (2, "w1", "runner_crashed", {"retry": 1.0, **ran}),
        (3, "w1", "succeeded", {"retry": 1.0, "queue": 0.5, "batch": 0.0, "run": 10.0, "commit": 0.1}),
    ]
    assert [one.counts for one in times.attempts(done)] == ["strike", "strike", ""]
    assert times.split(done) == Times(wait_ms=9500.0, run_ms=30_000.0, total_ms=39_600.0)
    assert times.waited_ms(done) == 9500.0


def test_an_attempt_that_was_lost_with_its_worker_says_what_is_not_known() -> None:
    lost = claim(None, 1.5, [("batch", 1.0), ("run", 1.2)])
    waited = [("lease", 0.5), ("queue", 19.0)]  # as the next worker did, also while the first had it
    stages = [*waited, ("batch", 20.0), ("run", 21.0), ("commit", 22.0)]
    done = success(claim(lost, 21.0, stages[:4], worker="w2"), 22.0, stages)
    assert reported(done) == [
        (1, "w1", "lost", {"queue": 1.0, "batch": 0.2, "run": 0.3, "unknown": 18.5}),
        (2, "w2", "succeeded", {"queue": 0.0, "lease": 0.0, "batch": 1.0, "run": 1.0, "commit": 0.0}),
    ]
    assert done.vanished == 1
    assert times.split(done).run_ms == 1300.0, "as far as it is known"


def test_a_job_whose_last_worker_was_lost_ends_with_what_is_not_known() -> None:
    ended = life.failed(claim(None, 1.5, [("batch", 1.0)]), DIED, now=60.0)
    assert reported(ended) == [(1, "w1", "failed", {"queue": 1.0, "batch": 0.5, "unknown": 58.5})]
    assert times.split(ended) == Times(wait_ms=1500.0, total_ms=60_000.0), "no run is made up"


def test_a_worker_that_ends_a_job_it_never_claimed_does_not_take_the_lost_attempt_for_its_own() -> None:
    ended = life.expired(claim(None, 1.5, [("batch", 1.0)]), now=30.0, stages=[("lease", 0.5), ("batch", 20.0)])
    assert reported(ended) == [
        (1, "w1", "lost", {"queue": 1.0, "batch": 0.5, "unknown": 18.5}),
        (2, "", "expired", {"queue": 0.0, "lease": 0.0, "batch": 10.0}),
    ]


def test_a_load_that_fails_is_load_and_no_run() -> None:
    stages = [("batch", 1.0), ("load", 1.0), ("commit", 9.0)]
    ended = life.failed(claim(None, 1.1, stages[:2]), DIED, now=9.1, stages=stages)
    assert reported(ended) == [(1, "w1", "failed", {"queue": 1.0, "batch": 0.0, "load": 8.0, "commit": 0.1})]
    assert times.split(ended) == Times(wait_ms=9000.0, total_ms=9100.0)
    assert times.started_ms(ended.phases) is None


def test_a_cold_job_s_time_is_split_by_what_was_on_its_way_and_what_the_load_did() -> None:
    stages: Stages = [("queue", 0.0), ("lease", 4.0), ("batch", 5.0), ("load", 5.0), ("batch", 9.0)]
    stages = split_stages(stages, {"queue", "lease"}, [Span("fetch", -1.0, 4.5)], 9.0)
    stages = split_stages(stages, {"load"}, [Span("verify", 5.5, 6.5), Span("warm", 8.0, 9.5)], 9.0)
    done = success(claim(None, 9.0, stages), 10.5, [*stages, ("run", 9.0), ("commit", 10.0)])
    parts = {"fetch": 4.5, "lease": 0.5, "verify": 1.0, "load": 2.0, "warm": 1.0, "run": 1.0, "commit": 0.5}
    assert reported(done) == [(1, "w1", "succeeded", {"queue": 0.0, "batch": 0.0} | parts)]
    assert (done.phases["pulled"], done.phases["loading"]) == (5000.0, 5000.0)
    assert times.split(done) == Times(wait_ms=9000.0, run_ms=1000.0, total_ms=10_500.0), "all but the run is a wait"


@given(
    st.lists(st.tuples(st.sampled_from(PARTS), st.floats(0, 9)), max_size=6),
    st.lists(st.tuples(st.floats(), st.floats()), max_size=3),
    st.sampled_from(PARTS),
)
def test_whatever_is_said_of_a_stage_changes_the_sum_of_no_other(
    stages: list[tuple[str, float]], spans: list[tuple[float, float]], name: str
) -> None:
    stages = sorted(stages, key=lambda stage: stage[1])
    made = split_stages(stages, {name}, [Span("apart", *span) for span in spans], 9.0)
    queued = life.first_record(JOB, State.QUEUED)
    before, after = (times.spent(queued, those, 9.0).parts for those in (stages, made))
    apart_ms = after.get("apart", 0.0) + after.get(name, 0.0)
    assert apart_ms == pytest.approx(before.get(name, 0.0), abs=0.1)
    assert sum(after.values()) == pytest.approx(sum(before.values()), abs=0.1)
    assert {k: v for k, v in after.items() if k not in {name, "apart"}} == pytest.approx(
        {k: v for k, v in before.items() if k != name}, abs=0.1
    )


def test_a_job_that_never_ran_has_only_waited_also_for_another_attempt() -> None:
    unclaimed = life.first_record(JOB, State.QUEUED)
    assert reported(life.cancelled(unclaimed, now=9.0)) == [(1, "", "cancelled", {"queue": 9.0})]
    back = life.requeued(claim(None, 1.0, [("run", 1.0)]), DIED, now=2.0, stages=[("run", 1.0)], retry_at=4.0)
    assert reported(life.expired(back, now=3.0))[1] == (2, "", "expired", {"retry": 1.0, "queue": 0.0})
    assert reported(life.expired(back, now=9.0))[1] == (2, "", "expired", {"retry": 2.0, "queue": 5.0})


def test_a_job_that_runs_tells_what_it_has_waited_for() -> None:
    running = claim(None, 14.0, [("lease", 0.0), ("queue", 0.8), ("other-model", 1.0), ("batch", 14.0)])
    parts = {"queue": 0.2, "lease": 0.8, "other-model": 13.0, "batch": 0.0}
    assert reported(running) == [(1, "w1", "running", parts)]
    assert running.phases == {"pulled": 1000.0, "claimed": 14_000.0}
    assert times.split(running) == Times(wait_ms=14_000.0)
    assert times.split(claim(None, 1.5, [("batch", 1.0), ("run", 1.2)])).run_ms == 300.0, "as far as the record says"


def test_the_open_part_of_an_attempt_grows_until_now_and_is_unknown_once_its_worker_is_gone() -> None:
    running = claim(None, 1.5, [("batch", 1.0), ("run", 1.2)])
    assert times.so_far(running, 5e3, is_known=True) == {"queue": 1000.0, "batch": 200.0, "run": 3800.0}
    gone = {"queue": 1000.0, "batch": 200.0, "run": 300.0, "unknown": 38_500.0}
    assert times.so_far(running, 40e3, is_known=False) == gone == times.unknown(running, 40.0).parts
    assert times.so_far(running, 0.0, is_known=True) == running.parts, "clocks differ"
    done = success(running, 6.0, [("batch", 1.0), ("run", 1.2), ("commit", 5.0)])
    assert times.so_far(done, 40e3, is_known=True) == done.parts


def test_a_waiting_job_s_open_part_grows_until_now() -> None:
    waiting = life.first_record(JOB, State.QUEUED)
    assert times.so_far(waiting, 9e3, is_known=True) == {"queue": 9000.0}
    assert times.so_far(waiting, 9e3, is_known=False) == {"unknown": 9000.0}
    back = life.requeued(claim(None, 1.0, [("run", 1.0)]), DIED, now=2.0, stages=[("run", 1.0)], retry_at=4.0)
    for now in (3.0, 9.0):
        reported = times.so_far(back, now * 1e3, is_known=True)
        assert reported == life.expired(back, now=now).parts


def test_a_delayed_job_has_not_waited_until_it_might_run() -> None:
    delayed = life.first_record(replace(JOB, not_before=4.0), State.QUEUED)
    for now, parts in ((3.0, {"delay": 3000.0}), (9.0, {"delay": 4000.0, "queue": 5000.0})):
        shown = times.so_far(delayed, now * 1e3, is_known=True, delay_ms=4e3)
        ended = life.expired(delayed, now=now)
        for found in (shown, ended.parts):
            assert {name: ms for name, ms in found.items() if ms} == parts
        assert times.split(ended).wait_ms == parts.get("queue", 0.0)
    stages = [("lease", 1.0), ("queue", 4.5), ("batch", 5.0), ("run", 6.0)]
    claimed = life.claimed(JOB, delayed, worker="w1", gpu="g", token=1, now=7.0, stages=stages)
    assert reported(claimed) == [
        (1, "w1", "running", {"delay": 4.0, "queue": 0.5, "lease": 0.5, "batch": 1.0, "run": 1.0})
    ]


def test_a_record_keeps_the_newest_attempts_and_the_number_of_each() -> None:
    record = claim(None, 0.5)
    for number in range(1, 100):
        record = life.requeued(record, DIED, now=float(number), stages=[("run", number - 0.5)])
        record = claim(record, number + 0.5)
    found = times.attempts(record)
    assert [one.number for one in found] == list(range(80, 101))
    assert len(header(record)) < 5000
    assert decode(Record, header(record)) == record


@given(
    st.lists(st.lists(st.tuples(st.sampled_from(PARTS), st.floats(-10.0, 1e6)), max_size=5), min_size=1, max_size=4),
    st.lists(st.floats(0.0, 1e6), min_size=8, max_size=8),
    st.data(),
)
def test_parts_have_no_gap_and_none_is_negative_whatever_the_clocks_say(
    chains: list[list[tuple[str, float]]], instants: list[float], data: Any
) -> None:
    record: Record | None = None
    for chain, claimed_at, ended_at in zip(chains, instants[::2], instants[1::2], strict=False):
        if record is not None and data.draw(st.booleans()):
            record = life.requeued(record, DIED, now=ended_at, stages=chain, retry_at=data.draw(st.floats(0.0, 1e6)))
        record = claim(record, claimed_at, chain)
    assert record is not None
    done = success(record, instants[-1], chains[-1])
    parts = [part for one in times.attempts(done) for part in one.parts]
    assert parts[0].start_ms == 0.0
    assert all(part.start_ms <= part.end_ms for part in parts)
    for before, after in pairwise(parts):
        assert after.start_ms == pytest.approx(before.end_ms, abs=0.05)
    assert parts[-1].end_ms == pytest.approx(done.phases["done"], abs=0.05)
    assert all(ms is None or ms >= 0 for ms in times.split(done))
