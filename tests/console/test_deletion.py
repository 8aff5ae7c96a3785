"""Versions that are deleted: what refuses it, what is published, tombstones, and the way back."""

import io
import tarfile
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import pytest
from django.test import Client
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import inspection, lookup, modelsettings, registration, targets, uploads, withdrawal
from console.catalog.models import ModelVersion, ServedModel
from console.catalog.versions import Candidate
from console.config import ConsoleSettings
from console.controller import leftovers
from console.deletion import leaving, listing, versions, wholemodels
from console.feed.feed import Feed
from console.feed.running import running
from console.fleet import services as fleet
from console.fleet.models import DesiredState
from console.noticing import rows
from console.outbox.models import OutboxEntry
from console.repositories.models import Repository
from signalbox.program.errors import Conflict, NotFound
from signalbox.program.settings import Wire
from signalbox.wire.modeldocs import Serving
from signalbox.wire.names import Bucket
from tests.console.conftest import FOUND, Call, submit
from tests.console.test_jobs import make
from tests.console.test_models import OTHER, brought, published


@pytest.fixture
def digits(admin: Actor, base: Path) -> ServedModel:
    """A model with versions 1 and 2; 2 is the default, as the highest."""
    return registration.register(admin, "digits", str(base))


def numbers(name: str = "digits") -> list[int]:
    """Versions that are published."""
    return [version.version for version in published(name).versions]


def too_late() -> None:
    """A day and a second pass after all deletions."""
    for every in (ModelVersion.with_deleted, ServedModel.with_deleted, Repository.with_deleted):
        for row in every.exclude(deleted_at=None):
            assert row.deleted_at is not None
            every.filter(pk=row.pk).update(deleted_at=row.deleted_at - timedelta(days=1, seconds=1))


def archive() -> io.BytesIO:
    """A tar with something that is called a SavedModel."""
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as tar:
        info = tarfile.TarInfo("saved_model.pb")
        info.size = 1
        tar.addfile(info, io.BytesIO(b"x"))
    made.seek(0)
    return made


@pytest.mark.usefixtures("digits")
def test_a_deleted_version_is_out_of_the_catalog_at_once_and_comes_back_by_one_act(admin: Actor) -> None:
    versions.delete_version(admin, "digits", 1, reason="wrong labels")
    assert numbers() == [2]
    assert [version.number for version in lookup.find("digits").versions.all()] == [2]
    with pytest.raises(NotFound, match="Version 1 of digits was deleted by admin"):
        lookup.find_version("digits", "1")
    entry = AuditEntry.objects.filter(act="models.delete").latest("pk")
    assert (entry.target, entry.reason, entry.after["deleted"]) == ("digits", "wrong labels", 1)
    (one,) = listing.undoable("digits")
    assert (one.version, one.deleted_by, one.until - one.deleted_at) == (1, admin.name, timedelta(days=1))

    versions.undo_version(admin, "digits", 1)
    assert numbers() == [1, 2]
    assert not listing.undoable()
    assert lookup.find_version("digits", "1").digest == FOUND.digest


@pytest.mark.usefixtures("digits")
def test_the_highest_version_may_be_deleted_where_another_serves(admin: Actor) -> None:
    versions.delete_version(admin, "digits", 2)
    assert published().default_version == 1
    with pytest.raises(Conflict, match="Version 1 is the only one of digits that serves"):
        versions.delete_version(admin, "digits", 1)


@pytest.mark.usefixtures("digits")
def test_what_needs_a_version_is_named_with_the_mend(admin: Actor) -> None:
    targets.set_default(admin, "digits", 1)
    with pytest.raises(Conflict, match=r"Version 1 is the default version of digits. Make another one the default"):
        versions.delete_version(admin, "digits", 1)
    targets.set_default(admin, "digits", 2)
    targets.set_label(admin, "digits", "stable", 1)
    with pytest.raises(Conflict, match=r"label stable get version 1. Move the label"):
        versions.delete_version(admin, "digits", 1)
    targets.set_label(admin, "digits", "stable", None)
    make(1, model="digits", version=1, state="running")
    with pytest.raises(Conflict, match=r"An open job needs it: .*cancel it"):
        versions.delete_version(admin, "digits", 1)
    make(2, model="digits", version=1, state="queued")
    with pytest.raises(Conflict, match="2 open jobs need it"):
        versions.delete_version(admin, "digits", 1)
    assert numbers() == [1, 2]
    assert AuditEntry.objects.filter(act="models.delete", result=AuditEntry.FAILED).count() == 4


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize(
    ("record", "why"),
    [
        (Serving(publication=1, default=1, failed=(2,)), "version 2 failed to load"),
        (Serving(publication=1, default=1), "version 2 is not ready yet"),
    ],
)
def test_a_version_is_not_deleted_while_requests_get_it_for_want_of_another(
    admin: Actor, monkeypatch: pytest.MonkeyPatch, record: Serving, why: str
) -> None:
    feed = Feed(Wire())
    monkeypatch.setattr(running, "feed", feed)
    feed.view.rollouts.show("digits", published(), record)
    with pytest.raises(Conflict, match=f"without a version still get version 1 of digits: {why}"):
        versions.delete_version(admin, "digits", 1)
    feed.view.rollouts.show("digits", published(), Serving(publication=1, default=2))
    versions.delete_version(admin, "digits", 1)
    assert numbers() == [2]


@pytest.mark.usefixtures("digits")
def test_jobs_that_have_ended_or_run_another_version_do_not_need_it(admin: Actor) -> None:
    make(1, model="digits", version=1, state="succeeded")
    make(2, model="digits", version=2, state="queued")
    make(3, model="others", version=1, state="queued")
    versions.delete_version(admin, "digits", 1)
    assert numbers() == [2]


@pytest.mark.usefixtures("digits")
def test_a_version_is_deleted_once_and_undone_once(admin: Actor) -> None:
    versions.delete_version(admin, "digits", 1)
    with pytest.raises(NotFound, match=r"Version 1 of digits was deleted by admin at"):
        versions.delete_version(admin, "digits", 1)
    versions.undo_version(admin, "digits", 1)
    with pytest.raises(NotFound, match="version 1 of digits is not deleted"):
        versions.undo_version(admin, "digits", 1)
    with pytest.raises(NotFound, match="has no version 9"):
        versions.delete_version(admin, "digits", 9)


@pytest.mark.usefixtures("digits")
def test_a_deletion_is_undone_within_a_day_and_not_later(admin: Actor) -> None:
    versions.delete_version(admin, "digits", 1)
    too_late()
    assert not listing.undoable()
    with pytest.raises(Conflict, match="could be undone until"):
        versions.undo_version(admin, "digits", 1)


@pytest.mark.usefixtures("digits")
@pytest.mark.parametrize("is_late", [False, True])
def test_nobody_registers_the_number_of_a_deleted_version_again(
    admin: Actor, base: Path, monkeypatch: pytest.MonkeyPatch, is_late: bool
) -> None:
    versions.delete_version(admin, "digits", 1)
    if is_late:
        too_late()
    for found in (FOUND, OTHER):  # neither with the same bytes nor with others
        monkeypatch.setattr(inspection, "inspect", lambda _, found=found: found)
        with pytest.raises(Conflict, match=r"Version 1 of digits was deleted by admin .*is not used again"):
            registration.register(admin, "digits", str(base / "1"))
        with pytest.raises(Conflict, match="is not used again"):
            uploads.upload(admin, "digits", archive(), number=1)
    assert uploads.upload(admin, "digits", archive()).number == 3
    assert numbers() == [2, 3]


@pytest.mark.usefixtures("digits")
def test_the_number_of_a_deleted_version_does_not_come_next(admin: Actor) -> None:
    versions.delete_version(admin, "digits", 2)
    assert uploads.upload(admin, "digits", archive()).number == 3


@pytest.mark.usefixtures("digits")
def test_a_folder_with_a_deleted_version_is_registered_without_it(admin: Actor, base: Path) -> None:
    versions.delete_version(admin, "digits", 1)
    (base / "7").mkdir()
    (base / "7" / "saved_model.pb").write_bytes(b"x")
    registration.register(admin, "digits", str(base))
    assert numbers() == [2, 7]


def test_a_repository_s_version_is_neither_registered_again_nor_restored(admin: Actor) -> None:
    brought(1, 2)
    repository = Repository.objects.get(name="store")
    versions.delete_version(admin, "digits", 1)
    found = replace(FOUND, digest="")
    actor = system_actor("repository:store")
    with pytest.raises(Conflict, match="is not used again"):
        registration.register_found(
            actor, repository, "digits", "s3://models/digits", {1: Candidate("s3://models/digits/1", found, "other")}
        )
    withdrawal.restore(actor, repository, "digits", [1], "Its files are back.")
    assert numbers() == [2]
    assert withdrawal.unpinned().keys() == {("digits", 2)}


@pytest.mark.usefixtures("digits")
def test_the_model_s_page_deletes_and_brings_back(browser: Callable[[str], Client]) -> None:
    manager = browser("model manager")
    page = manager.get("/models/digits").content.decode()
    assert "/models/digits/versions/1/delete" in page
    done = submit(manager, "/models/digits/versions/1/delete", {"reason": "old"}, follow=True)
    assert done.status_code == 200
    page = done.content.decode()
    assert "/models/digits/versions/1/undo" in page
    assert "version 1 of digits" in manager.get("/models/-/deleted").content.decode()
    assert "/undo" not in browser("viewer").get("/models/digits").content.decode()
    submit(manager, "/models/digits/versions/1/undo")
    assert numbers() == [1, 2]
    assert "Nothing to bring back" in manager.get("/models/-/deleted").content.decode()


@pytest.mark.usefixtures("digits")
def test_a_program_deletes_and_brings_back(call: Callable[[str], Call]) -> None:
    send = call("model manager")
    answer = send("delete", "models/digits/versions/1")
    assert (answer.status_code, [v["number"] for v in answer.json()["versions"]]) == (200, [2])
    (one,) = send("get", "deleted").json()
    assert (one["kind"], one["name"], one["version"]) == ("version", "digits", 1)
    assert send("delete", "models/digits/versions/1").status_code == 404
    assert send("delete", "models/digits/versions/2").status_code == 409
    assert send("delete", "models/digits/versions/x").status_code == 400
    answer = send("post", "models/digits/versions/1/undo", {"reason": "a mistake"})
    assert [v["number"] for v in answer.json()["versions"]] == [2, 1]
    assert call("operator")("delete", "models/digits/versions/1").status_code == 403


def test_the_files_of_a_deleted_upload_go_when_it_cannot_be_undone_any_more(
    admin: Actor, console: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    for _ in range(3):
        uploads.upload(admin, "mine", archive())
    folder = console.repository / "mine"
    versions.delete_version(admin, "mine", 1)
    leaving.sweep()
    assert (folder / "1" / "saved_model.pb").exists()
    too_late()
    versions.delete_version(admin, "mine", 2)
    leaving.sweep()
    assert sorted(path.name for path in folder.iterdir()) == ["2", "3"]
    assert not list((console.repository / ".staging").iterdir())
    with pytest.raises(Conflict, match="could be undone until"):
        versions.undo_version(admin, "mine", 1)
    with pytest.raises(Conflict, match="is not used again"):
        uploads.upload(admin, "mine", archive(), number=1)
    versions.undo_version(admin, "mine", 2)
    assert numbers("mine") == [2, 3]


def test_an_undo_and_the_sweep_never_both_happen(
    admin: Actor, console: ConsoleSettings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    for _ in range(2):
        uploads.upload(admin, "mine", archive())
    versions.delete_version(admin, "mine", 1)
    too_late()
    began = leaving._give_up

    def undone_meanwhile(pk: int, staging: Path) -> None:
        ModelVersion.with_deleted.filter(pk=pk).update(deleted_at=None)  # by a console with another clock
        began(pk, staging)

    monkeypatch.setattr(leaving, "_give_up", undone_meanwhile)
    leaving.sweep()
    assert (console.repository / "mine" / "1" / "saved_model.pb").exists()
    monkeypatch.undo()
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    versions.delete_version(admin, "mine", 1)
    too_late()
    leaving.sweep()
    ModelVersion.with_deleted.filter(number=1).update(deleted_at=timezone.now())  # as a clock that is behind has it
    with pytest.raises(Conflict, match="files of version 1 of mine are gone"):
        versions.undo_version(admin, "mine", 1)


def test_files_that_the_console_did_not_write_are_never_touched(
    admin: Actor, base: Path, console: ConsoleSettings, tmp_path: Path
) -> None:
    registration.register(admin, "digits", str(base))
    versions.delete_version(admin, "digits", 1)
    lies = tmp_path / "theirs" / "half" / "1"
    lies.mkdir(parents=True)
    (lies / "saved_model.pb").write_bytes(b"x")
    repository = Repository.objects.create(name="theirs", url=f"file://{lies.parents[1]}", added_by="a", changed_by="a")
    new = {number: Candidate(str(lies), FOUND, "m") for number in (1, 2)}
    registration.register_found(system_actor("repository:theirs"), repository, "half", str(lies.parent), new)
    versions.delete_version(admin, "half", 1)
    # By its path somebody serves what was uploaded; and a path leads out of the folder of uploads.
    for _ in range(2):
        uploads.upload(admin, "mine", archive())
    registration.register(admin, "shared", str(console.repository / "mine" / "1"))
    versions.delete_version(admin, "mine", 1)
    (console.repository / "linked").mkdir()
    (console.repository / "linked" / "1").symlink_to(lies)
    registration.register(admin, "linked", str(base))
    ModelVersion.objects.filter(model__name="linked", number=1).update(source="upload", path="uploads:linked/1")
    versions.delete_version(admin, "linked", 1)
    too_late()
    leaving.sweep()
    for folder in (base / "1", lies, console.repository / "mine" / "1"):
        assert (folder / "saved_model.pb").exists()
    assert lookup.find_version("shared", "1").may_serve


def removed(name: str = "digits") -> bool:
    """Whether the last decision takes the model out of the catalog."""
    return not OutboxEntry.objects.filter(bucket="models", key=name).latest("pk").body


@pytest.mark.usefixtures("digits")
def test_a_deleted_model_is_out_of_the_catalog_and_comes_back_as_it_was(admin: Actor) -> None:
    targets.set_default(admin, "digits", 1)
    targets.set_label(admin, "digits", "stable", 2)
    modelsettings.change_settings(admin, "digits", {"replicas": 3})
    uploads.upload(admin, "digits", archive())
    versions.delete_version(admin, "digits", 3)
    before = published()
    wholemodels.delete_model(admin, "digits", reason="retired")
    assert removed()
    with pytest.raises(NotFound, match="Model digits was deleted by admin at"):
        lookup.find("digits")
    with pytest.raises(NotFound):
        modelsettings.set_enabled(admin, "digits", is_enabled=False)
    (one,) = listing.undoable()
    assert (one.kind, one.name) == ("model", "digits")
    wholemodels.undo_model(admin, "digits")
    assert replace(published(), updated_at=0.0) == replace(before, updated_at=0.0)
    assert [(one.kind, one.version) for one in listing.undoable()] == [("version", 3)], "what was deleted before stays"
    with pytest.raises(NotFound, match="model digits is not deleted"):
        wholemodels.undo_model(admin, "digits")


@pytest.mark.usefixtures("digits")
def test_a_model_is_not_deleted_while_an_open_job_needs_it(admin: Actor) -> None:
    make(1, model="digits", version=1, state="queued")
    make(2, model="others", version=1, state="queued")
    with pytest.raises(Conflict, match="An open job needs it"):
        wholemodels.delete_model(admin, "digits")
    assert not removed()


@pytest.mark.usefixtures("digits")
def test_a_version_of_a_deleted_model_is_neither_deleted_nor_undone_alone(admin: Actor) -> None:
    wholemodels.delete_model(admin, "digits")
    for act in (versions.delete_version, versions.undo_version):
        with pytest.raises(NotFound, match="Model digits was deleted"):
            act(admin, "digits", 1)


@pytest.mark.usefixtures("digits")
def test_the_name_of_a_deleted_model_is_taken_again_after_the_day_without_anything_of_the_old_one(
    admin: Actor, base: Path
) -> None:
    targets.set_default(admin, "digits", 2)
    targets.set_label(admin, "digits", "stable", 1)
    modelsettings.change_settings(admin, "digits", {"replicas": 3})
    wholemodels.delete_model(admin, "digits")
    for take in (
        lambda: registration.register(admin, "digits", str(base)),
        lambda: uploads.upload(admin, "digits", archive()),
        lambda: brought(7),
    ):
        with pytest.raises(Conflict, match=r"Its name can be taken again from .* Undo the deletion"):
            take()
    too_late()
    with pytest.raises(Conflict, match="could be undone until"):
        wholemodels.undo_model(admin, "digits")
    with pytest.raises(Conflict, match="is not used again"):
        registration.register(admin, "digits", str(base))
    (base / "7").mkdir()
    (base / "7" / "saved_model.pb").write_bytes(b"x")
    registration.register(admin, "digits", str(base), changes={"max_queue": 5})
    document = published()
    assert ([v.version for v in document.versions], document.labels, document.replicas) == ([7], {}, 1)
    assert (document.default_version, document.limits.max_queue) == (7, 5)
    assert not listing.undoable()
    assert uploads.upload(admin, "digits", archive()).number == 8


@pytest.mark.usefixtures("digits")
def test_what_was_decided_of_a_deleted_model_is_not_of_a_later_one_with_its_name(admin: Actor, base: Path) -> None:
    fleet.pause(admin, "digits", is_paused=True)
    fleet.prefetch(admin, "digits", until=timezone.now() + timedelta(days=3))
    wholemodels.delete_model(admin, "digits")
    leftovers.forget()
    assert DesiredState.objects.count() == 2, "an undo brings them back too"
    too_late()
    (base / "7").mkdir()
    (base / "7" / "saved_model.pb").write_bytes(b"x")
    registration.register(admin, "digits", str(base))
    leftovers.forget()
    assert not DesiredState.objects.exists()
    gone = OutboxEntry.objects.filter(bucket=Bucket.DESIRED.value, body="").values_list("key", flat=True)
    assert sorted(gone) == ["model.digits", "prefetch.digits"]
    fleet.pause(admin, "digits", is_paused=True)
    leftovers.forget()
    assert DesiredState.objects.count() == 1


def test_a_repository_does_not_bring_a_deleted_model_back_and_another_one_may_take_its_name(admin: Actor) -> None:
    brought(1)
    wholemodels.delete_model(admin, "digits")
    repository = Repository.objects.get(name="store")
    assert "digits" in rows.known(repository).gone
    other = Repository.objects.create(name="other", url="s3://other", added_by="ann", changed_by="ann")
    assert "digits" in rows.known(other).gone
    too_late()
    assert "digits" in rows.known(repository).gone
    with pytest.raises(Conflict, match="Its repository does not bring it back"):
        brought(1, 2)
    assert "digits" not in rows.known(other).gone
    found = Candidate("s3://other/digits/2", replace(FOUND, digest=""), "m")
    registration.register_found(system_actor("repository:other"), other, "digits", "s3://other/digits", {2: found})
    assert numbers() == [2]
    assert "digits" in rows.known(repository).owners


@pytest.mark.usefixtures("digits")
def test_pages_and_programs_delete_a_model_and_bring_it_back(
    browser: Callable[[str], Client], call: Callable[[str], Call]
) -> None:
    manager, send = browser("model manager"), call("model manager")
    assert 'data-confirm-typed="digits"' in manager.get("/models/digits").content.decode()
    page = submit(manager, "/models/digits/delete", {"reason": "old"}, follow=True).content.decode()
    assert "model digits" in page
    assert manager.get("/models/digits").status_code == 404
    assert "/models/digits" not in manager.get("/models").content.decode()
    assert send("get", "models").json()["models"] == []
    submit(manager, "/models/digits/undo")
    assert manager.get("/models/digits").status_code == 200
    answer = send("delete", "models/digits")
    assert (answer.status_code, answer.json()["kind"], answer.json()["name"]) == (200, "model", "digits")
    assert send("delete", "models/digits").status_code == 404
    assert [one["kind"] for one in send("get", "deleted").json()] == ["model"]
    assert send("post", "models/digits/undo", {}).json()["name"] == "digits"
    assert call("operator")("delete", "models/digits").status_code == 403
