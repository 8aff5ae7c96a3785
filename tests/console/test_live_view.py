"""What events and gauges mean on the board; no NATS, no clock."""

import json
import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from console.board.protocol import RING_S
from console.board.queues import Gauge
from console.board.rows import Figure
from console.board.view import TICKER_PER_FLUSH, LiveView
from console.feed.health import gpus, workers
from console.feed.hub import Hub
from signalbox.jobs import life
from signalbox.jobs.penalty import Penalty
from signalbox.wire.messages import (
    Desired,
    Device,
    ErrorInfo,
    Job,
    Lease,
    Limits,
    Model,
    Residency,
    Run,
    Serving,
    Signature,
    State,
    TensorSpec,
    Ticket,
    Version,
    Worker,
)
from tests.console.mirror import TOPICS, Viewer

GPU = "GPU-1"
T0 = 1_000_000.0


def view() -> LiveView:
    """An empty board."""
    return LiveView("e", T0)


def row(board: LiveView, topic: str, key: str) -> Any:
    """One row, or None."""
    return board.topics.topics[topic].rows.get(key)


def worker(name: str, **more: Any) -> Worker:
    """A worker's presence."""
    fields: dict[str, Any] = {
        "id": name,
        "boot": "b",
        "host": "north/boot",
        "pid": 7,
        "state": "ready",
        "device": Device(id=GPU, kind="nvidia", name="H200"),
        "started_at": T0,
        "beat_at": T0,
    }
    return Worker(**fields | more)


def held(board: LiveView, owner: str, revision: int, at: float, **more: Any) -> None:
    """A lease write."""
    lease = Lease(state="HELD", gpu=GPU, owner=owner, since=at, **more)
    board.lanes.lease(GPU, lease, revision=revision, at=at, ttl_s=20.0, now=at)


def document(model: str = "digits", number: int = 0) -> Job:
    """An accepted job."""
    return Job(
        id=f"{number:08d}-0000-0000-0000-000000000000",
        model=model,
        version=1,
        signature="serving_default",
        account_id="k",
        created_at=T0,
        deadline_at=T0 + 900,
    )


def test_the_token_of_a_hold_is_the_revision_of_its_first_write() -> None:
    board = view()
    held(board, "a", 41, T0)
    assert row(board, "lanes", GPU).token == 41
    held(board, "a", 42, T0 + 2, token=41, beats=1)
    assert (row(board, "lanes", GPU).token, row(board, "lanes", GPU).renewals) == (41, 1)


def test_a_lease_past_its_time_is_expired_even_if_no_marker_came() -> None:
    board = view()
    held(board, "a", 1, T0)
    board.age(T0 + 19, is_blind=False)
    assert row(board, "lanes", GPU).state == "held"
    board.age(T0 + 21, is_blind=False)
    assert row(board, "lanes", GPU).state == "expired"
    assert row(board, "alarms", f"expired:{GPU}").level == "error"


def test_a_board_without_nats_claims_nothing() -> None:
    board = view()
    held(board, "a", 1, T0)
    board.age(T0 + 60, is_blind=True)
    assert row(board, "lanes", GPU).state == "unknown"
    assert not board.topics.topics["alarms"].rows


def test_what_stood_when_nats_went_stays_and_says_as_of_when() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.presence("a", worker("a"), T0)
    board.queues.gauge("digits", Gauge(3, T0), T0)
    board.age(T0 + 1, is_blind=False)
    assert row(board, "alarms", "unserved:digits").as_of == 0
    board.age(T0 + 9, is_blind=True)
    assert row(board, "alarms", "unserved:digits").as_of == T0 + 1
    assert row(board, "alarms", "unserved:digits").since == T0 + 1
    assert (row(board, "workers", "a").state, row(board, "workers", "a").word) == ("unknown", "unknown")
    board.queues.gauge("digits", Gauge(0, None), T0 + 10)
    board.age(T0 + 10, is_blind=False)
    assert row(board, "alarms", "unserved:digits") is None
    assert row(board, "workers", "a").state == "ready"


def test_a_drained_worker_may_be_stopped_and_all_of_them_drained_is_an_alarm() -> None:
    board = view()
    board.presence("a", worker("a", state="draining"), T0)
    board.presence("b", worker("b"), T0)
    board.age(T0 + 1, is_blind=False)
    assert row(board, "workers", "a").label == "draining"
    board.presence("a", worker("a", state="draining", is_drained=True), T0 + 2)
    assert row(board, "workers", "a").label == "drained, may be stopped now"
    assert workers(board.workers()) == Figure("Workers", "ok", "2/2", "1 drained")
    assert row(board, "alarms", "drained") is None
    board.presence("b", worker("b", state="draining"), T0 + 3)
    board.age(T0 + 3, is_blind=False)
    assert "Every worker drains" in row(board, "alarms", "drained").text
    assert workers(board.workers()).state == "failed"
    board.presence("a", None, T0 + 4)
    board.presence("b", None, T0 + 4)
    board.age(T0 + 4, is_blind=False)
    assert row(board, "alarms", "drained") is None, "none is left to resume"
    assert workers(board.workers()) == Figure("Workers", "failed", "0/2")


def test_waiters_stand_in_the_order_of_their_first_tickets() -> None:
    board = view()
    for name, revision in (("c", 9), ("a", 5), ("b", 7)):
        ticket = Ticket(gpu=GPU, worker=name, boot="b", since=T0)
        board.lanes.ticket(GPU, name, ticket, revision=revision, now=T0)
    renewed = Ticket(gpu=GPU, worker="a", boot="b", since=T0)
    board.lanes.ticket(GPU, "a", renewed, revision=30, now=T0 + 5)
    assert [w.worker for w in row(board, "lanes", GPU).waiters] == ["a", "b", "c"]
    board.lanes.ticket(GPU, "a", None, revision=31, now=T0 + 6)
    assert [w.worker for w in row(board, "lanes", GPU).waiters] == ["b", "c"]


def test_a_new_hold_forgets_the_jobs_of_the_last_one() -> None:
    board = view()
    held(board, "a", 1, T0)
    running = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    board.record(running, T0, T0)
    assert row(board, "lanes", GPU).job_count == 1
    held(board, "b", 5, T0 + 3)
    assert row(board, "lanes", GPU).job_count == 0


def test_a_job_that_ended_leaves_the_lane() -> None:
    board = view()
    held(board, "a", 1, T0)
    running = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    board.record(running, T0, T0)
    board.record(life.succeeded(running, now=T0 + 1, batch=1, size_bytes=1), T0 + 1, T0 + 1)
    assert row(board, "lanes", GPU).jobs == ()


def test_percentiles_split_waiting_from_running() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    for number in range(100):
        wait, run = 0.01 * number, 0.5
        late = T0 + wait + run - 0.001  # claims are mostly written after the run began
        claimed = life.claimed(document(number=number), None, worker="a", gpu=GPU, token=1, now=late)
        stages = [("run", T0 + wait), ("commit", T0 + wait + run)]
        done = life.succeeded(claimed, now=T0 + wait + run + 0.2, stages=stages, batch=1, size_bytes=1)
        board.record(done, T0, T0)
    board.age(T0 + 1, is_blind=False)
    queue = row(board, "queues", "digits")
    assert (queue.wait_p50_s, queue.wait_p99_s) == (pytest.approx(0.5), pytest.approx(0.99))
    assert queue.run_p50_s == pytest.approx(0.5)


def test_percentiles_say_of_how_many_jobs_and_since_when_they_are_and_forget_old_ones() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.count(T0)

    def succeed(number: int, run_s: float) -> None:
        claimed = life.claimed(document(number=number), None, worker="a", gpu=GPU, token=1, now=T0)
        stages = [("run", T0), ("commit", T0 + run_s)]
        done = life.succeeded(claimed, now=T0 + run_s, stages=stages, batch=1, size_bytes=1)
        board.record(done, T0 + number, T0 + number)
        board.age(T0 + number, is_blind=False)

    succeed(10, 9.0)
    succeed(800, 1.0)
    found = row(board, "queues", "digits")
    assert (found.sampled, found.sampled_since, found.run_p99_s) == (2, T0 + 10, 9.0)
    board.age(T0 + 911, is_blind=False)
    found = row(board, "queues", "digits")
    assert (found.sampled, found.sampled_since, found.run_p99_s) == (1, T0 + 800, 1.0)
    board.queues.count(T0 + 912)
    board.age(T0 + 912, is_blind=False)
    assert row(board, "queues", "digits").run_p99_s is None, "what came in between was not told"


def test_cancelled_and_expired_jobs_are_not_failed_and_leave_the_queue_all_the_same() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.count(T0)
    claimed = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    error = ErrorInfo(code="model_error", message="no")
    ends = (life.cancelled(claimed, now=T0), life.expired(claimed, now=T0), life.failed(claimed, error, now=T0))
    for ended in ends * 20:
        board.record(ended, T0 + 1, T0 + 1)
    board.queues.gauge("digits", Gauge(12, T0), T0 + 10)
    bucket = row(board, "throughput", str(int(T0 + 1) // 5 * 5))
    assert (bucket.failed, bucket.cancelled) == (20, 40)
    assert row(board, "queues", "digits").drain_s == pytest.approx(2.0)


def test_a_job_that_waits_past_its_deadline_is_named_as_such() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.gauge("digits", Gauge(3, T0, deadline_at=T0 + 5), T0)
    board.age(T0 + 4, is_blind=False)
    assert "deadline" not in row(board, "alarms", "unserved:digits").text
    board.age(T0 + 6, is_blind=False)
    assert "past its deadline" in row(board, "alarms", "unserved:digits").text


def test_a_queue_that_grows_never_claims_to_drain() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.count(T0)
    for _ in range(60):
        board.accepted(document(), T0 + 5, T0 + 5)
    board.queues.gauge("digits", Gauge(60, T0), T0 + 10)
    assert row(board, "queues", "digits").drain_s is None


def test_a_queue_that_shrinks_says_when_it_is_empty() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    claimed = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    board.queues.count(T0)
    for _ in range(100):
        done = life.succeeded(claimed, now=T0 + 1, batch=1, size_bytes=1)
        board.record(done, T0 + 5, T0 + 5)
    board.queues.gauge("digits", Gauge(50, T0), T0 + 10)
    assert row(board, "queues", "digits").drain_s == pytest.approx(5.0)


def test_without_viewers_the_series_goes_by_what_the_queue_and_the_workers_count() -> None:
    board = view()
    board.presence("a", worker("a", done=98, failed=4), T0 + 1)
    board.presence("a", worker("a", done=129, failed=5), T0 + 6)
    board.presence("a", worker("a", boot="later", done=3), T0 + 7)
    board.queues.arrived(24, T0 + 6)
    bucket = row(board, "throughput", str(int(T0 + 6) // 5 * 5))
    assert (bucket.arrived, bucket.succeeded, bucket.failed) == (24, 31, 1)
    board.queues.count(T0 + 8)
    board.presence("a", worker("a", boot="later", done=9), T0 + 8)
    assert row(board, "throughput", str(int(T0 + 6) // 5 * 5)).succeeded == 31, "now events tell"


def test_rates_begin_when_events_are_followed() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0 - 1000)
    board.queues.count(T0)
    for _ in range(30):
        board.accepted(document(), T0 + 5, T0 + 5)
    board.age(T0 + 10, is_blind=False)
    assert row(board, "queues", "digits").arrived_per_s == pytest.approx(3.0)


def test_a_model_that_is_not_registered_has_a_row_as_long_as_there_are_jobs_of_it() -> None:
    board = view()
    board.queues.gauge("digits", Gauge(2, T0), T0)
    assert not row(board, "queues", "digits").is_known
    board.presence("a", worker("a", in_flight={"digits": 2}), T0 + 1)
    board.queues.gauge("digits", Gauge(0, None), T0 + 1)
    assert row(board, "queues", "digits").running == 2
    board.presence("a", worker("a"), T0 + 2)
    assert row(board, "queues", "digits") is None


def test_a_queue_is_busy_while_jobs_of_it_wait_or_are_in_flight() -> None:
    board = view()
    for name in ("digits", "slow", "idle"):
        board.model(name, Model(name=name), T0)
    board.queues.gauge("digits", Gauge(2, T0), T0)
    board.presence("a", worker("a", in_flight={"slow": 1}), T0)
    assert board.queues.busy() == {"digits", "slow"}
    board.queues.gauge("digits", Gauge(0, None), T0 + 1)
    board.presence("a", None, T0 + 1)
    assert board.queues.busy() == set()


def test_the_row_of_a_model_that_nobody_calls_is_left_alone() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.flush(T0)
    before = row(board, "queues", "digits")
    for second in range(1, 100):
        board.presence("w1", worker("w1", in_flight={"other": second}), T0 + second)
        board.age(T0 + second, is_blind=False)
    assert row(board, "queues", "digits") is before
    board.presence("w1", worker("w1", token=7, models=(Residency(model="digits", version=1, state="ready"),)), T0 + 100)
    assert row(board, "queues", "digits").ready == 1


def test_a_model_that_was_called_is_left_alone_when_its_history_is_over() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.accepted(document(), T0, T0)
    board.queues.gauge("digits", Gauge(1, T0), T0)
    board.queues.gauge("digits", Gauge(0, None), T0 + 1)
    for second in range(2, 1_000):
        board.age(T0 + second, is_blind=False)
    found = row(board, "queues", "digits")
    assert (found.waiting, found.arrived_per_s, set(found.history)) == (0, 0.0, {0})
    board.age(T0 + 2_000, is_blind=False)
    assert row(board, "queues", "digits") is found


def test_the_ticker_says_how_many_it_left_out() -> None:
    board = view()
    for number in range(TICKER_PER_FLUSH + 30):
        board.accepted(document(number=number), T0, T0)
    frames = {frame.topic: json.loads(frame.text) for frame in board.flush(T0)}
    added = frames["ticker"]["add"]
    assert len(added) == TICKER_PER_FLUSH
    assert added[0]["skipped"] == 30
    assert added[-1]["id"] == document(number=TICKER_PER_FLUSH + 29).id


@pytest.mark.parametrize(
    ("model", "workers", "words"),
    [
        (Model(name="digits"), [], "no worker runs"),
        (Model(name="digits"), [worker("a")], "no worker serves it"),
        (Model(name="digits", replicas=0), [worker("a")], "it has no replicas"),
    ],
)
def test_a_queue_that_no_worker_serves_says_why(model: Model, workers: list[Worker], words: str) -> None:
    board = view()
    board.model("digits", model, T0)
    for one in workers:
        board.presence(one.id, one, T0)
    board.queues.gauge("digits", Gauge(3, T0), T0)
    board.age(T0 + 1, is_blind=False)
    assert words in row(board, "alarms", "unserved:digits").text


def test_a_model_without_a_signature_that_can_be_run_is_not_ready() -> None:
    board, dense = view(), TensorSpec(dtype="DT_FLOAT", shape=(-1,))
    sparse = TensorSpec(dtype="DT_FLOAT", shape=(-1,), kind="sparse")
    held(board, "a", 7, T0)
    board.presence("a", worker("a", token=7, models=(Residency(model="digits", version=1, state="ready"),)), T0)

    def shown(**inputs: TensorSpec) -> tuple[str, str]:
        signature = Signature(inputs=inputs, outputs={"y": dense, "z": sparse})
        version = Version(version=1, path="/m", signatures={"__init": signature, "serving_default": signature})
        board.model("digits", Model(name="digits", versions=(version,)), T0)
        found = row(board, "queues", "digits")
        return found.state, found.label

    assert shown(x=sparse) == ("failed", "cannot be run")
    assert shown(x=dense) == ("ready", "ready"), "its output y can be had"


def test_a_paused_queue_with_jobs_is_a_warning_and_not_a_fault() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.desired("digits", Desired(is_paused=True, actor="ada"), T0)
    board.queues.gauge("digits", Gauge(3, T0), T0)
    board.age(T0 + 1, is_blind=False)
    assert row(board, "alarms", "paused:digits").level == "warning"
    assert row(board, "alarms", "unserved:digits") is None


def test_a_gpu_counts_once_however_many_versions_of_a_model_it_has_in_memory() -> None:
    board = view()
    board.model("digits", Model(name="digits", replicas=2), T0)
    both = tuple(Residency(model="digits", version=number, state="ready") for number in (1, 2))
    board.presence("a", worker("a", token=7, models=both), T0)
    assert (row(board, "queues", "digits").ready, row(board, "queues", "digits").label) == (1, "ready 1/2")
    other = Device(id="GPU-2", kind="nvidia", name="H200")
    failed = Residency(model="digits", version=2, state="failed")
    board.presence("b", worker("b", device=other, models=both), T0)
    assert row(board, "queues", "digits").ready == 1, "in memory of a worker that does not hold its GPU"
    board.presence("b", worker("b", token=8, device=other, models=(both[0], failed)), T0)
    found = row(board, "queues", "digits")
    assert (found.ready, found.failed, found.label) == (2, 0, "ready")
    board.presence("a", None, T0 + 1)
    board.presence("b", worker("b", token=8, device=other, models=(failed,)), T0 + 1)
    found = row(board, "queues", "digits")
    assert (found.ready, found.failed, found.state, found.label) == (0, 1, "failed", "does not load")


def test_what_keeps_a_model_from_being_fetched_is_said_of_its_queue_and_is_an_alarm() -> None:
    board = view()
    board.model("digits", Model(name="digits", replicas=1), T0)
    coming = Residency(model="digits", version=1, state="fetching")
    board.presence("a", worker("a", token=7, models=(coming,)), T0)
    found = row(board, "queues", "digits")
    assert (found.fetching, found.label, found.why) == (1, "fetching", "its files are on their way to a GPU's host")
    board.presence("a", worker("a", token=7, models=(replace(coming, error="The store is away."),)), T0)
    found = row(board, "queues", "digits")
    assert (found.state, found.label, found.why) == ("failed", "cannot be fetched", "The store is away")
    board.age(T0 + 1, is_blind=False)
    assert "cannot be fetched to the host of a: The store is away." in row(board, "alarms", "fetch:a:digits").text


def test_an_alarm_keeps_its_beginning_while_it_stands() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.gauge("digits", Gauge(3, T0), T0)
    for second in range(5):
        board.age(T0 + second, is_blind=False)
    assert row(board, "alarms", "unserved:digits").since == T0


def test_a_model_that_does_not_load_is_named_with_the_workers_reason() -> None:
    board = view()
    broken = Residency(model="digits", version=1, state="failed", error="no such file")
    board.presence("a", worker("a", models=(broken,)), T0)
    board.age(T0 + 1, is_blind=False)
    assert "no such file" in row(board, "alarms", "load:a:digits").text


def test_a_version_that_does_not_load_and_keeps_requests_on_the_old_one_is_an_alarm() -> None:
    board = view()
    versions = tuple(Version(version=number, path="/m") for number in (1, 2))
    published = Model(name="digits", versions=versions, default_version=2, labels={"stable": 1})
    record = Serving(publication=7, default=1, labels={"stable": 1})
    board.rollouts.show("digits", published, record)
    board.age(T0 + 1, is_blind=False)
    assert row(board, "alarms", "rollout:digits:") is None, "it is being loaded"
    record = replace(record, failed=(2,))
    board.rollouts.show("digits", published, record)
    board.age(T0 + 2, is_blind=False)
    assert "stay with version 1" in row(board, "alarms", "rollout:digits:").text
    assert row(board, "alarms", "rollout:digits:stable") is None
    board.rollouts.show("digits", replace(published, default_version=1), record)
    board.age(T0 + 3, is_blind=False)
    assert row(board, "alarms", "rollout:digits:") is None
    assert not board.rollouts.pending("digits")


def test_deltas_are_made_while_somebody_may_come_back_for_them() -> None:
    board, viewer = view(), Viewer()
    hub, queues = Hub(board), board.topics.topics["queues"]

    def changed(replicas: int, now: float) -> None:
        board.model("digits", Model(name="digits", replicas=replicas), now)
        hub.flush(now)

    changed(1, T0)
    assert queues.since(0) is None, "nobody has watched yet"
    hub.subscribe(viewer, TOPICS, {}, T0 + 1)
    hub.flush(T0 + 1)
    hub.leave(viewer)
    seq = viewer.mirror.seqs["queues"]
    changed(2, T0 + 2)
    assert len(queues.since(seq) or []) == 1
    changed(3, T0 + 2 + RING_S)
    assert queues.since(seq) is None
    hub.subscribe(viewer, TOPICS, {"epoch": "e", "queues": seq}, T0 + 40)
    assert viewer.row("queues", "digits")["replicas"] == 3


def test_a_model_that_nobody_calls_costs_little_more_than_its_name() -> None:
    board = view()
    board.model("first", Model(name="first"), T0)
    board.flush(T0, is_watched=False)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    for number in range(1000):
        board.model(f"m{number}", Model(name=f"m{number}", replicas=1000, limits=Limits(max_queue=70_000)), T0)
    board.flush(T0, is_watched=False)
    taken, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert (taken - before) / 1000 < 200
    assert not board.queues.called()


def test_a_worker_that_has_gone_leaves_the_board_after_ten_minutes() -> None:
    board = view()
    board.presence("a", worker("a"), T0)
    board.presence("a", None, T0 + 1)
    board.age(T0 + 500, is_blind=False)
    assert row(board, "workers", "a").state == "lost"
    board.age(T0 + 700, is_blind=False)
    assert row(board, "workers", "a") is None


def test_a_retried_job_is_told_as_such() -> None:
    board = view()
    running = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    error = ErrorInfo(code="runner_crashed", message="The process that ran the model died.")
    again = life.requeued(running, error, now=T0, penalty=Penalty.STRIKE)
    board.record(again, T0, T0)
    board.flush(T0)
    (entry,) = board.topics.topics["ticker"].entries
    assert again.state is State.QUEUED
    assert getattr(entry, "state", "") == "retrying"


def computing(since: float, *jobs: str, model: str = "slow", activity: str = "computing") -> Run:
    """What a runner does."""
    return Run(activity=activity, model=model, version=1, jobs=jobs, since=since, expected_s=12.0)


def test_a_gpu_that_is_held_is_said_to_compute_to_load_to_restart_its_runner_or_to_be_idle() -> None:
    board = view()
    held(board, "a", 7, T0)
    lane = row(board, "lanes", GPU)
    assert (lane.state, lane.activity, lane.run) == ("held", "", None), "it has not said yet"
    for second, state, run, activity in (
        (1, "ready", None, "idle"),
        (2, "ready", computing(T0 + 2, model="slow", activity="loading"), "loading"),
        (3, "ready", computing(T0 + 3, "j1"), "computing"),
        (4, "restarting", None, "restarting"),
        (5, "ready", None, "idle"),
    ):
        board.presence("a", worker("a", token=7, run=run, state=state), T0 + second)
        lane = row(board, "lanes", GPU)
        assert (lane.state, lane.activity) == ("held", activity)
        assert (lane.run.model if lane.run else None) == (run.model if run else None)
    assert [interval.state for interval in lane.strip] == ["held", "restarting", "held"]
    board.presence("a", worker("a", token=6, run=computing(T0)), T0 + 6)
    assert row(board, "lanes", GPU).activity == "", "that was said of an earlier hold"


def beats(board: LiveView, share: float, seconds: range, *, step_s: float = 2.0, **more: Any) -> None:
    """Heartbeats of a holder whose runner computes for a share of the time, in runs that are over when it tells."""
    for second in seconds:
        at = T0 + second * step_s
        held(board, "a", 7, at, token=7)
        board.presence("a", worker("a", token=7, beat_at=at, computing_s=share * second * step_s, **more), at)


@pytest.mark.parametrize(
    ("share", "word"), [(0.06, "partly"), (0.49, "partly"), (0.5, "computing"), (1.0, "computing"), (0.0, "held")]
)
def test_a_gpu_is_shown_by_the_share_of_the_time_in_which_it_is_used(share: float, word: str) -> None:
    board = view()
    beats(board, share, range(30))
    lane = row(board, "lanes", GPU)
    assert lane.word == word
    assert lane.use == pytest.approx(share, abs=0.001)
    assert [used.computing for used in lane.used] == pytest.approx([share] * 12, abs=0.005), "of 60 s, told each 2 s"
    assert gpus(board.lanes.rows()).value == f"{share:.0%}"
    shown = row(board, "workers", "a")
    assert shown.label == (f"in use {share:.0%}" if share else "holds its GPU, idle")


def test_the_share_of_a_long_run_is_told_while_it_goes_on() -> None:
    board = view()
    beats(board, 1.0, range(10), run=computing(T0, "j1"))
    assert row(board, "lanes", GPU).use == pytest.approx(1.0, abs=0.001)


def test_a_worker_that_begins_anew_has_used_nothing_before_it_told_twice() -> None:
    board = view()
    beats(board, 0.5, range(10))
    held(board, "a", 7, T0 + 20, token=7)
    board.presence("a", worker("a", boot="later", token=7, beat_at=T0 + 20, computing_s=1.0), T0 + 20)
    board.presence("a", worker("a", boot="later", token=7, beat_at=T0 + 22, computing_s=1.0), T0 + 22)
    assert row(board, "lanes", GPU).used[-1].computing == pytest.approx(0.0)


def test_loading_is_used_time_of_its_own_and_both_together_are_at_most_all() -> None:
    board = view()
    for second in range(0, 20, 2):
        at = T0 + second
        held(board, "a", 7, at, token=7)
        reported = worker("a", token=7, beat_at=at, computing_s=0.7 * second, loading_s=0.6 * second)
        board.presence("a", reported, at)
    used = row(board, "lanes", GPU).used[0]
    assert (used.computing, used.loading) == (pytest.approx(0.7), pytest.approx(0.3))


def test_a_gpu_that_only_loads_is_not_in_use() -> None:
    board = view()
    for second in range(0, 20, 2):
        at = T0 + second
        held(board, "a", 7, at, token=7)
        run = Run(activity="loading", model="digits", version=1, since=T0)
        board.presence("a", worker("a", token=7, beat_at=at, loading_s=1.0 * second, run=run), at)
    figure = gpus(board.lanes.rows())
    assert (figure.value, figure.note) == ("0%", "1 loading")


def test_a_dead_worker_waits_for_no_gpu_and_cannot_be_asked_for_its_own() -> None:
    board = view()
    held(board, "a", 7, T0)
    for name in ("a", "b"):
        board.presence(name, worker(name, token=7 if name == "a" else 0), T0)
    board.lanes.ticket(GPU, "b", Ticket(gpu=GPU, worker="b", boot="b1", since=T0), revision=1, now=T0)
    lane = row(board, "lanes", GPU)
    assert (lane.may_release, [w.worker for w in lane.waiters]) == (True, ["b"])
    for name in ("a", "b"):
        board.presence(name, None, T0 + 1)
    lane = row(board, "lanes", GPU)
    assert (lane.state, lane.may_release, lane.waiters) == ("held", False, ())


def test_the_shares_of_a_lane_reach_back_ten_minutes_and_no_further() -> None:
    board = view()
    beats(board, 0.3, range(900), step_s=1.0)
    lane = row(board, "lanes", GPU)
    assert len(lane.strip) == 1
    assert 600 <= T0 + 900 - lane.used[0].at <= 606
    assert len(lane.used) <= 121


def test_the_head_figure_is_the_share_of_all_gpus_and_says_what_each_does() -> None:
    board = view()
    assert gpus(board.lanes.rows()).value == "–"
    beats(board, 0.4, range(20))
    board.lanes.lease("GPU-2", Lease(state="FREE", gpu="GPU-2"), revision=8, at=T0, ttl_s=0.0, now=T0)
    figure = gpus(board.lanes.rows())
    assert (figure.value, figure.note) == ("20%", "1 partly in use · 1 free")
    board.presence("a", worker("a", token=7, state="restarting"), T0 + 40)
    assert gpus(board.lanes.rows()).note == "1 restarting its runner · 1 free"
    board.lanes.age(T0 + 41, is_blind=True)
    assert gpus(board.lanes.rows()).value == "?"


def test_what_is_prefetched_waits_and_only_what_has_begun_runs() -> None:
    board = view()
    for name in ("digits", "slow"):
        board.model(name, Model(name=name), T0)
    held(board, "a", 7, T0)
    running, prefetched = ("s1",), ("d1", "d2", "d3")
    board.presence(
        "a",
        worker(
            "a",
            token=7,
            running=running + prefetched,
            run=computing(T0, *running),
            in_flight={"slow": 1, "digits": 3},
            waiting={"digits": 3},
            oldest={"digits": T0 - 7},
            models=(Residency(model="digits", version=1, state="ready"),),
        ),
        T0 + 1,
    )
    board.queues.gauge("digits", Gauge(2, T0 + 2), T0 + 2)
    lane, digits, slow = (row(board, *where) for where in (("lanes", GPU), ("queues", "digits"), ("queues", "slow")))
    assert [job.id for job in lane.jobs] == ["s1"]
    assert (digits.waiting, digits.prefetched, digits.running) == (5, 3, 0)
    assert digits.oldest_at == T0 - 7, "a job keeps its beginning when it is pulled"
    assert digits.behind == "slow:1"
    assert (slow.waiting, slow.running, slow.oldest_at, slow.behind) == (0, 1, None, "")
    board.age(T0 + 4, is_blind=False)
    assert row(board, "alarms", "behind:digits") is None
    board.age(T0 + 6, is_blind=False)
    assert "slow:1" in row(board, "alarms", "behind:digits").text
    board.presence("a", worker("a", token=7), T0 + 12)
    board.queues.gauge("digits", Gauge(0, None), T0 + 12)
    board.age(T0 + 12, is_blind=False)
    assert row(board, "alarms", "behind:digits") is None
    assert row(board, "queues", "digits").waiting == 0


def test_a_holder_that_computes_nothing_while_its_jobs_wait_is_an_alarm() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    held(board, "a", 7, T0)
    digits = (Residency(model="digits", version=1, state="ready"),)
    for second in (0, 8, 12):
        board.presence("a", worker("a", token=7, models=digits), T0 + second)
        board.queues.gauge("digits", Gauge(3, T0 + 1), T0 + second)
        board.age(T0 + second, is_blind=False)
        assert bool(row(board, "alarms", f"idle:{GPU}")) is (second == 12)
    board.presence("a", worker("a", token=7, models=digits, run=computing(T0 + 12, "j", model="digits")), T0 + 13)
    board.age(T0 + 13, is_blind=False)
    assert row(board, "alarms", f"idle:{GPU}") is None


def test_the_ticker_stands_in_order_of_time_whatever_was_received_first() -> None:
    board = view()
    running = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    board.record(running, T0 + 0.02, T0)
    board.accepted(document(), T0 + 0.01, T0)
    board.flush(T0)
    states = [getattr(entry, "state", "") for entry in board.topics.topics["ticker"].entries]
    assert states == ["queued", "running"]
