"""Splits: what starts and ends them, what is published, what is refused meanwhile."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import modelsettings, registration, selection, targets
from console.catalog.models import ModelVersion, ServedModel, VersionSplit
from console.controller import canaries
from console.deletion import versions
from console.jobs import listing
from console.splits import acts, figures
from console.splits.rule import Bounds
from signalbox.program.errors import Conflict, InvalidRequest, NotFound
from signalbox.wire.splits import Split
from tests.console.conftest import Call, submit
from tests.console.test_jobs import make
from tests.console.test_models import published

Browser = Callable[[str], Client]


@pytest.fixture
def digits(admin: Actor, base: Path) -> None:
    """A model with versions 1, the default and ``stable``, and 2."""
    registration.register(admin, "digits", str(base))
    targets.set_default(admin, "digits", 1)
    targets.set_label(admin, "digits", "stable", 1)


pytestmark = pytest.mark.usefixtures("digits")


def test_a_split_is_published_with_its_weight_and_its_header(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.1)
    acts.set_split(admin, "digits", "stable", 2, 0.5, "x-user")
    assert published().splits == (
        Split(candidate=2, weight=0.1),
        Split(target="stable", candidate=2, weight=0.5, header="X-User"),
    )
    acts.set_split(admin, "digits", "", 2, 0.7)
    assert published().splits[0].weight == 0.7
    assert VersionSplit.objects.count() == 2


def test_a_default_that_was_the_highest_is_fixed_while_it_is_split(admin: Actor, base: Path) -> None:
    targets.set_default(admin, "digits", None)
    acts.set_split(admin, "digits", "", 1, 0.1)
    (base / "3").mkdir()
    (base / "3" / "saved_model.pb").write_bytes(b"x")
    registration.register(admin, "digits", str(base))
    assert published().default_version == 2


@pytest.mark.parametrize("target", ["", "stable"])
def test_a_promotion_gives_the_candidate_to_all_and_ends_the_split(admin: Actor, target: str) -> None:
    acts.set_split(admin, "digits", target, 2, 0.1)
    acts.promote(admin, "digits", target, reason="better")
    document = published()
    now = {"": document.default_version, **document.labels}
    assert now == {"": 1, "stable": 1, target: 2}
    assert document.splits == ()
    entry = AuditEntry.objects.latest("pk")
    assert (entry.act, entry.reason) == ("models.rollout", "better")
    assert (entry.before["version"], entry.after["version"]) == (1, 2)


@pytest.mark.parametrize("target", ["", "stable"])
def test_a_roll_back_gives_the_candidate_to_nobody(admin: Actor, target: str) -> None:
    acts.set_split(admin, "digits", target, 2, 0.1)
    acts.roll_back(admin, "digits", target)
    document = published()
    assert (document.default_version, document.labels, document.splits) == (1, {"stable": 1}, ())
    with pytest.raises(NotFound, match="is not split"):
        acts.roll_back(admin, "digits", target)


@pytest.mark.parametrize("weight", [0.0, -0.1, 1.01, float("nan"), float("inf")])
def test_a_weight_is_above_0_and_at_most_1(admin: Actor, weight: float) -> None:
    with pytest.raises(InvalidRequest, match="weight: "):
        acts.set_split(admin, "digits", "", 2, weight)


@pytest.mark.parametrize("header", ["X User", "X-User:", "é", "x" * 65, "-x"])
def test_what_is_no_header_is_refused(admin: Actor, header: str) -> None:
    with pytest.raises(InvalidRequest, match="header: "):
        acts.set_split(admin, "digits", "", 2, 0.1, header)


def test_what_cannot_be_split_is_refused(admin: Actor) -> None:
    for target, candidate, error, why in (
        ("nope", 2, NotFound, "no label 'nope'"),
        ("", 7, NotFound, "no version 7"),
        ("", 1, Conflict, "get version 1 already"),
    ):
        with pytest.raises(error, match=why):
            acts.set_split(admin, "digits", target, candidate, 0.1)
    ModelVersion.objects.filter(number=2).update(is_withdrawn=True)
    with pytest.raises(Conflict, match="withdrawn"):
        acts.set_split(admin, "digits", "", 2, 0.1)


def test_while_it_is_split_callers_stay_on_their_side_and_its_target_where_it_is(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.1, "X-User")
    acts.set_split(admin, "digits", "stable", 2, 0.1)
    with pytest.raises(Conflict, match=r"by the header X-User\. Only its weight"):
        acts.set_split(admin, "digits", "", 2, 0.2)
    for number in (2, None):
        with pytest.raises(Conflict, match="A split of the default"):
            targets.set_default(admin, "digits", number)
        with pytest.raises(Conflict, match="A split of label stable"):
            targets.set_label(admin, "digits", "stable", number)


def test_a_candidate_is_served_whatever_the_policy_says_and_is_not_deleted(admin: Actor) -> None:
    selection.set_policy(admin, "digits", {"kind": "specific", "versions": [1]})
    acts.set_split(admin, "digits", "", 2, 0.1)
    assert [one.version for one in published().versions] == [1, 2]
    with pytest.raises(Conflict, match="Version 2 is the candidate of a split of the default of digits"):
        versions.delete_version(admin, "digits", 2)
    acts.roll_back(admin, "digits", "")
    assert "2" in ServedModel.objects.get().retiring
    versions.delete_version(admin, "digits", 2)


def test_a_candidate_that_may_not_serve_any_more_gets_no_request(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.1)
    ModelVersion.objects.filter(number=2).update(is_withdrawn=True)
    modelsettings.set_enabled(admin, "digits", is_enabled=True)
    assert published().splits == ()


@pytest.mark.parametrize(
    ("came_from", "back"),
    [
        ("http://testserver/models/gone?x=1", "/models/gone?x=1"),
        ("http://evil.example/models/digits", ""),
        ("http://testserver//evil.example", ""),
        ("http://[", ""),
        ("http://testserver/confirm", ""),
        ("", ""),
    ],
)
def test_a_refused_act_leads_back_to_the_page_it_came_from_where_that_cannot_be_shown(
    browser: Browser, came_from: str, back: str
) -> None:
    client = browser("model manager")
    client.defaults.update(HTTP_REFERER=came_from, HTTP_HOST="testserver")
    answer = submit(client, "/models/digits/split", {"candidate": "1", "percent": "10"})
    assert answer.status_code == 409
    assert answer.context["back"] == back
    assert ("Back to the page" in answer.content.decode()) == bool(back)


def test_the_page_and_rest_split_promote_and_roll_back(browser: Browser, call: Callable[[str], Call]) -> None:
    client, program = browser("model manager"), call("model manager")
    assert submit(client, "/models/digits/split", {"candidate": "2", "percent": "10"}).status_code == 302
    page = client.get("/models/digits").content.decode()
    assert "10 % of the callers get version 2" in page
    shown = program("put", "models/digits/splits/-", {"candidate": 2, "weight": 0.5}).json()
    assert (shown["base"], shown["candidate"], shown["weight"]) == (1, 2, 0.5)
    assert [one["weight"] for one in program("get", "models/digits/splits").json()["splits"]] == [0.5]
    assert program("put", "models/digits/splits/-", {"candidate": 2, "weight": 0}).status_code == 400
    assert program("post", "models/digits/splits/stable/promote", {}).status_code == 404
    assert program("post", "models/digits/splits/-/promote", {}).json()["default_version"] == 2
    program("put", "models/digits/splits/stable", {"candidate": 2, "weight": 0.5, "header": "x-user"})
    assert program("post", "models/digits/splits/stable/roll-back", {"reason": "slow"}).json()["labels"] == {
        "stable": 1
    }
    assert submit(client, "/models/digits/split", {"candidate": "1", "percent": "ten"}).status_code == 400
    assert browser("operator").post("/models/digits/split", {"candidate": "2", "percent": "1"}).status_code == 403
    assert "Canary" not in browser("viewer").get("/models/digits").content.decode()


def ran(number: int, version: int, **changes: object) -> None:
    """A call since the splits began."""
    make(number, version=version, created_at=timezone.now(), **{"parts": {"run": 5.0}, **changes})


def test_both_versions_calls_errors_and_times_stand_side_by_side(
    admin: Actor, browser: Browser, call: Callable[[str], Call]
) -> None:
    make(0, created_at=timezone.now() - timedelta(hours=1))
    acts.set_split(admin, "digits", "", 2, 0.1)
    for number in range(1, 11):
        ran(number, 1, parts={"run": float(number)})
    for number in range(11, 31):
        ran(number, 2, parts={"run": float(number)})
    ran(31, 2, state="failed", parts={"run": 1000.0})
    ran(32, 2, state="running", strikes=1)
    for number, state in enumerate(("queued", "running", "cancelled", "expired"), 33):
        ran(number, 2, state=state)
    ran(40, 2, model="other")
    (split,) = call("viewer")("get", "models/digits/splits").json()["splits"]
    assert split["figures"] == {
        "candidate": {
            "version": 2,
            "calls": 22,
            "failed": 2,
            "last": {"calls": 22, "failed": 2, "crashes": 1, "timed": 20, "run_p50_ms": 20.0, "run_p95_ms": 29.0},
        },
        "other": {
            "version": 1,
            "calls": 10,
            "failed": 0,
            "last": {"calls": 10, "failed": 0, "crashes": 0, "timed": 10, "run_p50_ms": 5.0, "run_p95_ms": 10.0},
        },
        "counted_since": None,
    }
    page = browser("viewer").get("/models/digits").content.decode()
    assert ">29.0 ms<" in page
    assert "9.091 %" in page


def test_no_more_rows_are_looked_at_than_one_page_of_the_job_list_looks_at(
    admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "SCAN", 10)
    acts.set_split(admin, "digits", "", 2, 0.1)
    split = VersionSplit.objects.get()
    for number in range(1, 31):
        ran(number, 2 - number % 2)
    found = figures.compare(split)
    assert found.counted_since is not None
    assert found.candidate.calls + found.other.calls == 10
    assert [sample.calls for sample in figures.last(split)] == [5, 5]


BOUNDS = Bounds(error_points=2.0, run_factor=1.5, run_floor_ms=10.0)


def test_a_version_that_takes_runners_down_is_rolled_back_by_itself_with_the_evidence(
    admin: Actor, browser: Browser, call: Callable[[str], Call]
) -> None:
    acts.set_split(admin, "digits", "", 2, 0.5)
    acts.set_split(admin, "digits", "stable", 2, 0.5)
    acts.roll_back(admin, "digits", "stable")
    ran(1, 1)
    for number in range(2, 4):
        ran(number, 2, state="queued", strikes=1)
        canaries.judge(BOUNDS)
        assert published().splits[0].weight == 0.5
    ran(4, 2, state="failed", strikes=3)
    canaries.judge(BOUNDS)
    (split,) = published().splits
    assert (split.weight, split.halted) == (0.0, "3 of its last 3 calls ended the runner.")
    assert published().default_version == 1
    entry = AuditEntry.objects.latest("pk")
    assert (entry.act, entry.result, entry.via) == ("models.rollout", "done", "canary")
    assert entry.after["evidence"]["candidate"]["crashes"] == 3
    assert entry.after["evidence"]["other"]["calls"] == 1
    page = browser("model manager").get("/models/digits").content.decode()
    assert "Rolled back by itself" in page
    assert "3 of its last 3 calls ended the runner." in page
    (shown,) = call("viewer")("get", "models/digits/splits").json()["splits"]
    assert shown["evidence"]["candidate"]["crashes"] == 3
    rows = AuditEntry.objects.count()
    canaries.judge(BOUNDS)
    assert AuditEntry.objects.count() == rows, "it is done once"


def test_what_was_rolled_back_by_itself_stays_until_an_operator_ends_it(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.5)
    for number in range(3):
        ran(number, 2, state="failed", strikes=3)
    canaries.judge(BOUNDS)
    for again in (lambda: acts.set_split(admin, "digits", "", 2, 0.9), lambda: acts.promote(admin, "digits", "")):
        with pytest.raises(Conflict, match="End it, and start another one"):
            again()
    acts.roll_back(admin, "digits", "")
    assert published().splits == ()
    acts.set_split(admin, "digits", "", 2, 0.5)
    canaries.judge(BOUNDS)
    assert published().splits[0].halted == "", "calls from before it began do not count"


def test_an_operator_who_ends_the_split_first_is_not_undone(admin: Actor) -> None:
    acts.set_split(admin, "digits", "", 2, 0.5)
    old = VersionSplit.objects.get()
    acts.roll_back(admin, "digits", "")
    acts.set_split(admin, "digits", "", 2, 0.1)
    assert not acts.halt("digits", "", old.started_at, "why", {})
    assert published().splits == (Split(candidate=2, weight=0.1),)
