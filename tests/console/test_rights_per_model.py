"""Operators who are limited to some models: what they see, and what they may act on."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.db.models import Q
from django.test import Client
from django.urls import reverse

from console.accounts import scope
from console.accounts.acts import Act
from console.accounts.models import User
from console.accounts.rights import Actor, may
from console.audit.models import AuditEntry
from console.board.projection import projected
from console.board.protocol import Topic
from console.board.rows import Alarm, Queue, Transition
from console.board.view import LiveView
from console.catalog import registration
from console.catalog.models import ServedModel
from console.deletion import wholemodels
from console.fleet import services as fleet
from console.jobs import acts, query
from console.jobs.models import Job
from console.operators import services as operators
from console.selections.models import Selection
from console.undo import services as undo
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest
from signalbox.wire.modeldocs import Model
from signalbox.wire.workerdocs import Residency, Run
from tests.console.conftest import Call, submit
from tests.console.test_jobs import START, make
from tests.console.test_live_view import T0, document, worker
from tests.console.test_rights import ACTS, FORMS, routes

Browser = Callable[[str], Client]
ROLE = "model manager"


@pytest.fixture
def things(admin: Actor, base: Path) -> dict[str, Job]:
    """Two models, a running job of each, and a manager who is limited to one of them."""
    jobs = {}
    for number, name in enumerate(("team-a", "zebra")):
        registration.register(admin, name, str(base / "1"))
        jobs[name] = make(number, model=name, state="running", worker="w1")
    operators.set_models(admin, "model-manager", ["team-*"], reason="Their team's.")
    return jobs


@pytest.fixture
def limited(things: dict[str, Job], cast: dict[str, User]) -> Actor:
    return Actor(user=User.objects.get(username="model-manager"), via="tests")


@pytest.fixture
def tab(limited: Actor) -> Client:
    client = Client(enforce_csrf_checks=True)
    assert limited.user is not None
    client.force_login(limited.user)
    return client


def test_every_act_on_another_model_or_its_jobs_is_refused_and_noted(tab: Client, things: dict[str, Job]) -> None:
    refused = 0
    for name, url in routes():
        act = ACTS.get(name)
        if act in {None, Act.VIEWS_OWN}:  # one's own things
            continue
        path = url.replace("/jobs/thing", f"/jobs/{things['zebra'].pk}").replace("/models/thing", "/models/zebra")
        answer = submit(tab, path, {**FORMS.get(name, {}), "name": "zebra"})
        is_about_none = name in {"register-model", "upload-model", "undo"}  # what they are given is looked at first
        assert answer.status_code == (400 if is_about_none else 403), (name, answer.content)
        refused += answer.status_code == 403
    assert refused > 30
    assert not AuditEntry.objects.filter(actor_name="model-manager", result="done").exists()
    noted = AuditEntry.objects.filter(actor_name="model-manager", result="refused", target="zebra")
    wanted = {"models.settings", "models.rollout", "models.approve", "queues.pause", "residency.pin", "residency.load"}
    assert wanted <= set(noted.values_list("act", flat=True))
    assert AuditEntry.objects.filter(result="refused", target=things["zebra"].pk, act="jobs.cancel").count() == 1


def test_acts_on_ones_own_models_and_jobs_go_on(tab: Client, limited: Actor, things: dict[str, Job]) -> None:
    assert submit(tab, "/models/team-a/replicas", {"replicas": "2"}).status_code == 302
    assert submit(tab, "/models/team-a/pause", {"paused": "1"}).status_code == 302
    assert submit(tab, f"/jobs/{things['team-a'].pk}/cancel").status_code == 302
    assert submit(tab, "/settings/tokens", {"name": "mine", "days": "1"}).status_code == 302
    with pytest.raises(Forbidden, match="limited to the models team-"):
        acts.cancel(limited, things["zebra"].pk)
    with pytest.raises(Forbidden, match="not known"):
        acts.cancel(limited, "00000000-0000-4000-8000-00000000ffff")


def test_new_models_of_the_limit_may_be_registered_and_no_others(limited: Actor, base: Path) -> None:
    registration.register(limited, "team-new", str(base / "1"))
    with pytest.raises(Forbidden):
        registration.register(limited, "new", str(base / "1"))
    assert not ServedModel.objects.filter(name="new").exists()


def test_lists_and_pages_show_only_these(tab: Client, things: dict[str, Job]) -> None:
    for url in ("/models", "/jobs", "/jobs?q=worker:w1", "/jobs?group=error", "/models/-/deleted", "/find?q=ze"):
        page = tab.get(url).content.decode()
        assert ("zebra" in page, tab.get(url).status_code) == (False, 200), url
    assert "team-a" in tab.get("/models").content.decode()
    assert things["team-a"].pk in tab.get("/jobs").content.decode()
    for path in ("/models/{}", "/models/{}/versions/1", "/models/{}/settings"):
        assert [tab.get(path.format(name)).status_code for name in ("team-a", "zebra")] == [200, 403], path
    assert [tab.get(f"/jobs/{job.pk}").status_code for job in things.values()] == [200, 403]


def test_what_was_deleted_of_other_models_is_not_listed(tab: Client, admin: Actor) -> None:
    Job.objects.all().delete()
    for name in ("team-a", "zebra"):
        wholemodels.delete_model(admin, name)
    page = tab.get("/models/-/deleted").content.decode()
    assert ("team-a" in page, "zebra" in page) == (True, False)


def test_files_of_lists_hold_only_these(tab: Client, things: dict[str, Job]) -> None:
    for file in ("jobs.csv", "jobs.jsonl", "models.csv"):
        text = tab.get(f"/exports/{file}").getvalue().decode()
        assert ("team-a" in text, "zebra" in text) == (True, False), file
    for file in ("workers.csv", "audit.csv", "keys.csv", "accounts.jsonl"):
        assert tab.get(f"/exports/{file}").status_code == 403, file


def test_the_palette_leads_to_nothing_beyond(tab: Client, things: dict[str, Job]) -> None:
    def found(text: str) -> set[str]:
        return {item["href"] for item in tab.get("/find", {"q": text}).json()["items"]}

    assert "/models/team-a" in found("team")
    assert f"/jobs/{things['team-a'].pk}" in found(things["team-a"].pk)
    assert "/models" in found("models")
    hrefs = [
        href for text in ("zebra", "pause ze", "upload", things["zebra"].pk, "workers", "") for href in found(text)
    ]
    closed = ("/workers", "/repositories", "/keys", "/accounts", "/audit")
    leading = [href for href in hrefs if not href.startswith("/jobs?")]
    assert [href for href in leading if "zebra" in href or href.startswith(closed)] == []
    assert f"/jobs/{things['zebra'].pk}" not in hrefs


def test_acts_on_ones_own_models_can_be_taken_back_and_no_others(tab: Client, admin: Actor) -> None:
    submit(tab, "/models/team-a/pause", {"paused": "1"})
    own = AuditEntry.objects.get(act="queues.pause", result="done")
    fleet.pause(admin, "zebra", is_paused=True)
    other = AuditEntry.objects.get(act="queues.pause", result="done", target="zebra")
    assert submit(tab, f"/audit/{own.number}/undo").status_code == 302
    assert submit(tab, f"/audit/{other.number}/undo").status_code == 403


def test_a_limit_can_be_taken_back(admin: Actor, things: dict[str, Job]) -> None:
    entry = AuditEntry.objects.filter(target="model-manager", act="users.manage").latest("pk")
    undo.undo(admin, entry)
    assert User.objects.get(username="model-manager").only_models == []


def test_selections_are_closed(tab: Client, things: dict[str, Job]) -> None:
    assert tab.get("/jobs/-/selections").status_code == 403
    form = {"act": "cancel", "job": [job.pk for job in things.values()]}
    assert submit(tab, "/jobs/-/selections/choose", form).status_code == 403
    assert not Selection.objects.exists()


@pytest.mark.parametrize("page", ["workers", "hosts", "repositories", "keys", "accounts", "audit"])
def test_pages_that_show_all_models_are_closed(tab: Client, page: str) -> None:
    answer = tab.get(reverse(page))
    assert (answer.status_code, b"limited to the models team-*" in answer.content) == (403, True)


def test_programs_see_and_may_no_more(call: Callable[[str], Call], things: dict[str, Job]) -> None:
    program = call(ROLE)
    me = program("get", "me").json()
    assert me["models"] == ["team-*"]
    assert {"models.rollout", "jobs.cancel", "tokens.own"} <= set(me["acts"])
    assert not {"workers.drain", "repositories.manage", "keys.view", "audit.view"} & set(me["acts"])
    assert [model["name"] for model in program("get", "models").json()["models"]] == ["team-a"]
    assert [job["model"] for job in program("get", "jobs").json()["jobs"]] == ["team-a"]
    assert program("get", "models/zebra").status_code == program("get", "keys").status_code == 403
    assert program("post", f"jobs/{things['zebra'].pk}/cancel", {}).status_code == 403
    assert program("put", "models/zebra/pause", {"on": True}).status_code == 403
    assert program("get", "workers").status_code == program("get", "dead-letters/x").status_code == 403


def test_an_admin_sets_the_limit_on_a_page_and_it_is_audited(
    browser: Browser, cast: dict[str, User], things: dict[str, Job]
) -> None:
    theirs, client = browser("operator"), browser("admin")
    assert "team-*" in client.get("/settings/users").content.decode()
    assert "Names, or beginnings" in client.get("/settings/users/operator/models").content.decode()
    form = {"models": "zebra team-*", "reason": "Moved."}
    assert submit(client, "/settings/users/operator/models", form).status_code == 302
    assert theirs.get("/jobs").status_code == 302, "sessions end"
    entry = AuditEntry.objects.filter(target="operator").latest("pk")
    assert (entry.before, entry.after, entry.reason) == ({"models": []}, {"models": ["zebra", "team-*"]}, "Moved.")
    assert submit(client, "/settings/users/operator/models", {"models": "a b*c"}).status_code == 400
    assert submit(client, "/settings/users/operator/models", {"models": ""}).status_code == 302
    assert User.objects.get(username="operator").only_models == []


@pytest.mark.parametrize("names", [["a", "a"], ["-x"], ["a b"], ["*a"], ["m"] * 2, [f"m{n}" for n in range(101)]])
def test_what_names_no_model_is_refused(admin: Actor, names: list[str]) -> None:
    with pytest.raises(InvalidRequest):
        operators.set_models(admin, "viewer", names)


def test_an_admin_of_all_models_is_kept(admin: Actor) -> None:
    with pytest.raises(Conflict, match="of all models"):
        operators.set_models(admin, "admin", ["team-*"])


def test_a_limited_admin_cannot_lift_the_limit(admin: Actor) -> None:
    operators.create_user(admin, "second", "a long password indeed", "admin")
    operators.set_models(admin, "second", ["team-*"])
    second = Actor(user=User.objects.get(username="second"))
    for act in (Act.USERS_MANAGE, Act.KEYS_MANAGE, Act.SYSTEM_READ_ONLY, Act.TOKENS_MANAGE, Act.AUDIT_VIEW):
        assert not may(second, act)
    with pytest.raises(Forbidden):
        operators.set_models(second, "second", [])


def test_upper_and_lower_case_are_two_models(things: dict[str, Job]) -> None:
    make(7, model="TEAM-b")
    make(8, model="team_c")
    found = Job.objects.filter(scope.within(["team-*"])).values_list("model", flat=True)
    assert list(found) == ["team-a"]
    assert Job.objects.filter(scope.within(["*"])).count() == 4


@pytest.mark.parametrize("names", [["team-a"], ["team-*"], ["team-a", "x*"]])
def test_a_filter_finds_nothing_beyond_the_limit(things: dict[str, Job], names: list[str]) -> None:
    for text in ("", "model:zebra", "state:running", "worker:w1", things["zebra"].pk):
        asked = query.within(query.parse(text, START), names)
        found = {job.model for lead in asked.leads for job in Job.objects.filter(lead.condition & (asked.rest or Q()))}
        assert found <= {"team-a"}, text


def test_who_is_not_limited_is_asked_nothing_more(
    browser: Browser, things: dict[str, Job], monkeypatch: pytest.MonkeyPatch
) -> None:
    def asked(*_: Any) -> None:
        raise AssertionError

    for name in ("refusal", "within"):
        monkeypatch.setattr(scope, name, asked)
    client = browser("operator")
    for url in (f"/jobs/{things['zebra'].pk}", "/jobs", "/models", "/models/zebra", "/workers"):
        assert client.get(url).status_code == 200, url
    assert submit(client, f"/jobs/{things['zebra'].pk}/cancel").status_code == 302


class TestBoard:
    """The frames of a limited viewer."""

    def of(self, board: LiveView) -> dict[str, Any]:
        return {
            name: json.loads(projected(board.topics.snapshot(name, T0).text, ("team-*",)))["state"]
            for name in board.topics.topics
        }

    def test_rows_of_other_models_are_left_out(self) -> None:
        board = LiveView("e", T0)
        loaded = tuple(Residency(model=name, version=1, state="ready") for name in ("team-a", "zebra"))
        run = Run(activity="computing", model="zebra", version=1, since=T0)
        board.presence("w1", worker("w1", models=loaded, run=run, token=3), T0)
        for name in ("team-a", "zebra"):
            board.model(name, Model(name=name), T0)
            board.accepted(document(name), T0, T0)
        board.age(T0, is_blind=False)
        board.flush(T0)
        shown = self.of(board)
        assert set(shown["queues"]) == {"team-a"}
        assert [entry["model"] for entry in shown["ticker"]] == ["team-a"]
        assert [one["model"] for one in shown["workers"]["w1"]["models"]] == ["team-a"]
        assert "zebra" not in json.dumps([shown[name] for name in ("lanes", "queues", "workers", "ticker", "fetches")])

    def test_alarms_are_those_of_their_models(self) -> None:
        topic = Topic("alarms")
        for key, href in (
            ("old:team-a", "/models/team-a"),
            ("old:zebra", "/models/zebra"),
            ("lost-jobs:team-a", "/jobs?state=running&q=model:team-a"),
            ("idle:g1", "#lane-g1"),
            ("load:team-worker:zebra", "/models/zebra"),
        ):
            topic.set(key, Alarm("warning", "text", href=href))
        shown = json.loads(projected(topic.snapshot("e", T0).text, ("team-*", "m*")))["state"]
        assert set(shown) == {"old:team-a", "lost-jobs:team-a"}

    def test_a_delta_keeps_its_number_and_takes_away_what_was_shown(self) -> None:
        topic = Topic("queues")
        for name in ("team-a", "zebra"):
            topic.set(name, Queue(behind="zebra:2", label="behind zebra:2"))
        delta = json.loads(projected(topic.flush(T0).text, ("team-a",)))  # type: ignore[union-attr]
        assert (delta["seq"], set(delta["set"])) == (1, {"team-a"})
        assert (delta["set"]["team-a"]["behind"], delta["set"]["team-a"]["label"]) == (
            "another model",
            "behind another model",
        )
        topic.remove("team-a")
        topic.remove("zebra")
        assert json.loads(projected(topic.flush(T0).text, ("team-a",)))["del"] == ["team-a"]  # type: ignore[union-attr]

    def test_entries_that_are_added_are_those_of_their_models(self) -> None:
        topic = Topic("ticker", is_list=True)
        for name in ("team-a", "zebra"):
            topic.append(Transition(at=T0, id="1", model=name, version=1, state="queued"))
        delta = json.loads(projected(topic.flush(T0).text, ("team-a",)))  # type: ignore[union-attr]
        assert [entry["model"] for entry in delta["add"]] == ["team-a"]
