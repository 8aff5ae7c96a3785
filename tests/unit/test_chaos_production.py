"""A run over a production stack fails on what docs/guarantees.md promises, and on nothing it does not."""

import re
from pathlib import Path

import pytest

from verification.chaos.evidence.journal import Entry
from verification.chaos.production import promises
from verification.chaos.production.promises import PROMISED, SILENT

GUARANTEES = (Path(__file__).parents[2] / "docs" / "guarantees.md").read_text()


def figure(what: str, seconds: float, **facts: float) -> Entry:
    base = {"at": 1.0, "event": "measured", "kind": "stop tyk", "target": "tyk", "bound_s": 1000.0}
    return {**base, "what": what, "s": seconds, **facts}


@pytest.mark.parametrize("what", PROMISED)
def test_a_figure_above_its_promise_is_found(what: str) -> None:
    assert promises.broken([figure(what, PROMISED[what])]) == []
    (found,) = promises.broken([figure(what, PROMISED[what] + 0.1)])
    assert found.law == "promised"


def test_while_no_service_can_answer_no_answer_is_promised() -> None:
    assert promises.broken([figure(SILENT, 21.0, away_s=12.0)]) == []
    assert promises.broken([figure(SILENT, 23.0, away_s=12.0)])


def test_what_is_promised_stands_in_the_guarantees() -> None:
    section = GUARANTEES.partition("## The shipped topology")[2].partition("\n## ")[0]
    reported = {float(seconds) for seconds in re.findall(r"\b(\d+) s\b", section)}
    assert set(PROMISED.values()) <= reported
