"""A scenario fails on what it found itself, on a promise that was broken, and on a figure it did not measure."""

import pytest

from verification.chaos.evidence.history import History
from verification.chaos.evidence.journal import Entry
from verification.chaos.scenarios import catalogue
from verification.chaos.scenarios.catalogue import PROMISED, SCENARIOS


def named(name: str) -> Entry:
    return {"at": 0.0, "event": "scenario", "name": name, "rounds": 1, "seed": 1}


def figure(what: str, seconds: float) -> Entry:
    kind, _, text = what.partition(": ")
    return {"at": 1.0, "event": "measured", "kind": kind, "target": "w1", "what": text, "s": seconds, "bound_s": 1000.0}


def a_good_one(name: str, *more: Entry) -> History:
    """Everything was measured and is as was promised."""
    figures = [figure(what, p50) for what, (p50, _) in PROMISED[name].items()]
    return History(faults=[named(name), *figures, *more])


def test_every_scenario_says_what_it_measures() -> None:
    assert PROMISED.keys() == SCENARIOS.keys()


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_that_keeps_its_promises_breaks_no_law(name: str) -> None:
    assert catalogue.judge(a_good_one(name)) == []


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_scenario_fails_on_its_own_finding(name: str) -> None:
    finding: Entry = {"at": 2.0, "event": "finding", "text": "a healthy runner was fenced: w1"}
    (found,) = catalogue.judge(a_good_one(name, finding))
    assert found == ("findings", "a healthy runner was fenced: w1")


@pytest.mark.parametrize(("name", "what"), [(name, what) for name, promised in PROMISED.items() for what in promised])
def test_a_scenario_fails_on_a_broken_promise(name: str, what: str) -> None:
    late = a_good_one(name, *[figure(what, PROMISED[name][what][1] + 0.1)] * 3)
    assert "promised" in {violation.law for violation in catalogue.judge(late)}


@pytest.mark.parametrize(("name", "what"), [(name, what) for name, promised in PROMISED.items() for what in promised])
def test_a_scenario_fails_on_a_figure_that_is_missing(name: str, what: str) -> None:
    good = a_good_one(name)
    kept = [f for f in good.faults if f["event"] != "measured" or f"{f['kind']}: {f['what']}" != what]
    (found,) = catalogue.judge(good._replace(faults=kept))
    assert found == ("promised", f"{what}: nothing was measured")


def test_a_leader_that_is_replaced_after_ten_seconds_breaks_its_promise() -> None:
    late = a_good_one("leader", figure("leader: SIGKILL to accepted jobs", 10.5))
    assert {violation.law for violation in catalogue.judge(late)} == {"promised"}


def test_a_storm_promises_no_percentiles() -> None:
    assert catalogue.judge(History(faults=[figure("kill supervisor: takeover", 12.0)])) == []
