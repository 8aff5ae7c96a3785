from workers.statistics.batchlimits import PATIENCE, BatchLimits

KEY = ("m", 1, "serving_default|224,224,3")


def test_a_version_that_never_used_the_memory_up_has_no_limit() -> None:
    batch_limits = BatchLimits()
    batch_limits.fitted(KEY, 64)
    batch_limits.failed(KEY, 1)  # alone: nothing smaller could be tried
    assert batch_limits.rows(KEY) == 0


def test_a_run_that_used_the_memory_up_halves_the_limit() -> None:
    batch_limits = BatchLimits()
    batch_limits.failed(KEY, 64)
    assert batch_limits.rows(KEY) == 32
    batch_limits.failed(KEY, 32)
    assert batch_limits.rows(KEY) == 16
    assert batch_limits.rows(("m", 2, KEY[2])) == 0


def test_rows_of_one_shape_say_nothing_of_another_s() -> None:
    batch_limits = BatchLimits()
    odd = ("m", 1, "serving_default|8000,8000,3")
    batch_limits.failed(odd, 2)
    assert batch_limits.rows(KEY) == 0
    batch_limits.failed(KEY, 64)
    assert (batch_limits.rows(odd), batch_limits.rows(KEY)) == (1, 32)
    batch_limits.failed(("n", 3, "x"), 8)
    assert batch_limits.lowest() == {("m", 1): 1, ("n", 3): 4}


def test_a_job_that_runs_alone_has_no_limit() -> None:
    batch_limits = BatchLimits()
    batch_limits.failed(("m", 1, ""), 1_000_000)
    assert (len(batch_limits), batch_limits.lowest()) == (0, {})


def test_the_limit_grows_back_only_after_enough_full_runs() -> None:
    batch_limits = BatchLimits()
    batch_limits.failed(KEY, 64)
    for _ in range(10 * PATIENCE):
        batch_limits.fitted(KEY, 31)
    assert batch_limits.rows(KEY) == 32
    for _ in range(PATIENCE - 1):
        batch_limits.fitted(KEY, 32)
    assert batch_limits.rows(KEY) == 32
    batch_limits.fitted(KEY, 32)
    assert batch_limits.rows(KEY) == 40


def test_growth_that_fails_must_wait_twice_as_long_the_next_time() -> None:
    batch_limits = BatchLimits()
    batch_limits.failed(KEY, 64)
    for _ in range(PATIENCE):
        batch_limits.fitted(KEY, 32)
    batch_limits.failed(KEY, 40)
    assert batch_limits.rows(KEY) == 20
    for _ in range(PATIENCE):
        batch_limits.fitted(KEY, 20)
    assert batch_limits.rows(KEY) == 20
    for _ in range(PATIENCE):
        batch_limits.fitted(KEY, 20)
    assert batch_limits.rows(KEY) == 25


def test_a_limit_far_above_what_once_failed_is_forgotten() -> None:
    batch_limits = BatchLimits()
    batch_limits.failed(KEY, 8)
    while batch_limits.rows(KEY):
        batch_limits.fitted(KEY, batch_limits.rows(KEY))
    assert len(batch_limits) == 0
