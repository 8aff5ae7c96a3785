"""The command palette: finds by name what the operator may see and do, within bounds, and acts on nothing."""

from collections.abc import Callable
from typing import Any

import pytest
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext
from django.urls import resolve

from console.accounts.acts import ROLES
from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog.models import ModelVersion, ServedModel
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet.models import DesiredState
from console.keys import services as keys
from console.palette.places import ACTS, PLACES, VERBS
from console.views import services as views
from signalbox.program.settings import Wire
from tests.console.test_jobs import make
from tests.console.test_live_view import worker

Browser = Callable[[str], Client]


@pytest.fixture
def things(admin: Actor, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """One thing of each kind."""
    feed = Feed(Wire())
    feed.view.presence("worker-1", worker("worker-1"), 1_000_000.0)
    monkeypatch.setattr(running, "feed", feed)
    digits = ServedModel.objects.create(name="digits", base_path="/m/digits")
    ModelVersion.objects.create(model=digits, number=3, path="/m/digits/3", digest="d" * 64, added_by="x")
    key, _ = keys.create(admin, keys.KeyGrant(name="checkout"))
    views.save(admin, "jobs", "Broken", "state=failed", is_shared=True)
    return {"key": key.pk, "job": make(1, state="queued", worker="", gpu="").pk}


def found(browser: Browser, text: str, role: str = "admin") -> dict[str, str]:
    """Address of each line, by kind and label."""
    items = browser(role).get("/find", {"q": text}).json()["items"]
    return {f"{item['kind']} {item['label']}": item["href"] for item in items}


def test_things_are_found_by_name(browser: Browser, things: dict[str, str]) -> None:
    assert found(browser, "DIGI")["model digits"] == "/models/digits"
    assert found(browser, "digits:3")["version digits:3"] == "/models/digits/versions/3"
    assert found(browser, "digits 3")["version digits:3"] == "/models/digits/versions/3"
    assert found(browser, "check")["key checkout"] == f"/keys/{things['key']}"
    assert found(browser, "check")["account checkout"] == f"/accounts/{things['key']}"
    assert found(browser, things["job"][:8])[f"job {things['job']}"] == f"/jobs/{things['job']}"
    assert found(browser, "worker-1")["worker worker-1"] == "/workers/worker-1"
    assert found(browser, "brok")["view Broken"] == "/jobs?state=failed"
    assert found(browser, "dead")["page Dead letters"] == "/jobs/-/dead-letters"
    assert found(browser, "customers")["page Accounts"] == "/accounts"
    assert found(browser, "nothing called so") == {
        "jobs Search jobs for “nothing called so”": "/jobs?q=nothing+called+so"
    }


def test_acts_are_found_by_name_and_lead_to_their_form(browser: Browser, things: dict[str, str]) -> None:
    written = AuditEntry.objects.count()
    assert found(browser, "pause digits")["act Pause digits"] == "/models/digits#do=pause"
    assert found(browser, "drain worker")["act Drain worker-1"] == "/workers/worker-1#do=drain"
    assert found(browser, "revoke check")["act Revoke checkout"] == f"/keys/{things['key']}#do=revoke"
    assert found(browser, f"cancel {things['job'][:9]}")[f"act Cancel {things['job']}"].endswith("#do=cancel")
    assert found(browser, "create key")["act Create key"] == "/keys/new"
    assert next(iter(found(browser, "pause"))) == "act Pause digits"
    DesiredState.objects.create(kind=DesiredState.MODEL, name="digits", is_on=True, actor_name="x")
    assert "act Pause digits" not in found(browser, "pause digits")
    assert found(browser, "resume digits")["act Resume digits"] == "/models/digits#do=pause"
    assert AuditEntry.objects.count() == written


@pytest.mark.parametrize("role", ROLES)
def test_only_what_the_role_may_see_and_do_is_found(browser: Browser, things: dict[str, str], role: str) -> None:
    for text in ("", "digits", "pause digits", "revoke checkout", "audit", "create", "settings digits"):
        for line in found(browser, text, role):
            kind, _, label = line.partition(" ")
            acts = {
                "act": {one.act for one in (*ACTS, *VERBS) if one.label.format("") in label or one.label == label},
                "page": {one.act for one in PLACES if one.label == label},
            }.get(kind)
            assert acts is None or acts & ROLES[role], line
    assert ("page Audit" in found(browser, "audit", role)) is (role != "viewer")
    assert ("act Revoke checkout" in found(browser, "revoke checkout", role)) is (role == "admin")


def test_who_is_limited_to_models_finds_no_worker_and_no_host(browser: Browser, things: dict[str, str]) -> None:
    User.objects.filter(username="operator").update(only_models=["digits"])
    for text in ("worker", "h", "1", "drain worker", "digits"):
        lines = found(browser, text, "operator")
        assert not [line for line, href in lines.items() if href.startswith("/workers")], text
    assert "model digits" in found(browser, "digits", "operator")


def test_who_is_limited_to_models_finds_theirs_behind_many_others(browser: Browser, things: dict[str, str]) -> None:
    ServedModel.objects.bulk_create(ServedModel(name=f"digits-{n}", base_path=f"/m/{n}") for n in range(20))
    User.objects.filter(username="operator").update(only_models=["digits-9"])
    lines = found(browser, "digits", "operator")
    assert [line for line in lines if line.startswith("model")] == ["model digits-9"]
    assert "act Pause digits-9" in found(browser, "pause digits", "operator")


def test_every_address_that_it_knows_is_a_page() -> None:
    for place in (*PLACES, *ACTS):
        resolve(place.href.partition("?")[0].partition("#")[0])
    for verb in VERBS:
        resolve(verb.href.format("thing").partition("?")[0].partition("#")[0])


def test_what_it_reads_and_answers_is_bounded(browser: Browser, things: dict[str, str]) -> None:
    ServedModel.objects.bulk_create(ServedModel(name=f"m{n}", base_path=f"/m/{n}") for n in range(200))
    for number in range(20):
        make(number + 10, state="failed")
    client = browser("admin")
    for text in ("", "m", "p", "re", "0", "m" * 5000, "%", "_", "\\", "é:3", ":", ": 9999999999999999999999"):
        with CaptureQueriesContext(connection) as asked:
            answer = client.get("/find", {"q": text})
        assert answer.status_code == 200
        assert len(answer.json()["items"]) <= 31
        assert len(asked) < 60, text


def test_a_stranger_asks_in_vain(client: Client, db: Any) -> None:
    assert client.get("/find?q=x").status_code == 302
