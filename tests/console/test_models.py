"""Models in the catalog: register, settings, versions, labels, and what is published of them."""

import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import Group
from django.test import Client
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import (
    approval,
    inspection,
    lookup,
    modelsettings,
    registration,
    roots,
    selection,
    targets,
    withdrawal,
)
from console.catalog.inspection import Verdict
from console.catalog.models import ModelVersion, ServedModel, VersionLabel
from console.catalog.versions import Candidate
from console.config import ConsoleSettings
from console.controller import readiness
from console.deletion import versions as deletion
from console.feed.feed import Feed
from console.feed.running import running
from console.outbox.models import OutboxEntry
from console.repositories.models import Repository
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import messages, modeldocs, steering, workerdocs
from tests.console.conftest import FOUND, submit
from tests.console.test_live_view import T0, worker
from tests.rigs.presence import presence

Browser = Callable[[str], Client]


def published(name: str = "digits") -> modeldocs.Model:
    """The newest document of a model."""
    return messages.decode(modeldocs.Model, OutboxEntry.objects.filter(key=name).latest("pk").body)


def test_every_numbered_version_below_a_path_is_registered(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    assert [v.version for v in published().versions] == [1, 2]
    assert published().default_version == 2
    assert published().versions[0].path == str(base / "1")


def test_one_version_s_folder_can_be_registered_too(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base / "1"))
    assert [v.version for v in published().versions] == [1]


def test_registering_again_adds_only_what_is_new(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    with pytest.raises(Conflict):
        registration.register(admin, "digits", str(base))
    (base / "7").mkdir()
    (base / "7" / "saved_model.pb").write_bytes(b"x")
    registration.register(admin, "digits", str(base))
    assert [v.version for v in published().versions] == [1, 2, 7]


OTHER = replace(FOUND, digest="e" * 64)


def test_a_version_that_never_loaded_is_registered_again_with_other_files(
    admin: Actor, base: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.register(admin, "digits", str(base))
    assert b"never loaded" in browser("viewer").get("/models/digits").content
    monkeypatch.setattr(inspection, "inspect", lambda path: OTHER if path.name == "2" else FOUND)
    registration.register(admin, "digits", str(base))
    assert [v.digest for v in published().versions] == [FOUND.digest, OTHER.digest]
    entry = AuditEntry.objects.filter(act="models.register").latest("pk")
    assert ("digest of 2", FOUND.digest, OTHER.digest) in entry.changes
    assert entry.after["versions"] == [2]
    with pytest.raises(Conflict, match="registered already"):
        registration.register(admin, "digits", str(base))


def test_a_version_that_workers_have_had_in_memory_keeps_its_files(
    admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.register(admin, "digits", str(base / "1"))
    monkeypatch.setattr(inspection, "inspect", lambda _: OTHER)
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    with pytest.raises(Unavailable, match="whether a worker has version 1 in memory"):
        registration.register(admin, "digits", str(base / "1"))
    monkeypatch.setattr(Feed, "is_blind", False)

    def show(state: str) -> None:
        here = workerdocs.Residency(model="digits", version=1, state=state)
        feed.view.presence("w", presence("w", models=(here,)), 0.0)

    for state, words in (("spare", "which workers have loaded"), ("loading", "Try again in a moment")):
        show(state)
        with pytest.raises(Conflict, match=words):
            registration.register(admin, "digits", str(base / "1"))
    show("failed")
    registration.register(admin, "digits", str(base / "1"))
    readiness.note([("digits", 1)])
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    with pytest.raises(Conflict, match="one that workers have loaded keeps its files"):
        registration.register(admin, "digits", str(base / "1"))


def test_new_files_that_need_approval_do_not_take_a_served_version_away(
    admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.register(admin, "digits", str(base / "1"))
    targets.set_label(admin, "digits", "stable", 1)
    raised = replace(OTHER, verdict=Verdict(forbidden={"ReadFile": "reads files"}, unknown=[]))
    monkeypatch.setattr(inspection, "inspect", lambda _: raised)
    with pytest.raises(Conflict, match="take its labels away first"):
        registration.register(admin, "digits", str(base / "1"))
    targets.set_label(admin, "digits", "stable", None)
    registration.register(admin, "digits", str(base / "1"))
    assert published().versions == ()


def brought(*numbers: int, found: inspection.Inspection = FOUND, **values: Any) -> ServedModel:
    """A model with these versions, registered as noticing does it."""
    repository, _ = Repository.objects.get_or_create(
        name="store", defaults={"url": "s3://models", "added_by": "ann", "changed_by": "bob", **values}
    )
    found = replace(found, digest="")
    new = {number: Candidate(f"s3://models/digits/{number}", found, f"manifest {number}") for number in numbers}
    actor = system_actor("repository:store")
    return registration.register_found(actor, repository, "digits", "s3://models/digits", new)


def test_versions_of_a_repository_are_published_with_its_defaults_its_access_and_their_urls(db: None) -> None:
    brought(1, 2, defaults={"replicas": 3}, access=Repository.ACCOUNTS, access_accounts=["acme"])
    document = published()
    assert [(v.path, v.repository, v.digest) for v in document.versions] == [
        ("s3://models/digits/1", "store", ""),
        ("s3://models/digits/2", "store", ""),
    ]
    assert (document.replicas, document.access) == (3, modeldocs.Access(is_open=False, accounts=("acme",)))
    entry = AuditEntry.objects.get(act="models.register")
    assert (entry.actor_name, entry.after["repository"]) == ("system:repository:store", "store")


def wide() -> inspection.Inspection:
    """What was found of a version of which two fit into a model's document, and three do not."""
    outputs = FOUND.signatures["serving_default"].outputs
    inputs = {f"{number:0100}": modeldocs.TensorSpec(dtype="float32", shape=(-1,)) for number in range(3000)}
    return replace(FOUND, signatures={"serving_default": modeldocs.Signature(inputs=inputs, outputs=outputs)})


def test_a_version_that_the_model_s_document_has_no_room_for_is_refused_and_the_others_serve_on(db: None) -> None:
    brought(1, found=wide())
    brought(2, found=wide())
    with pytest.raises(Conflict, match=r"digits has 1\d{6} bytes, and NATS takes"):
        brought(3, found=wide())
    assert [v.version for v in published().versions] == [1, 2]
    assert not ModelVersion.objects.filter(number=3).exists()


def test_nor_does_a_policy_or_an_undo_bring_more_back_than_the_document_has_room_for(admin: Actor) -> None:
    brought(1, found=wide())
    brought(2, found=wide())
    selection.set_policy(admin, "digits", {"kind": "specific", "versions": [1]})
    selection.retire("digits", [2])
    brought(3, found=wide())
    with pytest.raises(Conflict, match="NATS takes"):
        selection.set_policy(admin, "digits", {"kind": "all"})
    assert [v.version for v in published().versions] == [1]
    deletion.delete_version(admin, "digits", 2)
    selection.set_policy(admin, "digits", {"kind": "all"})
    assert [v.version for v in published().versions] == [1, 3]
    with pytest.raises(Conflict, match="NATS takes"):
        deletion.undo_version(admin, "digits", 2)
    assert [v.version for v in published().versions] == [1, 3]


def test_the_name_of_a_model_is_of_whoever_had_it_first(admin: Actor, base: Path) -> None:
    brought(1)
    with pytest.raises(Conflict, match="digits is the name of a model whose versions repository store brings"):
        registration.register(admin, "digits", str(base))
    ServedModel.objects.all().delete()
    registration.register(admin, "digits", str(base))
    with pytest.raises(Conflict, match="digits is the name of a model whose versions people add"):
        brought(3)


def test_versions_of_a_repository_are_approved_by_neither_of_the_two_who_set_it_up(cast: dict[str, User]) -> None:
    brought(1)
    ModelVersion.objects.update(listed_ops={"ReadFile": "reads files"})
    for name in ("ann", "bob", "carol"):
        User.objects.create(username=name).groups.set([Group.objects.get(name="model manager")])
    for name in ("ann", "bob"):
        with pytest.raises(Forbidden, match="neither added the repository store nor changed it last"):
            approval.approve(Actor(User.objects.get(username=name)), "digits", 1)
    approval.approve(Actor(User.objects.get(username="carol")), "digits", 1)
    assert [v.version for v in published().versions] == [1]


def test_a_version_that_is_pinned_is_never_replaced(db: None) -> None:
    brought(1)
    brought(1)
    (row,) = withdrawal.unpinned().values()
    withdrawal.pin(row, "f" * 64)
    assert [v.digest for v in published().versions] == ["f" * 64]
    with pytest.raises(Conflict, match="versions are immutable"):
        brought(1)


def test_a_version_is_withdrawn_and_comes_back_with_its_label(admin: Actor) -> None:
    model = brought(1, 2)
    targets.set_label(admin, "digits", "stable", 2)
    actor, store = system_actor("repository:store"), model.repository
    assert store is not None
    withdrawal.withdraw(actor, store, "digits", [2, 7], "gone")
    withdrawal.withdraw(actor, store, "digits", [2], "gone")
    assert ([v.version for v in published().versions], published().default_version) == ([1], 1)
    entry = AuditEntry.objects.filter(reason="gone").get()
    assert (entry.before, entry.after["versions"], entry.after["default"]) == ({"default": 2}, [2], 1)
    with pytest.raises(Conflict, match="its repository does not have it any more"):
        targets.set_default(admin, "digits", 2)
    withdrawal.restore(actor, store, "digits", [2], "back")
    assert ([v.version for v in published().versions], published().labels) == ([1, 2], {"stable": 2})


def test_two_folders_of_one_number_are_refused_by_name(admin: Actor, base: Path) -> None:
    shutil.copytree(base / "1", base / "0001")
    with pytest.raises(InvalidRequest, match=r"0001 and 1 of .*/digits are both version 1"):
        registration.register(admin, "digits", str(base))
    registration.register(admin, "digits", str(base / "0001"))  # which of them was said
    assert [v.path for v in published().versions] == [str(base / "0001")]
    with pytest.raises(Conflict, match=rf"Version 1 is registered already, from {base}/0001\."):
        registration.register(admin, "digits", str(base / "1"))


@pytest.mark.parametrize("path", ["relative/path", "/no/such/folder", "/"])
def test_a_path_without_models_is_refused_with_the_reason(admin: Actor, base: Path, path: str) -> None:
    with pytest.raises(InvalidRequest):
        registration.register(admin, "digits", path)


def test_paths_outside_the_roots_are_refused_also_through_links(
    admin: Actor, base: Path, tmp_path: Path, console: ConsoleSettings, settings: Any
) -> None:
    inside = tmp_path / "allowed"
    inside.mkdir()
    (inside / "link").symlink_to(base)
    settings.CONSOLE = replace(console, repository_roots=(str(inside),))
    for path in (base, inside / "link", inside / ".." / "digits"):
        with pytest.raises(InvalidRequest, match="outside"):
            registration.register(admin, "digits", str(path))


def test_a_model_moves_with_the_root_it_lies_in(
    admin: Actor, base: Path, tmp_path: Path, console: ConsoleSettings, settings: Any, browser: Browser
) -> None:
    old, new = tmp_path / "old", tmp_path / "new"
    old.mkdir()
    base.rename(old / "digits")
    settings.CONSOLE = replace(console, repository_roots=(f"here={old}",))
    registration.register(admin, "digits", str(old / "digits"))
    assert [v.path for v in published().versions] == [f"{old}/digits/1", f"{old}/digits/2"]
    old.rename(new)
    settings.CONSOLE = replace(console, repository_roots=(f"here={new}",))
    document = lookup.find("digits").document()
    assert [v.path for v in document.versions] == [f"{new}/digits/1", f"{new}/digits/2"]
    reported = browser("viewer").get("/api/models/digits").json()
    assert reported["base_path"] == f"{new}/digits"
    assert {v["path"] for v in reported["versions"]} == {f"{new}/digits/1", f"{new}/digits/2"}


def test_an_absolute_path_is_kept_relative_once_its_root_has_a_name(
    admin: Actor, base: Path, tmp_path: Path, console: ConsoleSettings, settings: Any
) -> None:
    registration.register(admin, "digits", str(base))
    before = lookup.find("digits").document()
    settings.CONSOLE = replace(console, repository_roots=(f"here={tmp_path}",))
    roots.relocate()
    model = lookup.find("digits")
    assert model.document() == before
    assert model.base_path == "here:digits"
    assert {v.path for v in model.versions.all()} == {"here:digits/1", "here:digits/2"}
    settings.CONSOLE = console  # and where the name is taken away again, nothing is guessed
    roots.relocate()
    assert lookup.find("digits").document().versions[0].path == "here:digits/1"


@pytest.mark.parametrize("listed", [("a=/x", "a=/y"), ("uploads=/x",), ("a b=/x",)])
def test_roots_whose_names_say_nothing_are_refused(console: ConsoleSettings, listed: tuple[str, ...]) -> None:
    assert list(replace(console, repository_roots=listed).problems())
    assert not list(replace(console, repository_roots=("a=/x", "b=/y", "/z", "/a=b")).problems())


@pytest.mark.parametrize("name", ["", "../x", "-a", "a b", "a" * 101, "a/b"])
def test_names_that_would_not_fit_the_wire_are_refused(admin: Actor, base: Path, name: str) -> None:
    with pytest.raises(InvalidRequest):
        registration.register(admin, name, str(base))


@pytest.mark.parametrize("name", ["models", "Health", "stats"])
def test_names_that_paths_of_the_api_need_are_refused_with_the_reason(admin: Actor, base: Path, name: str) -> None:
    with pytest.raises(InvalidRequest, match="it stands in paths of the API"):
        registration.register(admin, name, str(base))


def test_a_model_that_has_such_a_name_keeps_it(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base / "1"))
    ServedModel.objects.filter(name="digits").update(name="stats")
    registration.register(admin, "stats", str(base))
    assert [version.version for version in published("stats").versions] == [1, 2]


def test_settings_are_published_and_audited_before_and_after(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    modelsettings.change_settings(
        admin,
        "digits",
        {"replicas": 0, "max_batch_size": 8, "rows_independent": True, "timeout_s": 2.5},
        reason="quiet hours",
    )
    document = published()
    assert (document.replicas, document.batching.max_size, document.limits.timeout_s) == (0, 8, 2.5)
    assert document.batching.rows_independent
    entry = AuditEntry.objects.get(act="models.settings")
    assert ("replicas", 1, 0) in entry.changes
    assert entry.reason == "quiet hours"


@pytest.mark.parametrize(
    "changes",
    [
        {"replicas": -1},
        {"max_batch_size": 0},
        {"timeout_s": 0},
        {"name": "other"},
        {"replicas": None},
        {"max_payload_bytes": 1},
    ],
)
def test_settings_that_make_no_sense_change_nothing(admin: Actor, base: Path, changes: dict[str, Any]) -> None:
    registration.register(admin, "digits", str(base))
    count = OutboxEntry.objects.count()
    with pytest.raises(InvalidRequest):
        modelsettings.change_settings(admin, "digits", changes)
    assert OutboxEntry.objects.count() == count
    assert AuditEntry.objects.get(act="models.settings").result == "failed"


def test_default_version_and_labels_move_and_go_back(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    targets.set_default(admin, "digits", 1)
    targets.set_label(admin, "digits", "stable", 1)
    targets.set_label(admin, "digits", "canary", 2)
    assert (published().default_version, published().labels) == (1, {"stable": 1, "canary": 2})
    targets.set_label(admin, "digits", "stable", 2)
    targets.set_label(admin, "digits", "canary", None)
    targets.set_default(admin, "digits", None)
    assert (published().default_version, published().labels) == (2, {"stable": 2})
    with pytest.raises(NotFound):
        targets.set_label(admin, "digits", "stable", 9)
    with pytest.raises(NotFound):
        targets.set_default(admin, "digits", 9)
    with pytest.raises(NotFound):
        targets.set_label(admin, "digits", "canary", None)


def test_a_model_has_a_bounded_number_of_labels(admin: Actor, base: Path) -> None:
    model = registration.register(admin, "digits", str(base))
    version = model.versions.get(number=1)
    VersionLabel.objects.bulk_create(VersionLabel(model=model, name=f"l{n}", version=version) for n in range(100))
    with pytest.raises(Conflict, match="has 100 labels"):
        targets.set_label(admin, "digits", "stable", 1)
    targets.set_label(admin, "digits", "l7", 2)
    assert published().labels["l7"] == 2


def test_no_label_is_given_to_a_version_whose_load_failed(
    admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.register(admin, "digits", str(base))
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    feed.view.rollouts.show("digits", published(), modeldocs.Serving(publication=1, default=1, failed=(2,)))
    with pytest.raises(Conflict, match="version 2 of model digits, which is not currently available for inference"):
        targets.set_label(admin, "digits", "canary", 2)
    targets.set_label(admin, "digits", "canary", 1)
    feed.view.rollouts.show("digits", published(), modeldocs.Serving(publication=2, default=2))
    targets.set_label(admin, "digits", "canary", 2)
    assert published().labels == {"canary": 2}


def test_a_disabled_model_is_published_as_such(admin: Actor, base: Path) -> None:
    registration.register(admin, "digits", str(base))
    modelsettings.set_enabled(admin, "digits", is_enabled=False, reason="broken")
    assert not published().is_enabled
    modelsettings.set_enabled(admin, "digits", is_enabled=True)
    assert published().is_enabled


def test_the_page_says_what_requests_get_while_a_version_is_made_ready(
    browser: Browser, admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.register(admin, "digits", str(base))
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    client = browser("viewer")

    def shown(**record: Any) -> str:
        feed.view.rollouts.show("digits", published(), modeldocs.Serving(publication=1, **record))
        return " ".join(client.get("/models/digits").content.decode().split())

    assert "get version 1: version 2 is made ready" in shown(default=1)
    assert "get version 1: version 2 does not load" in shown(default=1, failed=(2,))
    assert "get version" not in shown(default=2)


def test_the_pages_do_what_the_services_do(browser: Browser, base: Path) -> None:
    client = browser("model manager")
    new = {"name": "digits", "path": str(base), "is_default": "new"}
    assert submit(client, "/models/-/register", new).status_code == 302
    assert b"digits" in client.get("/models").content
    page = client.get("/models/digits").content
    assert b"serving_default" in page
    assert submit(client, "/models/digits/replicas", {"replicas": "3"}).status_code == 302
    form = {
        "description": "d",
        "replicas": "2",
        "max_batch_size": "16",
        "max_batch_delay_ms": "1.5",
        "max_delivery": "5",
        "timeout_s": "60",
        "deadline_s": "900",
        "sync_wait_s": "30",
        "max_queue": "10000",
        "max_payload_bytes": "67108864",
    }
    assert submit(client, "/models/digits/settings", form).status_code == 302
    assert submit(client, "/models/digits/settings", {**form, "replicas": "-1"}).status_code == 400
    assert submit(client, "/models/digits/default", {"version": "1"}).status_code == 302
    assert submit(client, "/models/digits/label", {"label": "stable", "version": "1"}).status_code == 302
    assert submit(client, "/models/digits/enabled", {"enabled": "0"}).status_code == 302
    assert submit(client, "/models/digits/pause", {"paused": "1", "reason": "x"}).status_code == 302
    assert client.get("/models/digits").status_code == 200
    document = published()
    assert (document.replicas, document.batching.max_delay_ms, document.is_enabled) == (2, 1.5, False)
    assert not document.batching.rows_independent, "unless somebody says so"
    assert (document.default_version, document.labels) == (1, {"stable": 1})
    assert OutboxEntry.objects.filter(bucket="desired").count() == 1


def test_an_unknown_model_is_not_found(browser: Browser) -> None:
    client = browser("admin")
    assert client.get("/models/nothing").status_code == 404
    assert submit(client, "/models/nothing/replicas", {"replicas": "1"}).status_code == 404
    assert not ServedModel.objects.exists()
    assert not ModelVersion.objects.exists()


@pytest.mark.parametrize(
    ("chosen_before", "is_default", "serves", "is_pinned"),
    [
        (None, None, 2, False),  # as it always was: the highest
        (None, True, 2, False),
        (None, False, 1, True),
        (1, None, 1, True),
        (1, True, 2, True),
        (1, False, 1, True),
    ],
)
def test_who_adds_a_version_says_whether_requests_get_it(
    admin: Actor, base: Path, chosen_before: int | None, is_default: bool | None, serves: int, is_pinned: bool
) -> None:
    registration.register(admin, "digits", str(base / "1"), is_default=False)  # a first one is, anyhow
    assert published().default_version == 1
    assert lookup.find("digits").default_version is None
    targets.set_default(admin, "digits", chosen_before)
    registration.register(admin, "digits", str(base), is_default=is_default)
    assert published().default_version == serves
    assert (lookup.find("digits").default_version is not None) is is_pinned
    entry = AuditEntry.objects.filter(act="models.register").latest("pk")
    assert (entry.before["default"], entry.after["default"]) == (1, serves)


def test_settings_given_at_a_registration_stand_in_its_audit_entry(admin: Actor, base: Path) -> None:
    changes = {"rows_independent": True, "max_batch_size": 8}
    registration.register(admin, "digits", str(base), description="Digits.", changes=changes)
    entry = AuditEntry.objects.get(act="models.register")
    assert entry.after == {
        "path": str(base),
        "versions": [1, 2],
        "description": "Digits.",
        "rows_independent": True,
        "max_batch_size": 8,
        "default": 2,
    }


def test_the_form_asks_which_version_is_the_default_and_the_page_says_it(
    browser: Browser, admin: Actor, base: Path
) -> None:
    registration.register(admin, "digits", str(base / "1"))
    client = browser("model manager")
    form = {"name": "digits", "path": str(base)}
    asked = submit(client, "/models/-/register", form)
    assert (asked.status_code, b"id_is_default_error" in asked.content) == (400, True)
    answer = submit(client, "/models/-/register", {**form, "is_default": "old"})
    said = client.get(answer["Location"]).content
    assert b"Requests that name no version get version 1" in said
    proposed = client.get("/models/-/upload?name=digits").content.decode()
    assert re.search(r'value="old"[^>]*checked', proposed)  # version 1 was chosen, so it stays proposed
    moved = submit(client, "/models/digits/default", {"version": "2"})
    assert b"Requests that name no version get version 2" in client.get(moved["Location"]).content


@pytest.mark.parametrize("name", ["upload", "register", "new", "settings", "-"])
def test_no_name_a_model_may_have_hides_its_page(browser: Browser, admin: Actor, base: Path, name: str) -> None:
    client = browser("admin")
    if name == "-":
        with pytest.raises(InvalidRequest):
            registration.register(admin, name, str(base))
        return
    registration.register(admin, name, str(base))
    page = client.get(f"/models/{name}").content.decode()
    assert f"<h1>{name}</h1>" in page
    for part in ("settings", "replicas", "move", "pause"):
        assert f'"/models/{name}/{part}' in page
    assert client.get(f"/models/{name}/settings").status_code == 200
    assert client.get("/models/-/upload").status_code == 200


def resident(version: int, state: str) -> workerdocs.Residency:
    return workerdocs.Residency(model="digits", version=version, state=state)


def test_list_page_and_rest_say_alike_how_the_fleet_serves_a_model_now(
    admin: Actor, base: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    registration.register(admin, "digits", str(base))
    OutboxEntry.objects.update(published_at=timezone.now())
    feed, client = Feed(Wire()), browser("admin")
    monkeypatch.setattr(running, "feed", feed)
    monkeypatch.setattr(Feed, "is_blind", False)

    def shown() -> tuple[str, int | None]:
        """The condition, and the version that requests get, the same wherever they stand."""
        listed, page = (client.get(url).content.decode() for url in ("/models", "/models/digits"))
        over_rest = client.get("/api/models").json()["models"][0]
        label, served = over_rest["condition"], over_rest["served_version"]
        for text in (listed, page):
            assert re.search(rf'class="state" data-state="[a-z]+"[^>]*>{re.escape(label)}</span>', text), label
            assert 'data-state="enabled"' not in text
        said = str(served) if served is not None else "?" if label == "not known now" else "none"
        assert f"<dt>Serves</dt><dd>{label if said == '?' else said} " in page
        assert f'data-label="Serves" class="num">{said}<' in listed
        return label, served

    assert shown() == ("being published", 2)
    document = published()
    feed.view.model("digits", document, T0)
    assert shown() == ("no device", 2)
    stuck = replace(resident(2, "fetching"), error="The store is away.")
    feed.view.presence("w1", worker("w1", token=7, models=(stuck,)), T0)
    assert shown() == ("cannot be fetched", 2)
    assert all("The store is away" in client.get(url).content.decode() for url in ("/models", "/models/digits"))
    feed.view.presence("w1", worker("w1", token=7, models=(resident(2, "failed"),)), T0)
    assert shown() == ("does not load", None), "requests get 503"
    feed.view.rollouts.show("digits", document, modeldocs.Serving(publication=1, default=1, failed=(2,)))
    feed.view.presence("w1", worker("w1", token=7, models=(resident(1, "ready"), resident(2, "failed"))), T0 + 1)
    assert shown() == ("ready", 1)
    assert "2 does not load" in client.get("/models").content.decode()
    feed.view.queues.desired("digits", steering.Desired(is_paused=True, actor="ada"), T0 + 2)
    assert shown() == ("paused", 1)
    monkeypatch.setattr(Feed, "is_blind", True)
    assert shown() == ("not known now", None)
