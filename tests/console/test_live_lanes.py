"""What a lane of the board says of its GPU: who holds it, who waits, what its runner does; no NATS, no clock."""

from typing import Any

import pytest

from console.board.queues import Gauge
from console.board.view import LiveView
from console.feed.health import gpus
from signalbox.jobs import life
from signalbox.wire.modeldocs import Model
from signalbox.wire.workerdocs import Lease, Residency, Run, Ticket
from tests.console.test_live_view import GPU, T0, document, held, row, view, worker


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


def test_a_holder_whose_jobs_wait_for_a_version_that_is_fetched_does_not_fail_to_serve() -> None:
    board = view()
    board.model("digits", Model(name="digits"), T0)
    held(board, "a", 7, T0)
    digits = tuple(Residency(model="digits", version=n, state=state) for n, state in ((1, "fetching"), (2, "ready")))
    for second in (0, 12):
        board.presence("a", worker("a", token=7, models=digits), T0 + second)
        board.queues.gauge("digits", Gauge(3, T0 + 1), T0 + second)
        board.age(T0 + second, is_blind=False)
    assert row(board, "alarms", f"idle:{GPU}") is None
