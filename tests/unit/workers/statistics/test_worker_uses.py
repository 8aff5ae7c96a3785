from workers.statistics.uses import Use, Uses

KEY = ("a", 1)


def test_a_burst_of_jobs_is_one_use_and_a_later_one_is_another() -> None:
    uses = Uses()
    for now_s in (0.0, 4.0, 9.9):
        uses.used(KEY, now_s)
    assert uses.of(KEY) == Use(9.9, 0.0)
    uses.used(KEY, 12.0)
    assert uses.of(KEY) == Use(12.0, 12.0, 0.0)


def test_steady_use_is_seen_as_repeated() -> None:
    uses = Uses()
    for second in range(60):
        uses.used(KEY, float(second))
    assert uses.of(KEY) == Use(59.0, 50.0, 40.0)


def test_the_end_of_a_long_run_is_no_other_use() -> None:
    uses = Uses()
    uses.used(KEY, 0.0)
    uses.ended(KEY, 300.0)
    assert uses.of(KEY) == Use(300.0, 0.0)
    uses.ended(("b", 1), 300.0)
    assert uses.of(("b", 1)) is None


def test_what_is_remembered_has_a_bound() -> None:
    uses = Uses()
    for number in range(5000):
        uses.used((f"m{number}", 1), float(number))
    assert uses.of(("m0", 1)) is None
    assert uses.of(("m4999", 1)) is not None
