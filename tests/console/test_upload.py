"""What is uploaded becomes an immutable version, or leaves nothing behind."""

import io
import os
import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.html import escape
from msgspec.structs import replace

from console.accounts.rights import Actor
from console.audit.models import AuditEntry
from console.catalog import registration, uploads
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.controller import readiness
from signalbox.program.errors import Conflict, InvalidRequest, SignalboxError, TooLarge, Unavailable
from tests.console.conftest import submit
from tests.console.test_archives import archive_of, tar
from tests.rigs import oddmodels
from tests.rigs.models import half_plus_two, half_plus_two_v1
from tests.unit.workers.runner.test_model_gate import model, node
from verification.chaos.environment.smalldisk import SmallDisk

Browser = Callable[[str], Client]


def test_a_refused_upload_and_registration_stand_in_the_audit_with_reason_and_operator(
    browser: Browser, console: ConsoleSettings, tmp_path: Path
) -> None:
    client = browser("model manager")
    roots = Path(tempfile.gettempdir())
    (tmp_path / "out" / "1").mkdir(parents=True)
    (tmp_path / "empty" / "1").mkdir(parents=True)
    (tmp_path / "empty" / "1" / "saved_model.pb").write_bytes(b"no model")
    asked: list[tuple[str, dict[str, Any]]] = [
        ("/models/-/upload", {"archive": SimpleUploadedFile("m.tar.gz", b"no archive")}),
        ("/models/-/upload", {"archive": SimpleUploadedFile("m.tar", tar(("../x", b""), mode="w"))}),
        ("/models/-/upload", {"name": "-", "archive": SimpleUploadedFile("m.tar", b"x")}),
        ("/models/-/register", {"path": str(tmp_path / "out")}),
        ("/models/-/register", {"path": "relative"}),
        ("/models/-/register", {"path": str(tmp_path / "empty")}),
        ("/models/-/register", {"path": str(roots / "nowhere")}),
    ]
    before = AuditEntry.objects.count()
    for url, fields in asked:
        answer = submit(client, url, {"name": "refused", "is_default": "new", **fields})
        assert answer.status_code == 400
    written = AuditEntry.objects.order_by("id")[before:]
    assert [(e.act, e.result) for e in written] == [("models.register", AuditEntry.FAILED)] * len(asked)
    assert all(e.message and e.actor_name for e in written)


def test_a_version_that_is_a_link_out_of_the_roots_is_not_registered(
    admin: Actor, console: ConsoleSettings, tmp_path: Path, settings: Any
) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "saved_model.pb").write_bytes(model([node("y", "Const")]))
    base = tmp_path / "roots" / "m"
    base.mkdir(parents=True)
    (base / "1").symlink_to(outside)
    settings.CONSOLE = replace(settings.CONSOLE, repository_roots=(str(tmp_path / "roots"),))
    with pytest.raises(InvalidRequest, match="outside the repository folders"):
        registration.register(admin, "m", str(base))


def test_an_uploaded_model_is_laid_out_inspected_and_never_changed(
    browser: Browser, console: ConsoleSettings, admin: Actor
) -> None:
    client = browser("model manager")
    data = archive_of(half_plus_two())
    for number in (1, 2):
        upload = SimpleUploadedFile("model.tar.gz", data)
        form = {"name": "mine", "archive": upload, "is_default": "new"}
        answer = submit(client, "/models/-/upload", form)
        assert answer.status_code == 302, answer.content
        home = console.repository / "mine" / str(number)
        assert (home / "saved_model.pb").read_bytes() == (half_plus_two() / "saved_model.pb").read_bytes()
        version = ModelVersion.objects.get(number=number)
        assert version.folder == str(home)
        assert version.signatures["serving_default"]["inputs"]["x"]["dtype"] == "float32"
    assert len(set(ModelVersion.objects.values_list("digest", flat=True))) == 1
    with pytest.raises(Conflict):
        uploads.upload(admin, "mine", io.BytesIO(data), number=2)
    assert not list((console.repository / ".staging").iterdir())


def test_an_uploaded_version_that_never_loaded_is_replaced(
    admin: Actor, console: ConsoleSettings, tmp_path: Path
) -> None:
    home = console.repository / "mine" / "4"
    old, new = archive_of(half_plus_two()), archive_of(half_plus_two_v1())
    first = uploads.upload(admin, "mine", io.BytesIO(old), number=4)
    second = uploads.upload(admin, "mine", io.BytesIO(new), number=4)
    assert (home / "saved_model.pb").read_bytes() == (half_plus_two_v1() / "saved_model.pb").read_bytes()
    assert (first.pk, first.folder) == (second.pk, second.folder)
    entry = AuditEntry.objects.latest("id")
    assert ("digest", first.digest, second.digest) in entry.changes
    readiness.note([("mine", 4)])
    with pytest.raises(Conflict, match="immutable from then on"):
        uploads.upload(admin, "mine", io.BytesIO(old), number=4)
    assert (home / "saved_model.pb").read_bytes() == (half_plus_two_v1() / "saved_model.pb").read_bytes()
    assert not list((console.repository / ".staging").iterdir())


def test_what_the_inspector_refuses_leaves_nothing_behind(admin: Actor, console: ConsoleSettings) -> None:
    with pytest.raises(InvalidRequest):
        uploads.upload(admin, "bad", io.BytesIO(tar(("saved_model.pb", b"no model at all"))))
    assert not ServedModel.objects.exists()
    assert not (console.repository / "bad").exists()
    assert not list((console.repository / ".staging").iterdir())


NO_SIGNATURE = '{"signatures": {}, "size_bytes": 1, "digest": "d", "verdict": {"forbidden": {}, "unknown": []}}'


@pytest.mark.parametrize(
    ("command", "timeout_s"),
    [
        ("", 60.0),
        ("sh -c 'echo $0/variables/x is broken in /usr/lib/python3/a.py >&2; exit 1'", 60.0),
        ("sh -c 'sleep 60'", 0.2),
        (f"echo '{NO_SIGNATURE}'", 60.0),
    ],
)
def test_a_refusal_shows_no_folder_of_this_machine(
    admin: Actor, console: ConsoleSettings, settings: Any, command: str, timeout_s: float
) -> None:
    settings.CONSOLE = replace(console, inspect_command=command, inspect_timeout_s=timeout_s)
    with pytest.raises(SignalboxError) as refused:
        uploads.upload(admin, "bad", io.BytesIO(tar(("saved_model.pb", b"no model at all"))))
    assert "/" not in refused.value.public_message
    assert "staging" not in refused.value.public_message


def test_a_name_or_a_number_that_the_disk_refuses_shows_no_folder_either(
    admin: Actor, console: ConsoleSettings
) -> None:
    long = "é" * 150  # short enough in letters, too long in bytes
    with pytest.raises(InvalidRequest) as refused:
        uploads.upload(admin, "bad", io.BytesIO(tar((f"{long}/saved_model.pb", b"x"))))
    assert str(console.repository) not in refused.value.public_message
    (console.repository / "good" / "7").mkdir(parents=True)
    with pytest.raises(Conflict) as taken:
        uploads.upload(admin, "good", io.BytesIO(archive_of(half_plus_two())), number=7)
    assert str(console.repository) not in taken.value.public_message


def test_a_signature_that_cannot_be_run_is_named_with_the_reason(admin: Actor, browser: Browser) -> None:
    version = uploads.upload(admin, "words", io.BytesIO(archive_of(oddmodels.folder() / "composite" / "1")))
    whys = {
        name: f'The output "words" is a {name} tensor; only dense tensors are given out. Where a protocol lets outputs '
        "be chosen, these can be had: n."
        for name in ("ragged", "sparse")
    }
    assert version.may_serve
    assert version.refused_signatures == whys
    client = browser("viewer")
    page = client.get("/models/words").content.decode()
    for name, why in whys.items():
        assert f'<span class="mono">{name}</span> ({escape(why)})' in page
    assert client.get("/api/models/words").json()["versions"][0]["refused_signatures"] == whys


@pytest.mark.parametrize("disk", ["models"], indirect=True)
@pytest.mark.parametrize("left", [0, 1 << 20])
def test_a_full_disk_is_the_console_s_fault_and_nothing_stays(
    admin: Actor, console: ConsoleSettings, settings: Any, disk: SmallDisk, left: int
) -> None:
    settings.CONSOLE = replace(console, repository_dir=str(disk.folder))
    disk.fill()
    os.truncate(disk.folder / "filler", (disk.folder / "filler").stat().st_size - left)
    words = random.Random(1).randbytes(600_000)
    with pytest.raises(Unavailable, match="No space left"):
        uploads.upload(admin, "big", io.BytesIO(tar(("saved_model.pb", words), ("assets/words", words))))
    assert {path.name for path in disk.folder.rglob("*")} <= {"filler", ".staging"}


def test_an_archive_over_the_cap_is_refused_while_it_arrives(
    admin: Actor, console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, upload_max_bytes=2000)
    with pytest.raises(TooLarge):
        uploads.upload(admin, "big", io.BytesIO(bytes(5000)))
