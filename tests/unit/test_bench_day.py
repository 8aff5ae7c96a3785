"""A long run is judged by its last turn, against the first."""

from benchmarks.dayfigures import Turn, highest, worse

MIB = 2**20
FIRST = Turn(
    {"predicts": 400.0}, {"stream STATE": 40.0 * MIB, "rows jobs_job": 30_000.0, "files up": 20.0}
)


def later(**changes: float) -> Turn:
    """As the first turn, but for what is given, with ``_`` for the blank of a name."""
    named = {name.replace("_", " ", 1): value for name, value in changes.items()}
    rates = {name: named.pop(name, rate) for name, rate in FIRST.rates.items()}
    return Turn(rates, {**FIRST.most, **named})


def test_what_is_as_before_or_within_the_margin_is_well() -> None:
    assert list(worse(FIRST, later())) == []
    assert list(worse(FIRST, later(predicts=310.0, stream_STATE=52.0 * MIB, files_up=30.0))) == []


def test_what_is_slower_or_grows_is_named_with_both_figures() -> None:
    assert list(worse(FIRST, later(predicts=290.0))) == ["predicts: 290/s, 400/s in the first turn"]
    assert list(worse(FIRST, later(stream_STATE=80.0 * MIB))) == [
        "stream STATE: 80.0 MiB, 40.0 MiB in the first turn"
    ]
    assert list(worse(FIRST, later(rows_jobs_job=60_000.0, files_up=50.0))) == [
        "rows jobs_job: 60,000, 30,000 in the first turn",
        "files up: 50, 20 in the first turn",
    ]


def test_a_faster_turn_may_keep_more_for_its_jobs_and_no_more_files() -> None:
    twice = {"predicts": 800.0, "stream_STATE": 80.0 * MIB, "rows_jobs_job": 60_000.0}
    assert list(worse(FIRST, later(**twice))) == []
    assert list(worse(FIRST, later(**twice, files_up=50.0))) == [
        "files up: 50, 20 in the first turn"
    ]


def test_a_rate_that_is_gone_is_worse() -> None:
    assert list(worse(FIRST, Turn({}, FIRST.most)))


def test_a_turn_shows_the_highest_of_each_figure() -> None:
    assert highest([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": 3.0, "b": 2.0}
