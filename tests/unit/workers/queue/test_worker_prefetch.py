from hypothesis import given
from hypothesis import strategies as st

from signalbox.wire.names import PRIORITIES, Priority
from workers.queue.prefetch import depth, missing_credits

NONE: dict[Priority, int] = {"hi": 0, "mid": 0, "lo": 0}


def deep(run_s: float | None, *, is_running: bool = False, mean_bytes: float = 100.0) -> int:
    return depth(32, run_s, is_running=is_running, mean_bytes=mean_bytes, room_bytes=1_000_000)


def test_two_batches_wait_for_a_quick_model_and_one_for_an_unknown_one() -> None:
    assert deep(0.002, is_running=True) == 64
    assert deep(None) == 32


def test_what_waits_for_quick_runs_of_one_job_each_hides_the_latency_of_the_queue() -> None:
    def alone(run_s: float | None) -> int:
        return depth(1, run_s, is_running=True, mean_bytes=100.0, room_bytes=1_000_000)

    assert [alone(run_s) for run_s in (None, 0.0, 0.001, 0.02, 0.3, 2.0)] == [1, 64, 20, 2, 1, 0]


def test_nothing_is_pulled_behind_a_slow_run() -> None:
    assert deep(2.0, is_running=True) == 0
    assert deep(2.0) == 32


def test_large_inputs_bound_what_waits_but_one_is_always_allowed() -> None:
    assert deep(0.002, mean_bytes=100_000) == 10
    assert deep(0.002, mean_bytes=5_000_000) == 1


def test_an_idle_worker_asks_on_all_three_priorities() -> None:
    assert missing_credits(8, NONE, NONE) == {"hi": 8, "mid": 8, "lo": 8}


def test_waiting_jobs_leave_less_room_for_less_important_ones() -> None:
    assert missing_credits(8, {"hi": 0, "mid": 8, "lo": 0}, NONE) == {"hi": 8}


def test_small_top_ups_are_saved_up() -> None:
    assert missing_credits(64, NONE, {"hi": 64, "mid": 55, "lo": 48}) == {"lo": 16}


@given(st.integers(0, 100), st.tuples(*[st.integers(0, 50)] * 3), st.tuples(*[st.integers(0, 50)] * 3))
def test_no_priority_is_ever_asked_for_more_than_there_is_room(
    wanted: int, waiting: tuple[int, ...], outstanding: tuple[int, ...]
) -> None:
    held = dict(zip(PRIORITIES, waiting, strict=True))
    out = dict(zip(PRIORITIES, outstanding, strict=True))
    for priority, number in missing_credits(wanted, held, out).items():
        assert number > 0
        assert number + out[priority] + held[priority] <= wanted
