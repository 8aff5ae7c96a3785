"""Candidates that are run in shadow: what is published, what is kept of workers, when operators are told."""

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.test import Client

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import registration, targets
from console.catalog.models import VersionSplit
from console.controller import shadows
from console.splits import acts
from console.splits.shadow import lower_bound, why_told
from signalbox.program.errors import InvalidRequest
from signalbox.wire.shadows import ShadowFigures, TensorDifference
from signalbox.wire.workerdocs import Device, Residency, Worker
from tests.console.conftest import Call, submit
from tests.console.test_models import published


@pytest.fixture
def digits(admin: Actor, base: Path) -> None:
    """A model with versions 1, the default, and 2."""
    registration.register(admin, "digits", str(base))
    targets.set_default(admin, "digits", 1)


def worker(since: float, *, id_: str = "w1", boot: str = "b", **figures: Any) -> Worker:
    found = ShadowFigures(base=1, since=since, tensors={"y": TensorDifference(1, 0.5)}, **figures)
    resident = Residency(model="digits", version=2, state="ready", shadow=found)
    device = Device(id="gpu-1", name="A", kind="cpu")
    return Worker(
        id=id_, boot=boot, host="h/b", pid=1, state="ready", device=device, started_at=0, beat_at=0, models=(resident,)
    )


def since() -> float:
    return published().splits[0].since


@pytest.mark.usefixtures("digits")
def test_a_shadow_is_published_and_no_caller_gets_the_candidate(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.0, shadow=0.5, tolerance=0.01)
    (split,) = published().splits
    assert (split.weight, split.shadow, split.tolerance, split.since > 0) == (0.0, 0.5, 0.01, True)
    acts.set_split(admin, "digits", "", 2, 0.1)
    assert published().splits[0] == split.__class__(**{**_fields(split), "weight": 0.1}), "the shadow goes on"
    acts.set_split(admin, "digits", "", 2, 0.1, shadow=0.0)
    assert (published().splits[0].shadow, published().splits[0].since) == (0.0, 0.0)


def _fields(split: Any) -> dict[str, Any]:
    return {name: getattr(split, name) for name in split.__struct_fields__}


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("shares", [(0.0, 0.0, 0.1), (0.0, 1.1, 0.1), (0.5, -0.1, 0.1), (0.0, 0.5, 2.0)])
def test_shares_and_tolerances_that_are_none_are_refused(admin: Actor, shares: tuple[float, float, float]) -> None:
    weight, shadow, tolerance = shares
    with pytest.raises(InvalidRequest):
        acts.set_split(admin, "digits", "", 2, weight, shadow=shadow, tolerance=tolerance)
    assert not VersionSplit.objects.exists()


@pytest.mark.usefixtures("digits")
def test_figures_of_workers_are_added_and_outlive_them_and_an_unlike_candidate_is_told_once(
    admin: Actor, call: Callable[[str], Call], browser: Callable[[str], Client]
) -> None:
    acts.set_split(admin, "digits", "", 2, 0.0, shadow=0.5)
    shadows.note([worker(since(), compared=300, outside=1, runs=3, timed=3, run_s=0.3, base_run_s=0.6)])
    assert published().splits[0].differs == ""
    later = worker(since(), boot="c", compared=500, outside=4, failed=1, runs=5, timed=5, run_s=0.5, base_run_s=1.0)
    for _ in range(2):
        shadows.note([later])
    why = "5 of 800 outputs are outside the tolerance, 1 of which failed."
    assert published().splits[0].differs == why
    assert AuditEntry.objects.filter(reason=why).count() == 1
    (shown,) = call("viewer")("get", "models/digits/splits").json()["splits"]
    assert (shown["differs"], shown["found"]["compared"], shown["found"]["outside"]) == (why, 800, 5)
    assert (shown["found"]["run_ms"], shown["found"]["base_run_ms"]) == (100.0, 200.0)
    page = browser("model manager").get("/models/digits").content.decode()
    assert "800 outputs compared, 5 outside" in page
    acts.set_split(admin, "digits", "", 2, 0.0, tolerance=0.5)
    assert published().splits[0].differs == ""
    assert VersionSplit.objects.get().shadowed == {}


@pytest.mark.usefixtures("digits")
def test_what_workers_tell_of_an_earlier_shadow_is_passed_by(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.0, shadow=0.5)
    shadows.note([worker(since() - 1, compared=300, outside=300)])
    assert VersionSplit.objects.get().shadowed == {}


@pytest.mark.usefixtures("digits")
def test_the_form_starts_a_shadow(browser: Callable[[str], Client]) -> None:
    given = {"target": "", "candidate": "2", "percent": "0", "shadow": "25", "tolerance": "0.01"}
    assert submit(browser("model manager"), "/models/digits/split", given).status_code == 302
    (split,) = published().splits
    assert (split.weight, split.shadow, split.tolerance) == (0.0, 0.25, 0.01)


def test_one_percent_outside_is_told_within_a_thousand_and_one_that_is_equal_never() -> None:
    assert why_told(ShadowFigures(base=1, compared=1_000_000, run_s=1.0, base_run_s=2.0, timed=1)) == ""
    assert why_told(ShadowFigures(base=1, compared=1_000, outside=3))
    assert not why_told(ShadowFigures(base=1, compared=2, outside=2))
    assert not why_told(ShadowFigures(base=1, compared=100_000, outside=50))
    dice = random.Random(48)
    told = 0
    for _ in range(200):
        outside = 0
        for compared in range(1, 1001):
            outside += dice.random() < 0.01
            if why_told(ShadowFigures(base=1, compared=compared, outside=outside)):
                told += 1
                break
    assert told >= 198


def test_a_crash_is_told_at_once() -> None:
    told = why_told(ShadowFigures(base=1, compared=1, outside=1, failed=1, halted="A run of it ended the runner."))
    assert told == "A run of it ended the runner, in shadow; that worker runs it in shadow no more."


@pytest.mark.parametrize(("outside", "compared", "bound"), [(0, 0, 0.0), (0, 1000, 0.0), (10, 1000, 0.006)])
def test_the_lower_bound_is_below_the_share(outside: int, compared: int, bound: float) -> None:
    assert lower_bound(outside, compared) == pytest.approx(bound, abs=0.0005)
