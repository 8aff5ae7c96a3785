"""What events and gauges mean on the board; no NATS, no clock."""

import json
import tracemalloc
from typing import Any

import pytest
from msgspec.structs import replace

from console.board.fetches import MOST
from console.board.protocol import RING_S
from console.board.queues import Gauge
from console.board.rows import FetchRow, Figure
from console.board.view import TICKER_PER_FLUSH, LiveView
from console.feed.health import workers
from console.feed.hub import Hub
from console.feed.watched import WatchedJobs
from signalbox.jobs import life
from signalbox.jobs.penalty import Penalty
from signalbox.wire.messages import ErrorInfo, Job, State
from signalbox.wire.modeldocs import Limits, Model, Serving, Signature, TensorSpec, Version
from signalbox.wire.splits import Split
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Device, Lease, Residency, Worker
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


def test_items_that_wait_for_a_service_are_its_models_backlog_with_no_worker_too() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    board.queues.items({"digits": 7}, T0)
    shown = row(board, "queues", "digits")
    assert (shown.items, shown.waiting, shown.history) == (7, 0, (7,))
    board.age(T0 + 1, is_blind=False)
    assert row(board, "alarms", "unserved:digits").text == "digits: 7 items wait in queues and no worker runs."
    board.queues.gauge("digits", Gauge(1, T0), T0 + 1)
    board.age(T0 + 2, is_blind=False)
    words = "digits: 1 job waits, 7 items wait in queues and no worker runs."
    assert row(board, "alarms", "unserved:digits").text == words
    board.queues.items({"gone": 1}, T0 + 3)
    assert (row(board, "queues", "gone").items, row(board, "queues", "gone").is_known) == (1, False)
    board.queues.items({}, T0 + 3)
    assert row(board, "queues", "digits").items == 0
    assert row(board, "queues", "gone") is None


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
    failed = Residency(model="digits", version=2, state="failed", error="no such file.")
    board.presence("b", worker("b", device=other, models=both), T0)
    assert row(board, "queues", "digits").ready == 1, "in memory of a worker that does not hold its GPU"
    board.presence("b", worker("b", token=8, device=other, models=(both[0], failed)), T0)
    found = row(board, "queues", "digits")
    assert (found.ready, found.failed, found.label) == (2, 0, "ready")
    board.presence("a", None, T0 + 1)
    board.presence("b", worker("b", token=8, device=other, models=(failed,)), T0 + 1)
    found = row(board, "queues", "digits")
    assert (found.ready, found.failed, found.state, found.label) == (0, 1, "failed", "does not load")
    assert found.why == "no such file"


def test_what_keeps_a_model_from_being_fetched_is_said_of_its_queue_and_is_an_alarm() -> None:
    board = view()
    board.model("digits", Model(name="digits", replicas=1), T0)
    coming = Residency(model="digits", version=1, state="fetching")
    board.presence("a", worker("a", token=7, models=(coming,)), T0)
    found = row(board, "queues", "digits")
    assert (found.fetching, found.label, found.why) == (1, "fetching", "its files are on their way to a GPU's host")
    further = replace(coming, fetched_bytes=41_000_000, fetch_bytes=100_000_000)
    board.presence("b", worker("b", device=Device(id="GPU-2", kind="nvidia", name="b"), models=(further,)), T0)
    found = row(board, "queues", "digits")
    assert (found.fetching, found.why) == (2, "its files are on their way to a GPU's host: 41 of 100 MB"), "unheld, too"
    board.presence("b", None, T0)
    board.queues.gauge("digits", Gauge(3, T0), T0)
    board.age(T0 + 1, is_blind=False)
    assert not board.topics.topics["alarms"].rows, "a job that waits for a fetch is served"
    board.presence("a", worker("a", token=7, models=(replace(coming, error="The store is away."),)), T0)
    found = row(board, "queues", "digits")
    assert (found.state, found.label, found.why) == ("failed", "cannot be fetched", "The store is away")
    board.age(T0 + 1, is_blind=False)
    board.presence("b", worker("b", models=(replace(coming, error="The store is away."),)), T0)
    board.age(T0 + 1, is_blind=False)
    told = [row(board, "alarms", key).text for key in board.topics.topics["alarms"].rows]
    assert told == ["digits:1 cannot be fetched to host north: The store is away."], "once for both workers"


def test_each_fetch_is_a_row_with_how_far_it_is_how_fast_and_how_many_jobs_wait_for_it() -> None:
    board = view()
    board.model("digits", Model(name="digits", replicas=1), T0)
    board.queues.gauge("digits", Gauge(3, T0), T0)
    coming = Residency(model="digits", version=2, state="fetching")
    further = replace(coming, fetched_bytes=41, fetch_bytes=100, fetch_rate=7.0)
    board.presence("a", worker("a", models=(coming,)), T0)
    board.presence("b", worker("b", models=(further,)), T0)
    board.age(T0 + 1, is_blind=False)
    fetches = board.topics.topics["fetches"].rows
    host = worker("a").host
    assert fetches == {
        f"digits:2@{host}": FetchRow("digits", 2, host, 41, 100, 7.0, words="41 of 100 bytes", waiting=3)
    }, "of the two workers of the host one brings the files"
    board.presence("b", worker("b", models=(replace(further, error="The store is away."),)), T0 + 1)
    board.presence("a", None, T0 + 1)
    board.age(T0 + 2, is_blind=True)
    assert len(fetches) == 1, "what was last known"
    board.age(T0 + 2, is_blind=False)
    assert row(board, "fetches", f"digits:2@{host}").fault == "The store is away."
    board.presence("b", worker("b", models=(replace(coming, state="ready"),)), T0 + 3)
    board.age(T0 + 3, is_blind=False)
    assert not fetches


def test_of_very_many_fetches_those_are_shown_that_most_jobs_wait_for() -> None:
    board = view()
    board.model("busy", Model(name="busy", replicas=1), T0)
    board.queues.gauge("busy", Gauge(3, T0), T0)
    names = ["busy", *(f"m{n}" for n in range(MOST + 20))]
    models = tuple(Residency(model=name, version=1, state="fetching") for name in reversed(names))
    board.presence("a", worker("a", models=models), T0)
    board.age(T0 + 1, is_blind=False)
    fetches = board.topics.topics["fetches"].rows
    assert len(fetches) == MOST + 1
    assert row(board, "fetches", "busy:1@" + worker("a").host).waiting == 3
    assert row(board, "fetches", "").others == 21


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


def test_a_split_that_was_rolled_back_by_itself_is_an_alarm_until_an_operator_ends_it() -> None:
    board = view()
    split = Split(target="stable", candidate=2, weight=0.0, halted="3 of its last 3 calls ended the runner.")
    published = Model(name="digits", labels={"stable": 1}, splits=(split,))
    board.rollouts.show("digits", published, None)
    board.age(T0 + 1, is_blind=False)
    assert (
        "digits:2 was rolled back by itself; part of label stable got it. 3 of"
        in row(board, "alarms", "split:digits:stable").text
    )
    for later in (replace(published, splits=()), None):
        board.rollouts.show("digits", published, None)
        board.rollouts.show("digits", later, None)
        board.age(T0 + 2, is_blind=False)
        assert row(board, "alarms", "split:digits:stable") is None


def test_a_candidate_that_answers_otherwise_in_shadow_is_an_alarm_until_its_split_ends_or_begins_anew() -> None:
    board = view()
    split = Split(candidate=2, weight=0.0, shadow=0.5, differs="5 of 800 outputs are outside the tolerance.")
    board.rollouts.show("digits", Model(name="digits", splits=(split,)), None)
    board.age(T0 + 1, is_blind=False)
    assert "5 of 800 outputs are outside" in row(board, "alarms", "shadow:digits:").text
    board.rollouts.show("digits", Model(name="digits", splits=(replace(split, differs=""),)), None)
    board.age(T0 + 2, is_blind=False)
    assert row(board, "alarms", "shadow:digits:") is None


def test_a_candidate_that_is_not_ready_everywhere_is_named_on_its_model_s_page() -> None:
    board = view()
    published = Model(
        name="digits", splits=(Split(candidate=2, weight=0.1), Split(target="a", candidate=3, weight=0.1))
    )
    for record, uncounted in (
        (None, {2, 3}),
        (Serving(publication=7), {2, 3}),
        (Serving(publication=7, candidates=(2,)), {3}),
        (Serving(publication=7, candidates=(2, 3)), set()),
    ):
        board.rollouts.show("digits", published, record)
        assert board.rollouts.uncounted("digits") == uncounted
    board.rollouts.show("digits", published, None)
    board.rollouts.show("digits", None, None)
    assert board.rollouts.uncounted("digits") == set()


def test_deltas_are_made_while_somebody_may_come_back_for_them() -> None:
    board, viewer = view(), Viewer()
    hub, queues = Hub(board, WatchedJobs(board, lambda _: None, lambda: T0)), board.topics.topics["queues"]

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


def test_the_ticker_stands_in_order_of_time_whatever_was_received_first() -> None:
    board = view()
    running = life.claimed(document(), None, worker="a", gpu=GPU, token=1, now=T0)
    board.record(running, T0 + 0.02, T0)
    board.accepted(document(), T0 + 0.01, T0)
    board.flush(T0)
    states = [getattr(entry, "state", "") for entry in board.topics.topics["ticker"].entries]
    assert states == ["queued", "running"]
