"""The one rule by which a split is rolled back by itself."""

import pytest

from console.splits.rule import CRASHES, FEWEST, Bounds, Call, Sample, sample, why_rolled_back

BOUNDS = Bounds(error_points=2.0, run_factor=1.5, run_floor_ms=10.0)


def calls(fine: int, failed: int = 0, crashed: int = 0, run_ms: float = 10.0) -> Sample:
    return sample(
        [Call(is_error=False, is_crash=False, run_ms=run_ms)] * fine
        + [Call(is_error=True, is_crash=False, run_ms=None)] * failed
        + [Call(is_error=False, is_crash=True, run_ms=None)] * crashed
    )


@pytest.mark.parametrize(
    ("candidate", "other", "is_rolled_back"),
    [
        (calls(0), calls(0), False),
        (calls(200), calls(200), False),
        (calls(18, 1), calls(200), False),  # fewer than 20 calls say nothing
        (calls(19, 1), calls(200), True),
        (calls(196, 4), calls(200), False),  # 2 points
        (calls(195, 5), calls(200), True),
        (calls(190, 10), calls(190, 10), False),  # both fail alike
        (calls(190, 10), calls(194, 6), False),
        (calls(190, 10), calls(195, 5), True),
        (calls(190, 10), calls(0), True),  # the other has no call: nothing speaks for the candidate
        (calls(20, run_ms=150.0), calls(20, run_ms=100.0), False),
        (calls(20, run_ms=150.1), calls(20, run_ms=100.0), True),
        (calls(20, run_ms=150.1), calls(19, run_ms=100.0), False),
        (calls(20, run_ms=20.0), calls(20), False),  # 10 ms more than 10 ms
        (calls(20, run_ms=20.1), calls(20), True),
        (calls(19, run_ms=99.0), calls(20), False),
        (calls(0, crashed=CRASHES - 1), calls(200), False),
        (calls(0, crashed=CRASHES), calls(200), True),
        (calls(7, crashed=CRASHES), calls(200), True),
        (calls(0, crashed=CRASHES), calls(0), True),
        (calls(190, crashed=CRASHES), calls(200), False),  # 1.6 % of them
        (calls(90, crashed=CRASHES), calls(90, crashed=CRASHES), False),
    ],
)
def test_a_split_is_rolled_back_by_errors_by_times_and_by_crashes(
    candidate: Sample, other: Sample, *, is_rolled_back: bool
) -> None:
    why = why_rolled_back(candidate, other, BOUNDS)
    assert bool(why) is is_rolled_back, why


def test_the_bounds_are_settings() -> None:
    assert not why_rolled_back(calls(95, 5), calls(100), Bounds(error_points=5.0, run_factor=1.5, run_floor_ms=10.0))
    assert not why_rolled_back(calls(20, run_ms=29.0), calls(20), Bounds(2.0, run_factor=3.0, run_floor_ms=10.0))
    assert why_rolled_back(calls(20, run_ms=15.1), calls(20), Bounds(2.0, run_factor=1.5, run_floor_ms=0.0))


def test_the_reason_has_the_figures() -> None:
    assert why_rolled_back(calls(18, 2), calls(99, 1), BOUNDS) == (
        "2 of its last 20 calls failed, and 1 of 100 of the other version."
    )
    assert why_rolled_back(calls(20, run_ms=40.0), calls(20), BOUNDS) == (
        "The p95 of its runs is 40 ms, and 10 ms of the other version."
    )
    assert why_rolled_back(calls(0, crashed=3), calls(20), BOUNDS) == "3 of its last 3 calls ended the runner."


def test_p95_is_the_time_that_95_of_100_runs_do_not_exceed() -> None:
    found = sample([Call(is_error=False, is_crash=False, run_ms=float(ms)) for ms in range(100, 0, -1)])
    assert (found.run_p50_ms, found.run_p95_ms, found.timed) == (50.0, 95.0, 100)
    assert sample([]).run_p95_ms is None
    assert FEWEST < 200
