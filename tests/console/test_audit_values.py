"""The audit says what was asked and what was done, and nothing that nobody said."""

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from django.test import Client
from django.utils import timezone

from console.accounts.models import User
from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import approval, modelsettings, registration, targets
from console.catalog.models import ModelVersion, ServedModel, VersionLabel
from console.fleet import services as fleet
from console.jobs import acts as jobs
from console.keys import accounts, services, unknown
from console.keys.models import ApiKey
from console.operators import services as operators
from signalbox.program.errors import SignalboxError
from tests.console.conftest import PASSWORD

Browser = Callable[[str], Client]
KEY = services.KeyGrant(name="k", models=["none"], days=30)
ACTS: dict[str, tuple[Callable[[Actor], Any], dict[str, Any]]] = {
    "a label": (lambda who: targets.set_label(who, "digits", "stable", 9), {"stable": 9}),
    "a default": (lambda who: targets.set_default(who, "digits", 9), {"default_version": 9}),
    "settings": (lambda who: modelsettings.change_settings(who, "digits", {"replicas": -4}), {"replicas": -4}),
    "no number": (
        lambda who: modelsettings.change_settings(who, "digits", {"timeout_s": float("nan")}),
        {"timeout_s": "nan"},
    ),
    "enabling": (lambda who: modelsettings.set_enabled(who, "other", is_enabled=False), {"is_enabled": False}),
    "an approval": (lambda who: approval.approve(who, "digits", 9), {"version": 9}),
    "a folder": (
        lambda who: registration.register(who, "m", "/nowhere", changes={"replicas": 2}, is_default=True),
        {"path": "/nowhere", "is_default": True, "replicas": 2},
    ),
    "a drain": (lambda who: fleet.drain(who, "nobody", is_draining=True), {"is_on": True}),
    "a pause": (lambda who: fleet.pause(who, "other", is_paused=True), {"is_on": True}),
    "a role": (lambda who: operators.set_role(who, "viewer", "king"), {"role": "king"}),
    "a lock-out": (lambda who: operators.set_active(who, "nobody", is_active=False), {"is_active": False}),
    "an operator": (
        lambda who: operators.create_user(who, "viewer", PASSWORD, "operator"),
        {"role": "operator", "is_service": False},
    ),
    "a key": (lambda who: services.create(who, KEY), {"name": "k", "models": ["none"], "days": 30}),
    "a replacement": (
        lambda who: services.rotate(who, "none", overlap_days=3),
        {"state": "replaced", "overlap_days": 3},
    ),
    "a revocation": (lambda who: services.revoke(who, "none"), {"state": "revoked"}),
    "an adoption": (lambda who: unknown.adopt(who, "none"), {"state": "adopted"}),
    "an account": (
        lambda who: accounts.create(who, accounts.Terms(name="a", waiting=-1)),
        {"name": "a", "waiting": -1},
    ),
    "a share": (lambda who: accounts.change(who, "none", {"waiting": 7}), {"waiting": 7}),
    "a cancellation": (lambda who: jobs.cancel(who, "none"), {"cancel": "asked"}),
}


@pytest.fixture
def digits(cast: dict[str, User]) -> ServedModel:
    """A model whose label points at version 3."""
    model = ServedModel.objects.create(name="digits", base_path="/m/digits")
    version = ModelVersion.objects.create(model=model, number=3, path="/m/digits/3", digest="d" * 64, added_by="x")
    VersionLabel.objects.create(model=model, name="stable", version=version)
    return model


@pytest.mark.parametrize("who", ["viewer", "admin"])
@pytest.mark.parametrize("act", ACTS)
def test_an_act_that_is_refused_or_fails_is_written_with_what_was_asked(
    digits: ServedModel, cast: dict[str, User], browser: Browser, who: str, act: str
) -> None:
    run, asked = ACTS[act]
    with pytest.raises(SignalboxError):
        run(Actor(user=cast[who]))
    entry = AuditEntry.objects.get()
    assert entry.result == ("failed" if who == "admin" else "refused")
    assert {name: entry.after.get(name) for name in asked} == asked
    assert PASSWORD not in str(entry.after)
    assert set(entry.after) == {name for name, _, _ in entry.changes}
    page = browser("admin").get("/audit").content.decode()
    assert page.count("asked:") == len(entry.after)
    assert "<ins>" not in page


def test_what_a_refused_act_asked_for_is_kept_in_part_where_it_is_long(cast: dict[str, User]) -> None:
    many = [f"model-{number}" for number in range(5000)]
    with pytest.raises(SignalboxError):
        services.create(Actor(user=cast["viewer"]), services.KeyGrant(name="n" * 5000, models=many))
    after = AuditEntry.objects.get().after
    assert len(after["name"]) == 500
    assert after["models"][49:] == ["model-49", "… 4950 more"]


def test_a_default_that_nobody_chose_is_the_highest_and_not_none(digits: ServedModel, admin: Actor) -> None:
    targets.set_default(admin, "digits", 3)
    targets.set_default(admin, "digits", None)
    newest, first = AuditEntry.objects.filter(act="models.rollout")
    assert first.changes == [("default_version", "the highest", 3)]
    assert newest.changes == [("default_version", 3, "the highest")]


def test_a_label_that_is_taken_away_was_somewhere_and_is_nowhere(digits: ServedModel, admin: Actor) -> None:
    targets.set_label(admin, "digits", "stable", None)
    assert AuditEntry.objects.get(act="models.rollout").changes == [("stable", 3, None)]


def test_the_state_before_a_revocation_is_the_one_that_the_key_had(admin: Actor) -> None:
    key, _ = services.create(admin, services.KeyGrant(name="k"))
    ApiKey.objects.update(expires_at=timezone.now() - timedelta(hours=1))
    services.revoke(admin, key.pk)
    assert AuditEntry.objects.first().changes == [("state", "expired", "revoked")]  # type: ignore[union-attr]


def test_the_audit_tells_from_when_to_when_a_replaced_key_ends(admin: Actor) -> None:
    key, _ = services.create(admin, services.KeyGrant(name="k", days=30))
    was = key.end
    services.rotate(admin, key.pk)
    entry = AuditEntry.objects.first()
    assert entry is not None
    assert ("expires_at", was, ApiKey.objects.get(pk=key.pk).end) in entry.changes
