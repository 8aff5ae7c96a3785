from workers.serving.ceilings import PATIENCE, Ceilings

KEY = ("m", 1, "serving_default|224,224,3")


def test_a_version_that_never_used_the_memory_up_has_no_ceiling() -> None:
    ceilings = Ceilings()
    ceilings.fitted(KEY, 64)
    ceilings.failed(KEY, 1)  # alone: nothing smaller could be tried
    assert ceilings.rows(KEY) == 0


def test_a_run_that_used_the_memory_up_halves_the_ceiling() -> None:
    ceilings = Ceilings()
    ceilings.failed(KEY, 64)
    assert ceilings.rows(KEY) == 32
    ceilings.failed(KEY, 32)
    assert ceilings.rows(KEY) == 16
    assert ceilings.rows(("m", 2, KEY[2])) == 0


def test_rows_of_one_shape_say_nothing_of_another_s() -> None:
    ceilings = Ceilings()
    odd = ("m", 1, "serving_default|8000,8000,3")
    ceilings.failed(odd, 2)
    assert ceilings.rows(KEY) == 0
    ceilings.failed(KEY, 64)
    assert (ceilings.rows(odd), ceilings.rows(KEY)) == (1, 32)
    ceilings.failed(("n", 3, "x"), 8)
    assert ceilings.lowest() == {("m", 1): 1, ("n", 3): 4}


def test_a_job_that_runs_alone_has_no_ceiling() -> None:
    ceilings = Ceilings()
    ceilings.failed(("m", 1, ""), 1_000_000)
    assert (len(ceilings), ceilings.lowest()) == (0, {})


def test_the_ceiling_grows_back_only_after_enough_full_runs() -> None:
    ceilings = Ceilings()
    ceilings.failed(KEY, 64)
    for _ in range(10 * PATIENCE):
        ceilings.fitted(KEY, 31)
    assert ceilings.rows(KEY) == 32
    for _ in range(PATIENCE - 1):
        ceilings.fitted(KEY, 32)
    assert ceilings.rows(KEY) == 32
    ceilings.fitted(KEY, 32)
    assert ceilings.rows(KEY) == 40


def test_growth_that_fails_must_wait_twice_as_long_the_next_time() -> None:
    ceilings = Ceilings()
    ceilings.failed(KEY, 64)
    for _ in range(PATIENCE):
        ceilings.fitted(KEY, 32)
    ceilings.failed(KEY, 40)
    assert ceilings.rows(KEY) == 20
    for _ in range(PATIENCE):
        ceilings.fitted(KEY, 20)
    assert ceilings.rows(KEY) == 20
    for _ in range(PATIENCE):
        ceilings.fitted(KEY, 20)
    assert ceilings.rows(KEY) == 25


def test_a_ceiling_far_above_what_once_failed_is_forgotten() -> None:
    ceilings = Ceilings()
    ceilings.failed(KEY, 8)
    while ceilings.rows(KEY):
        ceilings.fitted(KEY, ceilings.rows(KEY))
    assert len(ceilings) == 0
