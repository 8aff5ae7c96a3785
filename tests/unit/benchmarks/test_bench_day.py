"""A long run is judged figure by figure: the last turn against the first."""

import os
from pathlib import Path

import pytest

from benchmarks.day import stacks
from benchmarks.day.figures import Turn, highest, table, verdicts
from signalbox.program.errors import Misconfigured

MIB = 2**20
FIRST = Turn({"predicts": 400.0}, {"stream STATE": 40.0 * MIB, "rows jobs_job": 30_000.0, "files up": 20.0})


def later(**changes: float) -> Turn:
    """As the first turn, but for what is given, with ``_`` for the blank of a name."""
    named = {name.replace("_", " ", 1): value for name, value in changes.items()}
    rates = {name: named.pop(name, rate) for name, rate in FIRST.rates.items()}
    return Turn(rates, {**FIRST.most, **named})


def not_level(*turns: Turn) -> dict[str, str]:
    return {one.figure: one.word for one in verdicts([FIRST, *turns]) if not one.is_level}


def test_what_is_as_before_or_within_the_margin_is_level() -> None:
    assert not_level(later()) == {}
    assert not_level(later(predicts=310.0, stream_STATE=52.0 * MIB, files_up=30.0)) == {}


def test_what_is_slower_or_grows_is_named_with_the_change_of_a_turn() -> None:
    assert not_level(later(), later(predicts=290.0)) == {"rate predicts": "falls by 55.0/s a turn"}
    assert not_level(later(stream_STATE=80.0 * MIB)) == {"stream STATE": "grows by 40.0 MiB a turn"}
    assert not_level(later(), later(), later(rows_jobs_job=60_000.0, files_up=50.0)) == {
        "rows jobs_job": "grows by 10,000 a turn",
        "files up": "grows by 10 a turn",
    }


def test_a_faster_turn_may_keep_more_for_its_jobs_and_no_more_files() -> None:
    twice = {"predicts": 800.0, "stream_STATE": 80.0 * MIB, "rows_jobs_job": 60_000.0}
    assert not_level(later(**twice)) == {}
    assert set(not_level(later(**twice, files_up=50.0))) == {"files up"}


def test_a_rate_that_is_gone_falls_and_a_figure_that_comes_later_is_judged_too() -> None:
    assert set(not_level(Turn({}, FIRST.most))) == {"rate predicts"}
    came = [later(files_new=10.0), later(files_new=40.0)]
    assert not_level(*came) == {"files new": "grows by 30 a turn"}


def test_the_table_has_a_line_for_every_figure_that_matters() -> None:
    few = {"rows_accounts_user": 1.0}
    turns = [FIRST, later(predicts=390.0, **few), later(predicts=380.0, **few)]
    lines = table(verdicts(turns)).splitlines()
    assert len(lines) == 4
    assert lines[0].split() == [*["rate", "predicts", "400.0/s", "->", "380.0/s", "level"], *["(-10.0/s", "a", "turn)"]]


def test_a_turn_shows_the_highest_of_each_figure() -> None:
    assert highest([{"a": 1.0, "b": 2.0}, {"a": 3.0}]) == {"a": 3.0, "b": 2.0}


def test_a_stack_that_was_started_with_other_settings_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "environ"
    path.write_bytes(os.fsencode("SIGNALBOX_RECORDS_KEPT_S=300\0PATH=/bin\0"))
    stacks.check_started_with({"SIGNALBOX_RECORDS_KEPT_S": "300"}, path)
    with pytest.raises(Misconfigured, match="SIGNALBOX_HISTORY_KEPT_S=600"):
        stacks.check_started_with({"SIGNALBOX_HISTORY_KEPT_S": "600"}, path)
