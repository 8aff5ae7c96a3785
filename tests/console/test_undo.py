"""Undo: the inverse of an act, audited like any other, offered by the message and on the page of the thing."""

from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import modelsettings, registration, targets
from console.catalog.models import ServedModel
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet import steering
from console.fleet.models import DesiredState
from console.keys.models import Account
from console.operators import services as operators
from console.undo import services as undoing
from signalbox.program.errors import Conflict, NotFound, SignalboxError
from signalbox.program.settings import Wire
from tests.console.conftest import Call, submit
from tests.console.test_accounts import FORM as ACCOUNT
from tests.console.test_live_view import worker
from tests.console.test_sessions import turn

Browser = Callable[[str], Client]


@pytest.fixture
def model(admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch) -> ServedModel:
    """A model with versions 1 and 2, and a worker."""
    model = registration.register(admin, "digits", str(base))
    feed = Feed(Wire())
    feed.view.presence("w1", worker("w1"), 1_000_000.0)
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)
    Account.objects.create(id="shop", name="Corner shop")
    return model


def _asked(kind: str, name: str) -> bool:
    return DesiredState.objects.filter(kind=kind, name=name, is_on=True).exists()


ACTS: dict[str, tuple[str, dict[str, str], Callable[[], Any]]] = {
    "pause": ("/models/digits/pause", {"paused": "1"}, lambda: _asked("model", "digits")),
    "drain": ("/workers/w1/drain", {"draining": "1"}, lambda: _asked("worker", "w1")),
    "default": ("/models/digits/default", {"version": "1"}, lambda: ServedModel.objects.get().default_version),
    "label": (
        "/models/digits/label",
        {"label": "stable", "version": "2"},
        lambda: list(ServedModel.objects.get().labels.values_list("name", "version__number")),
    ),
    "policy": ("/models/digits/policy", {"kind": "latest", "count": "1"}, lambda: ServedModel.objects.get().policy),
    "replicas": ("/models/digits/replicas", {"replicas": "3"}, lambda: ServedModel.objects.get().replicas),
    "enabled": ("/models/digits/enabled", {"enabled": "0"}, lambda: ServedModel.objects.get().is_enabled),
    "pin": ("/models/digits/pin", {"pinned": "1"}, lambda: _asked("pin", "digits")),
    "account": ("/accounts/shop/edit", ACCOUNT, lambda: Account.objects.get().name),
    "disabled": ("/accounts/shop/disable", {}, lambda: Account.objects.get().state),
    "role": ("/settings/users/viewer/role", {"role": "operator"}, lambda: User.objects.get(username="viewer").role),
    "active": (
        "/settings/users/viewer/active",
        {"active": "0"},
        lambda: User.objects.get(username="viewer").is_active,
    ),
}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.usefixtures("model")
def test_the_message_after_an_act_has_a_button_that_takes_it_back(browser: Browser, act: str) -> None:
    url, form, state = ACTS[act]
    client, before = browser("admin"), state()
    page = client.get(submit(client, url, form)["Location"]).content.decode()
    assert state() != before
    done = AuditEntry.objects.first()
    assert done
    assert f'action="/audit/{done.number}/undo"' in page.partition('class="messages"')[2].partition("</form>")[0]
    answer = submit(client, f"/audit/{done.number}/undo")
    assert answer.status_code == 302
    assert state() == before
    taken = AuditEntry.objects.first()
    assert taken
    assert (taken.act, taken.target, taken.result) == (done.act, done.target, "done")
    assert taken.reason == f"Undo of {done.number}."
    assert AuditEntry.objects.filter(number__gt=done.number).count() == 1
    again = client.get(answer["Location"]).content.decode()
    assert f'action="/audit/{taken.number}/undo"' in again, "and that can be taken back too"


def test_a_label_that_was_moved_goes_back_to_its_version(browser: Browser, model: ServedModel, admin: Actor) -> None:
    targets.set_label(admin, "digits", "stable", 1)
    targets.set_label(admin, "digits", "stable", 2)
    entry = AuditEntry.objects.first()
    assert entry
    undoing.undo(admin, entry)
    assert model.labels.get(name="stable").version.number == 1


def test_what_was_changed_again_meanwhile_is_not_undone_and_that_is_audited(model: ServedModel, admin: Actor) -> None:
    modelsettings.change_settings(admin, "digits", {"replicas": 3, "timeout_s": 9.0})
    first = AuditEntry.objects.first()
    assert first
    modelsettings.change_settings(admin, "digits", {"replicas": 4})
    with pytest.raises(Conflict, match=r"replicas of digits was changed again .*: it is 4 now, and was 3"):
        undoing.undo(admin, first)
    model.refresh_from_db()
    assert (model.replicas, model.timeout_s) == (4, 9.0)
    refused = AuditEntry.objects.first()
    assert refused
    assert (refused.result, refused.after) == ("failed", {"undo": first.number})
    modelsettings.change_settings(admin, "digits", {"max_queue": 7})
    assert undoing.may_undo(admin, AuditEntry.objects.get(number=first.number + 1))


def test_the_inverse_may_be_refused_too_and_leaves_its_own_row(cast: dict[str, User], admin: Actor) -> None:
    other = operators.create_user(admin, "nina", "quite another long password", "admin")
    operators.set_role(Actor(user=other), "admin", "viewer")
    entry = AuditEntry.objects.first()
    assert entry
    operators.set_active(Actor(user=other), "admin", is_active=False)
    cast["admin"].refresh_from_db()
    with pytest.raises(SignalboxError, match="Log in first"):
        undoing.undo(Actor(user=cast["admin"]), entry)
    assert AuditEntry.objects.filter(result="refused").count() == 1


@pytest.mark.usefixtures("model")
def test_after_a_day_or_of_an_act_without_an_inverse_there_is_no_undo(
    admin: Actor, monkeypatch: pytest.MonkeyPatch
) -> None:
    registered = AuditEntry.objects.get(act="models.register")
    with pytest.raises(NotFound, match="has no undo"):
        undoing.undo(admin, registered)
    modelsettings.change_settings(admin, "digits", {"replicas": 3})
    entry = AuditEntry.objects.first()
    assert entry
    late = timezone.now() + undoing.KEPT + timedelta(seconds=1)
    monkeypatch.setattr(timezone, "now", lambda: late)
    with pytest.raises(Conflict, match="for a day"):
        undoing.undo(admin, entry)


@pytest.mark.usefixtures("model")
def test_only_who_may_do_the_act_may_take_it_back(browser: Browser, admin: Actor) -> None:
    modelsettings.change_settings(admin, "digits", {"replicas": 3})
    entry = AuditEntry.objects.first()
    assert entry
    for role, act in (("viewer", "audit.view"), ("operator", "models.settings")):
        page = browser(role).get("/models/digits").content.decode()
        assert f"/audit/{entry.number}/undo" not in page
        assert submit(browser(role), f"/audit/{entry.number}/undo").status_code == 403
        refused = AuditEntry.objects.first()
        assert refused
        assert (refused.result, refused.actor_name, refused.act) == ("refused", role, act)
    operators.switch_read_only(admin, is_read_only=True, message="Moving.")
    assert submit(browser("admin"), f"/audit/{entry.number}/undo").status_code == 403
    assert ServedModel.objects.get().replicas == 3


@pytest.mark.usefixtures("model")
def test_the_page_of_the_thing_offers_what_stands_and_nothing_else(browser: Browser, admin: Actor) -> None:
    modelsettings.change_settings(admin, "digits", {"replicas": 3})
    modelsettings.change_settings(admin, "digits", {"replicas": 4})
    targets.set_default(admin, "digits", 1)
    default, four, three = AuditEntry.objects.all()[:3]
    page = browser("model manager").get("/models/digits").content.decode()
    offered = [entry.target and f"/audit/{entry.number}/undo" in page for entry in (default, four, three)]
    assert offered == [True, True, False]


def test_a_deletion_has_the_same_button(browser: Browser, model: ServedModel) -> None:
    client = browser("admin")
    assert model.name == "digits"
    targets.set_default(Actor(user=User.objects.get(username="admin")), "digits", 2)
    page = client.get(submit(client, "/models/digits/versions/1/delete")["Location"]).content.decode()
    message = page.partition('class="messages"')[2].partition("</form>")[0]
    assert 'action="/models/digits/versions/1/undo"' in message
    assert "Undo</button>" in message
    page = client.get(submit(client, "/models/digits/delete")["Location"]).content.decode()
    assert 'action="/models/digits/undo"' in page.partition('class="messages"')[2].partition("</form>")[0]


@pytest.mark.usefixtures("model")
def test_by_rest(call: Callable[[str], Call]) -> None:
    api = call("admin")
    assert api("put", "models/digits/pause", {"on": True}).status_code == 202  # NATS is away
    entry = api("get", "audit").json()["entries"][0]
    answer = api("post", f"audit/{entry['number']}/undo", {"reason": "too early"})
    assert answer.status_code == 202
    assert (answer.json()["act"], answer.json()["target"]) == ("queues.pause", "digits")
    assert "NATS" in answer.json()["unpublished"] or answer.json()["unpublished"]
    assert not _asked("model", "digits")
    assert api("get", "audit").json()["entries"][0]["reason"] == f"Undo of {entry['number']}. too early"
    assert api("post", f"audit/{entry['number']}/undo", {}).status_code == 409
    assert api("post", "audit/999999/undo", {}).status_code == 404
    assert api("post", "audit/x/undo", {}).status_code == 400


@pytest.mark.usefixtures("model")
@pytest.mark.parametrize("act", ["account", "disabled", "role"])
def test_undo_asks_for_the_password_where_the_act_itself_would(browser: Browser, act: str) -> None:
    url, form, state = ACTS[act]
    client = browser("admin")
    submit(client, url, form)
    changed, done = state(), AuditEntry.objects.first()
    assert done
    turn(client, "confirmed_at", 301)
    assert submit(client, f"/audit/{done.number}/undo").status_code == 403
    client.handler.enforce_csrf_checks = False
    assert client.post(f"/api/audit/{done.number}/undo", {}, "application/json").status_code == 403
    assert state() == changed


def test_undo_leaves_what_its_act_named_and_did_not_change(model: ServedModel, admin: Actor) -> None:
    modelsettings.change_settings(admin, "digits", {"replicas": 3, "timeout_s": model.timeout_s})
    first = AuditEntry.objects.first()
    assert first
    modelsettings.change_settings(admin, "digits", {"timeout_s": 9.0})
    undoing.undo(admin, first)
    assert (ServedModel.objects.get().replicas, ServedModel.objects.get().timeout_s) == (model.replicas, 9.0)


@pytest.mark.usefixtures("model")
def test_a_pin_that_another_act_has_moved_is_not_undone(admin: Actor) -> None:
    steering.pin(admin, "digits", is_pinned=True, version=1)
    first = AuditEntry.objects.first()
    assert first
    steering.pin(admin, "digits", is_pinned=True, version=2)
    second = AuditEntry.objects.first()
    assert second
    with pytest.raises(Conflict, match="version of digits was changed again"):
        undoing.undo(admin, first)
    undoing.undo(admin, second)
    assert DesiredState.objects.get(kind="pin", is_on=True).version == 1
    steering.pin(admin, "digits", is_pinned=False)
    third = AuditEntry.objects.first()
    assert third
    undoing.undo(admin, third)
    assert DesiredState.objects.get(kind="pin", is_on=True).version == 1
