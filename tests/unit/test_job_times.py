"""Where a job's time went, by the one definition."""

from hypothesis import given
from hypothesis import strategies as st

from signalbox.jobs.times import Times, parts, split

PHASES = ("pulled", "claimed", "loading", "started", "computed", "done")
ENDED = {"pulled": 2.0, "claimed": 4.5, "loading": 2.5, "started": 3.0, "computed": 5.0, "done": 5.5}


def test_waiting_ends_and_the_run_begins_when_the_runner_begins() -> None:
    assert split(ENDED) == Times(wait_ms=3.0, run_ms=2.0, total_ms=5.5)
    assert [(part.name, part.start_ms, part.end_ms) for part in parts(ENDED)] == [
        ("queue", 0.0, 2.0),
        ("prepare", 2.0, 2.5),
        ("load", 2.5, 3.0),
        ("run", 3.0, 5.0),
        ("commit", 5.0, 5.5),
    ]


def test_a_job_that_never_ran_has_only_waited() -> None:
    assert split({"done": 9.0}) == Times(wait_ms=9.0, total_ms=9.0)
    assert split({"pulled": 4.0, "done": 9.0}) == Times(wait_ms=9.0, total_ms=9.0)
    assert [part.name for part in parts({"pulled": 4.0, "done": 9.0})] == ["queue", "prepare"]


def test_a_run_without_results_lasts_until_the_end() -> None:
    phases = {"pulled": 2.0, "started": 3.0, "claimed": 3.5, "done": 8.0}
    assert split(phases) == Times(wait_ms=3.0, run_ms=5.0, total_ms=8.0)
    assert [part.name for part in parts(phases)] == ["queue", "prepare", "run"]


def test_of_a_job_that_still_runs_only_the_wait_is_known() -> None:
    assert split({"claimed": 4.5}) == Times(wait_ms=4.5)
    assert parts({"claimed": 4.5}) == []
    assert split({}) == Times()


@given(st.dictionaries(st.sampled_from(PHASES), st.floats(0.0, 1e9)))
def test_parts_have_no_gap_and_none_is_negative_whatever_the_clocks_say(phases: dict[str, float]) -> None:
    found = parts(phases)
    assert all(part.start_ms <= part.end_ms for part in found)
    assert [part.start_ms for part in found] == [0.0, *(part.end_ms for part in found)][: len(found)]
    if "done" in phases:
        assert found[-1].end_ms == phases["done"]
    assert all(ms is None or ms >= 0 for ms in split(phases))
