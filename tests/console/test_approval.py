"""Versions with operations that need a person's word, and the list that changes."""

from collections.abc import Callable
from pathlib import Path

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import approval, judging, lookup, registration
from console.catalog.models import ModelVersion
from console.config import ConsoleSettings
from signalbox.program.errors import Forbidden
from tests.console.conftest import submit
from tests.console.test_archives import archive_of
from tests.rigs.hostilemodel import hostile
from tests.unit.workers.runner.test_model_gate import model, node

Browser = Callable[[str], Client]


def test_operations_that_need_a_persons_word_serve_only_when_another_one_gave_it(
    browser: Browser, console: ConsoleSettings
) -> None:
    client = browser("model manager")
    archive = SimpleUploadedFile("model.tar.gz", archive_of(hostile()))
    answer = submit(client, "/models/-/upload", {"name": "tricky", "archive": archive, "is_default": "new"})
    assert answer.status_code == 302, answer.content
    version = ModelVersion.objects.get()
    assert {"ReadFile", "WriteFile", "RegisterDataset"} <= version.listed_ops.keys()
    document = lookup.find("tricky").document()
    assert (document.versions, document.default_version) == ((), None)
    page = client.get("/models/tricky").content
    for words in (b"waits for approval", b"ReadFile", b"reads files"):
        assert words in page
    assert submit(client, "/models/tricky/default", {"version": "1"}).status_code == 409
    assert submit(client, "/models/tricky/label", {"label": "x", "version": "1"}).status_code == 409
    assert submit(client, "/models/tricky/approve", {"version": "1"}).status_code == 403
    refused = AuditEntry.objects.filter(act="models.approve").latest("id")
    assert (refused.result, refused.actor_name) == (AuditEntry.FAILED, version.added_by)
    assert not lookup.find("tricky").document().versions
    other = browser("admin")
    assert submit(other, "/models/tricky/approve", {"version": "1"}).status_code == 302
    document = lookup.find("tricky").document()
    assert [v.version for v in document.versions] == [document.default_version] == [1]
    version.refresh_from_db()
    entry = AuditEntry.objects.filter(act="models.approve").latest("id")
    assert (entry.result, entry.actor_name) == (AuditEntry.DONE, version.approved_by)
    assert entry.after["approved_operations"] == version.listed_ops
    assert submit(other, "/models/tricky/approve", {"version": "1"}).status_code == 409


def test_a_new_version_that_waits_for_approval_changes_nothing_of_what_serves(
    admin: Actor, console: ConsoleSettings, tmp_path: Path
) -> None:
    graphs = {1: [node("y", "Const")], 2: [node("x", "Placeholder"), node("y", "MyFastOp", "x")]}
    for number, graph in graphs.items():
        folder = tmp_path / "mine" / str(number)
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(model(graph))
        registration.register(admin, "mine", str(folder), is_default=True)
    found = lookup.find("mine")
    assert ModelVersion.objects.get(number=2).unknown_ops == ["MyFastOp"]
    assert [v.version for v in found.document().versions] == [found.serving_version] == [1]
    with pytest.raises(Forbidden, match="a person who did not add"):
        approval.approve(admin, "mine", 2)
    with pytest.raises(Forbidden, match="a person who did not add"):
        approval.approve(system_actor("command"), "mine", 2)


@pytest.mark.parametrize(("is_default", "served"), [(False, 1), (None, 2)])
def test_the_default_stays_when_the_version_that_was_added_beside_it_is_approved(
    cast: dict[str, User], console: ConsoleSettings, tmp_path: Path, is_default: bool | None, served: int
) -> None:
    graphs = {1: [node("y", "Const")], 2: [node("x", "Placeholder"), node("y", "MyFastOp", "x")]}
    for number, graph in graphs.items():
        folder = tmp_path / "mine" / str(number)
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(model(graph))
        registration.register(Actor(user=cast["model manager"]), "mine", str(folder), is_default=is_default)
    approval.approve(Actor(user=cast["admin"]), "mine", 2)
    assert lookup.find("mine").document().default_version == served


def test_a_version_is_judged_anew_when_the_list_has_changed_and_serves_until_a_person_says_no(
    browser: Browser, console: ConsoleSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "old" / "1"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(model([node("x", "Placeholder"), node("y", "ReadFile", "x")]))
    registration.register(system_actor("command"), "old", str(folder))
    assert judging.judge_anew() == 0, "it was judged by the list of today"
    ModelVersion.objects.update(rules="an older list", listed_ops={})  # as it stood in the database
    assert judging.judge_anew() == 1
    version = ModelVersion.objects.get()
    assert version.raised_ops.keys() == {"ReadFile"}
    assert [v.version for v in lookup.find("old").document().versions] == [1]
    entry = AuditEntry.objects.latest("id")
    assert (entry.actor_name, entry.result) == ("system:judging", AuditEntry.DONE)
    assert entry.after == {"version": 1, "would_need_approval": version.raised_ops}
    assert judging.judge_anew() == 0
    client = browser("admin")
    assert b"would need approval today" in client.get("/models/old").content
    assert submit(client, "/models/old/approve", {"version": "1"}).status_code == 302
    version.refresh_from_db()
    assert (version.listed_ops.keys(), version.raised_ops) == ({"ReadFile"}, {})
    ModelVersion.objects.update(rules="")
    assert judging.judge_anew() == 1
    version.refresh_from_db()
    assert not version.raised_ops, "a person has approved that"


def test_an_operator_that_is_a_program_approves_nothing(
    cast: dict[str, User], console: ConsoleSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "mine" / "1"
    folder.mkdir(parents=True)
    graph = [node("x", "Placeholder"), node("y", "MyFastOp", "x")]
    (folder / "saved_model.pb").write_bytes(model(graph))
    registration.register(Actor(user=cast["model manager"]), "mine", str(folder))
    program = cast["admin"]
    program.is_service = True
    with pytest.raises(Forbidden, match="a person who did not add"):
        approval.approve(Actor(user=program), "mine", 1)
    assert not lookup.find("mine").document().versions
