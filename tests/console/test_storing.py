"""Uploads into a default repository in an object store: a real one, SeaweedFS, and what is left when it fails."""

import asyncio
import io
import random
import secrets
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import obstore
import pytest
from django.test import Client
from django.utils import timezone
from msgspec.structs import replace

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import folders, inspection, judging, lookup, storing, uploads
from console.catalog.models import ModelVersion, ServedModel, StoredUpload
from console.config import ConsoleSettings
from console.controller import readiness
from console.deletion import leaving
from console.deletion import versions as deletion
from console.noticing import rows
from console.noticing.plan import Terms, decide
from console.outbox.models import OutboxEntry
from console.repositories.models import Repository
from console.repositories.services import sync_roots
from signalbox.program.errors import Conflict, InvalidRequest, Misconfigured, Unavailable
from signalbox.repositories.entry import Entry
from signalbox.repositories.layouts import find
from signalbox.repositories.store import ObjectStore
from signalbox.wire import messages
from signalbox.wire.manifests import Manifest
from tests.console.conftest import FOUND
from tests.console.test_archives import archive_of
from tests.rigs.models import half_plus_two, half_plus_two_v1
from tests.rigs.objectstore import ObjectStoreServer


class Fleet:
    """The default repository of one test, in a bucket that all of them share."""

    def __init__(self, server: ObjectStoreServer, bucket: str) -> None:
        self.server, self.bucket, self.prefix = server, bucket, secrets.token_hex(4)
        self.url = f"s3://{bucket}/{self.prefix}"

    def put(self, path: str, data: bytes) -> None:
        self.server.put(self.bucket, {f"{self.prefix}/{path}": data})

    @property
    def files(self) -> dict[str, int]:
        """Their sizes, by their paths."""
        pages = obstore.list(self.server._store(self.bucket), self.prefix)
        return {each["path"].removeprefix(f"{self.prefix}/"): each["size"] for page in pages for each in page}

    @property
    def is_empty(self) -> bool:
        """Whether neither it nor the database has anything of an upload."""
        return not (ModelVersion.objects.exists() or StoredUpload.objects.exists() or self.files)


@pytest.fixture(scope="module")
def bucket(object_store: ObjectStoreServer) -> str:
    name = object_store.bucket()
    object_store.put(name, {"other/file": b"somebody else's"})
    return name


@pytest.fixture
def fleet(object_store: ObjectStoreServer, bucket: str) -> Fleet:
    return Fleet(object_store, bucket)


@pytest.fixture
def remote(console: ConsoleSettings, settings: Any, fleet: Fleet, tmp_path: Path) -> ConsoleSettings:
    folder = fleet.server.credentials(tmp_path / "credentials", "uploads")
    settings.CONSOLE = replace(console, uploads_url=fleet.url, repository_credentials=str(folder))
    made: ConsoleSettings = settings.CONSOLE
    return made


@pytest.fixture
def big(tmp_path: Path) -> bytes:
    """An archive with a file that is written in parts."""
    folder = tmp_path / "big"
    (folder / "assets").mkdir(parents=True)
    for path in ("saved_model.pb", "variables/variables.index", "variables/variables.data-00000-of-00001"):
        (folder / path).parent.mkdir(exist_ok=True)
        (folder / path).write_bytes((half_plus_two() / path).read_bytes())
    (folder / "assets" / "words.txt").write_bytes(random.Random(1).randbytes(20_000_000))
    return archive_of(folder)


def upload(actor: Actor, data: bytes, **options: Any) -> ModelVersion:
    return uploads.upload(actor, "mine", io.BytesIO(data), **options)


def nothing_is_staged(console: ConsoleSettings) -> bool:
    return not list((console.repository / ".staging").iterdir())


def sweep(later_s: float = 0.0) -> None:
    storing.sweep(timezone.now() + timedelta(seconds=later_s))


def test_an_uploaded_model_lies_in_the_store_and_its_files_are_published_before_it(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet, big: bytes
) -> None:
    version = upload(admin, big)
    assert fleet.files.keys() == {
        "mine/1/saved_model.pb",
        "mine/1/assets/words.txt",
        "mine/1/variables/variables.index",
        "mine/1/variables/variables.data-00000-of-00001",
    }
    listed, published = OutboxEntry.objects.order_by("pk")
    assert (listed.bucket, listed.key, published.bucket) == ("manifests", "mine.1", "models")
    manifest = messages.decode(Manifest, listed.body.encode())
    assert (manifest.repository, manifest.url) == ("uploads", f"{fleet.url}/mine/1")
    assert {f"mine/1/{file.path}": file.size_bytes for file in manifest.files} == fleet.files
    assert all(file.etag for file in manifest.files)
    document = lookup.find("mine").document().versions[0]
    assert (document.path, document.repository, document.digest) == (manifest.url, "uploads", version.digest)

    second = upload(admin, archive_of(half_plus_two()))
    assert (second.number, second.digest) == (2, inspection.inspect(half_plus_two()).digest)
    assert not list((remote.repository / ".staging").iterdir())


def test_a_version_that_never_loaded_is_replaced_in_a_folder_of_its_own_number(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet
) -> None:
    old, new = archive_of(half_plus_two()), archive_of(half_plus_two_v1())
    first = upload(admin, old, number=4)
    second = upload(admin, new, number=4)
    assert (first.pk, second.path) == (second.pk, f"{fleet.url}/mine/04")
    assert all(path.startswith("mine/04/") for path in fleet.files)
    assert ("digest", first.digest, second.digest) in AuditEntry.objects.latest("id").changes
    with pytest.raises(Conflict, match="with these very files"):
        upload(admin, new, number=4)
    readiness.note([("mine", 4)])
    with pytest.raises(Conflict, match="immutable from then on"):
        upload(admin, old, number=4)
    assert StoredUpload.objects.get().url == second.path


def test_files_of_others_are_neither_written_over_nor_removed(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet
) -> None:
    fleet.put("mine/1/saved_model.pb", b"by hand")
    with pytest.raises(Conflict, match="choose another number"):
        upload(admin, archive_of(half_plus_two()))
    assert fleet.files == {"mine/1/saved_model.pb": 7}
    assert upload(admin, archive_of(half_plus_two()), number=2).number == 2


def test_an_upload_that_the_catalog_refuses_leaves_nothing(admin: Actor, remote: ConsoleSettings, fleet: Fleet) -> None:
    with pytest.raises(InvalidRequest, match="replicas"):
        upload(admin, archive_of(half_plus_two()), changes={"replicas": -1})
    assert fleet.is_empty
    assert nothing_is_staged(remote)
    Repository.objects.create(name="zoo", url="s3://zoo", added_by="x", changed_by="x")
    ServedModel.objects.create(name="mine", base_path="s3://zoo/mine", repository=Repository.objects.get())
    with pytest.raises(Conflict, match="repository zoo brings"):
        upload(admin, archive_of(half_plus_two()))
    assert fleet.is_empty
    assert nothing_is_staged(remote)


def test_credentials_that_are_refused_are_said_and_nothing_stays(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet
) -> None:
    folder = Path(remote.repository_credentials)
    fleet.server.credentials(folder, "uploads", secret_access_key="wrong")
    with pytest.raises(Misconfigured, match="refuses its credentials"):
        upload(admin, archive_of(half_plus_two()))
    assert AuditEntry.objects.latest("id").result == AuditEntry.FAILED
    assert StoredUpload.objects.get().state == StoredUpload.LEAVING, "the store cannot be asked what is there"
    fleet.server.credentials(folder, "uploads")
    sweep()
    assert fleet.is_empty
    assert nothing_is_staged(remote)


@pytest.mark.parametrize(
    ("path", "error"),
    [
        ("saved_model.pb", Unavailable("away")),
        ("saved_model.pb", asyncio.CancelledError()),
        ("variables/variables.index", Unavailable("away")),
    ],
)
def test_an_upload_that_fails_half_way_leaves_nothing_and_may_be_repeated(
    admin: Actor,
    remote: ConsoleSettings,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    path: str,
) -> None:
    write = ObjectStore.write

    async def fail(store: ObjectStore, name: str, *rest: Any) -> None:
        if name == path:
            raise error
        await write(store, name, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "write", fail)
        with pytest.raises(type(error)):
            upload(admin, archive_of(half_plus_two()))
    assert fleet.is_empty
    assert nothing_is_staged(remote)
    assert upload(admin, archive_of(half_plus_two())).number == 1


def test_a_store_that_goes_away_is_said_and_what_was_written_is_removed_when_it_is_back(
    admin: Actor,
    remote: ConsoleSettings,
    fleet: Fleet,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    folder = Path(remote.repository_credentials)
    write = ObjectStore.write

    async def lose(store: ObjectStore, path: str, *rest: Any) -> None:
        if path == "saved_model.pb":
            fleet.server.credentials(folder, "uploads", endpoint="http://127.0.0.1:1")
        await write(store, path, *rest)

    with monkeypatch.context() as patched:
        patched.setattr(ObjectStore, "write", lose)
        with pytest.raises(Unavailable, match="away or overloaded"):
            upload(admin, archive_of(half_plus_two()))
    assert "away or overloaded" in AuditEntry.objects.latest("id").message
    assert fleet.files
    assert not ServedModel.objects.exists()
    fleet.server.credentials(folder, "uploads")
    sweep()
    assert fleet.is_empty
    assert nothing_is_staged(remote)


def test_what_a_killed_console_has_written_is_removed_and_it_may_not_come_back(
    admin: Actor, browser: Callable[[str], Client], remote: ConsoleSettings, fleet: Fleet
) -> None:
    sync_roots()
    found = inspection.inspect(half_plus_two())
    row = storing.write(admin, "mine", None, half_plus_two(), found)
    sweep()
    assert fleet.files, "it may still be registered"
    viewer = browser("viewer")
    (shown,) = viewer.get("/api/repositories/uploads").json()["uploads"]
    assert (shown["model"], shown["number"], shown["state"]) == ("mine", 1, "writing")
    assert shown["sent_bytes"] <= shown["size_bytes"] == found.size_bytes
    assert b"Uploads under way" in viewer.get("/repositories/uploads").content
    with pytest.raises(Conflict, match="is being uploaded now"):
        upload(admin, archive_of(half_plus_two()), number=1)
    sweep(storing.ABANDONED_S + 1)
    assert fleet.is_empty
    with pytest.raises(Conflict, match="stood still for too long"):
        storing.keep(row)
    assert not OutboxEntry.objects.exists()


def test_a_staging_folder_whose_upload_is_gone_is_removed_at_the_next_start(console: ConsoleSettings) -> None:
    left = console.repository / ".staging" / "left"
    (left / "content").mkdir(parents=True)
    with folders.staging() as busy:
        folders.clear_staging()
        assert busy.is_dir()
        assert not left.exists()
    assert not busy.exists()


def test_the_settings_place_of_uploads_is_the_repository_and_it_may_be_noticed_too(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet
) -> None:
    sync_roots()
    row = Repository.objects.get(name="uploads")
    assert (row.url, row.is_noticed, row.access) == (remote.uploads_url, False, "everybody")
    upload(admin, archive_of(half_plus_two()))
    storing.write(admin, "coming", None, half_plus_two(), inspection.inspect(half_plus_two()))
    fleet.put("byhand/1/saved_model.pb", b"x")
    fleet.put("twice/1/saved_model.pb", b"x")
    entries = [Entry(path, size) for path, size in fleet.files.items()]
    ServedModel.objects.create(name="twice", base_path="/twice")
    plan = decide(find(entries, marker="", name="uploads"), rows.known(row), {}, {}, Terms("", 0.0, 0.0, ""), now=0.0)
    assert [step.key for step in plan.register] == [("byhand", 1)]
    assert plan.refused.keys() == {"twice"}
    assert not plan.alarm


def test_the_files_of_an_uploaded_version_are_judged_where_they_lie(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet
) -> None:
    version = upload(admin, archive_of(half_plus_two()))
    ModelVersion.objects.update(rules="an older list")
    assert judging.judge_anew() == 1
    version.refresh_from_db()
    assert version.rules == inspection.rules()
    ModelVersion.objects.update(rules="an older list")
    fleet.put("mine/1/saved_model.pb", b"other bytes")
    assert judging.judge_anew() == 0, "workers refuse these files"


def test_the_files_of_a_deleted_version_leave_the_store_after_the_day_and_no_others(
    admin: Actor, remote: ConsoleSettings, fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(inspection, "inspect", lambda _: FOUND)
    data = archive_of(half_plus_two())
    for _ in range(2):
        upload(admin, data)
    fleet.put("mine/1/notes.txt", b"somebody else's")
    deletion.delete_version(admin, "mine", 1)
    leaving.sweep()
    assert "mine/1/saved_model.pb" in fleet.files
    deletion.undo_version(admin, "mine", 1)
    deletion.delete_version(admin, "mine", 1)
    old = timezone.now() - timedelta(days=1, seconds=1)
    ModelVersion.with_deleted.filter(number=1).update(deleted_at=old)
    leaving.sweep()
    assert [path for path in fleet.files if path.startswith("mine/1/")] == ["mine/1/notes.txt"]
    assert "mine/2/saved_model.pb" in fleet.files
    with pytest.raises(Conflict, match="is not used again"):
        upload(admin, data, number=1)
