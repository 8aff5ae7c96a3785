"""A run over a production stack fails on what docs/guarantees.md promises, and on nothing it does not."""

import re
from pathlib import Path

import pytest

from tests.chaos.evidence import History
from tests.chaos.history import Entry
from tests.chaos.production import judge, promises
from tests.chaos.production.promises import PROMISED, SILENT

GUARANTEES = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()


def figure(what: str, seconds: float, **facts: float) -> Entry:
    base = {"at": 1.0, "event": "measured", "kind": "stop tyk", "target": "tyk", "bound_s": 1000.0}
    return {**base, "what": what, "s": seconds, **facts}


@pytest.mark.parametrize("what", PROMISED)
def test_a_figure_above_its_promise_is_found(what: str) -> None:
    assert promises.broken([figure(what, PROMISED[what])]) == []
    (found,) = promises.broken([figure(what, PROMISED[what] + 0.1)])
    assert found.law == "promised"


def test_while_nobody_can_answer_nobody_is_promised_an_answer() -> None:
    assert promises.broken([figure(SILENT, 21.0, away_s=12.0)]) == []
    assert promises.broken([figure(SILENT, 23.0, away_s=12.0)])


def around_a_start(kind: str, status: int, text: str, at: float = 2.0) -> History:
    trial = {"kind": kind, "target": "all"}
    answer = {"event": "answer", "op": "probe", "client": "eve", "expect": 1.0, "again": ""}
    return History(
        ledger=[{"at": at, **answer, "status": status, "text": text}],
        faults=[{"at": 1.0, "event": "begin", **trial}, {"at": 3.0, "event": "end", **trial}],
    )


def test_a_tyk_that_has_not_loaded_its_apis_is_away() -> None:
    assert judge.laws(around_a_start("kill tyk", 404, "Not Found")) == []


@pytest.mark.parametrize(
    "history",
    [
        around_a_start("kill tyk", 404, '{"code": "not_found"}'),
        around_a_start("kill tyk", 404, "Not Found", at=9.0),
        around_a_start("kill plugin-1", 404, "Not Found"),
        around_a_start("kill tyk", 401, "Not Found"),
    ],
    ids=["ours", "later", "another's", "401"],
)
def test_no_other_refusal_that_is_final_is_excused(history: History) -> None:
    assert judge.laws(history)


def test_what_is_promised_stands_in_the_guarantees() -> None:
    section = GUARANTEES.partition("## The shipped topology")[2].partition("\n## ")[0]
    told = {float(seconds) for seconds in re.findall(r"\b(\d+) s\b", section)}
    assert set(PROMISED.values()) <= told
