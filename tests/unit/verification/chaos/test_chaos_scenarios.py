"""A run fails on what it found itself, on a promise that was broken, and on a figure it did not measure."""

import re
from pathlib import Path

import pytest

from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Entry
from verification.chaos.faults.fault import FENCE_S, HELD_S
from verification.chaos.rig.composed import BACK_S
from verification.chaos.scenarios import catalogue
from verification.chaos.scenarios.catalogue import SCENARIOS
from verification.chaos.scenarios.storm import ACCEPTING_S

FIGURES = [(name, what) for name, row in SCENARIOS.items() for what in row.promised]
GUARANTEES = (Path(__file__).parents[4] / "docs" / "guarantees.md").read_text()


def figure(what: str, seconds: float, **facts: float) -> Entry:
    kind, _, text = what.partition(": ")
    base = {"at": 1.0, "event": "measured", "kind": kind, "target": "w1", "bound_s": 1000.0}
    return {**base, "what": text, "s": seconds, **facts}


def a_good_one(name: str, *more: Entry, but: str = "") -> History:
    """Everything was measured, ``but`` one, and is as was promised."""
    figures = [figure(what, p50) for what, (p50, _) in SCENARIOS[name].promised.items() if what != but]
    return History(faults=[{"at": 0.0, "event": "scenario", "name": name}, *figures, *more])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_fails_on_its_own_finding_and_on_nothing_when_all_is_as_promised(name: str) -> None:
    assert catalogue.judge(a_good_one(name)) == []
    finding: Entry = {"at": 2.0, "event": "finding", "text": "a healthy runner was fenced: w1"}
    assert catalogue.judge(a_good_one(name, finding)) == [("findings", "a healthy runner was fenced: w1")]


@pytest.mark.parametrize(("name", "what"), FIGURES)
def test_a_scenario_fails_on_a_broken_promise_and_on_a_figure_it_did_not_measure(name: str, what: str) -> None:
    late = a_good_one(name, *[figure(what, SCENARIOS[name].promised[what][1] + 0.1)] * 3)
    assert "promised" in {violation.law for violation in catalogue.judge(late)}
    assert ("promised", f"{what}: nothing was measured") in catalogue.judge(a_good_one(name, but=what))


def test_a_single_figure_above_its_promise_is_found() -> None:
    assert catalogue.judge(History(faults=[figure("holder: runner dead", 15.0, promised_s=15.0)])) == []
    (found,) = catalogue.judge(History(faults=[figure("holder: runner dead", 15.1, promised_s=15.0)]))
    assert found == ("promised", "holder: runner dead 15.10 s, 15 s promised")


def test_what_is_promised_of_a_production_stack_stands_in_the_guarantees() -> None:
    section = GUARANTEES.partition("## The shipped topology")[2].partition("\n## ")[0]
    assert {ACCEPTING_S, BACK_S, FENCE_S, HELD_S} <= {float(s) for s in re.findall(r"\b(\d+) s\b", section)}
