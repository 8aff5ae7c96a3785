"""Archives are somebody else's: what is refused, and that a good one becomes an immutable version."""

import contextlib
import gzip
import io
import resource
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.html import escape
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.audit.models import AuditEntry
from console.catalog import inspection, judging, services
from console.catalog.archives import Caps, unpack
from console.catalog.inspection import Verdict
from console.catalog.models import ModelVersion, ServedModel
from console.config import ConsoleSettings
from console.controller import readiness
from signalbox.program.errors import Conflict, Forbidden, InvalidRequest, SignalboxError, TooLarge
from tests.console.conftest import submit
from tests.rigs import oddmodels
from tests.rigs.hostilemodel import hostile
from tests.rigs.models import half_plus_two, half_plus_two_v1
from tests.unit.workers.runner.test_model_gate import ENTRY, PLAIN, SERVE, field, meta, model, node
from workers.runner import savedmodel

CAPS = Caps(max_bytes=64 * 1024 * 1024, max_members=100)
Browser = Callable[[str], Client]


def tar(*members: tuple[str, bytes | tarfile.TarInfo], mode: str = "w:gz") -> bytes:
    """A tar of named bytes, or of prepared headers."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as archive:  # type: ignore[call-overload]  # a str
        for name, content in members:
            if isinstance(content, tarfile.TarInfo):
                archive.addfile(content)
            else:
                info = tarfile.TarInfo(name)
                info.size = len(content)
                archive.addfile(info, io.BytesIO(content))
    return out.getvalue()


def zipped(*members: tuple[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    """A zip of named bytes."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(name, content)
    return out.getvalue()


def special(name: str, kind: bytes, link: str = "") -> tarfile.TarInfo:
    """The header of a link or a device."""
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, link
    return info


def lay_out(tmp_path: Path, data: bytes, caps: Caps = CAPS) -> Path:
    """Unpack into a fresh folder."""
    archive, into = tmp_path / "archive", tmp_path / "into"
    archive.write_bytes(data)
    into.mkdir()
    return unpack(archive, into, caps)


def everything_below(folder: Path) -> Iterator[Path]:
    """Files, wherever the archive put them."""
    return (path for path in folder.rglob("*") if path.is_file())


@pytest.mark.parametrize(
    "name",
    [
        "../evil",
        "a/../../evil",
        "/etc/evil",
        "a/./../../evil",
        "C:/evil",
        "a\\..\\evil",
        "x" * 300,
        "a\nb",
        "/".join("abcdefghijklmnop"),
    ],
)
@pytest.mark.parametrize("make", [tar, zipped])
def test_names_that_lead_elsewhere_are_refused(tmp_path: Path, name: str, make: Any) -> None:
    with pytest.raises(InvalidRequest):
        lay_out(tmp_path, make(("saved_model.pb", b"x"), (name, b"evil")))
    assert not list(tmp_path.parent.rglob("evil"))


@pytest.mark.parametrize(
    "member",
    [
        special("link", tarfile.SYMTYPE, "/etc/passwd"),
        special("link", tarfile.LNKTYPE, "saved_model.pb"),
        special("device", tarfile.CHRTYPE),
        special("pipe", tarfile.FIFOTYPE),
    ],
)
def test_links_devices_and_pipes_are_refused(tmp_path: Path, member: tarfile.TarInfo) -> None:
    with pytest.raises(InvalidRequest, match="plain files only"):
        lay_out(tmp_path, tar(("saved_model.pb", b"x"), (member.name, member)))


def test_a_link_in_a_zip_is_refused(tmp_path: Path) -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("saved_model.pb", b"x")
        info = zipfile.ZipInfo("link")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    with pytest.raises(InvalidRequest, match="plain files only"):
        lay_out(tmp_path, out.getvalue())


@pytest.mark.parametrize("names", [("a", "a"), ("A", "a"), ("dir/x", "DIR/X"), ("./a", "a")])
def test_the_same_name_twice_is_refused_also_by_case(tmp_path: Path, names: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        lay_out(tmp_path, tar(("saved_model.pb", b"x"), *((name, b"y") for name in names)))


@pytest.mark.parametrize(
    "names", [("A/x", "a/y"), ("a/B/x", "a/b/y"), ("\u00e9", "e\u0301"), ("\u00c9/x", "e\u0301/y")]
)
@pytest.mark.parametrize("make", [tar, zipped])
def test_folders_and_letters_spelled_apart_are_refused(tmp_path: Path, make: Any, names: tuple[str, str]) -> None:
    with pytest.raises(InvalidRequest, match="twice"):
        lay_out(tmp_path, make(("saved_model.pb", b"x"), *((name, b"y") for name in names)))


@pytest.mark.parametrize("kind", [tarfile.XHDTYPE, tarfile.GNUTYPE_LONGNAME, tarfile.XGLTYPE])
def test_a_header_that_declares_gigabytes_is_refused_and_not_read(tmp_path: Path, kind: bytes) -> None:
    """The library would take all of it into memory: four gigabytes out of four megabytes."""
    info = tarfile.TarInfo("header")
    info.type, info.size = kind, 4 << 30
    data = gzip.compress(info.tobuf(tarfile.USTAR_FORMAT) + bytes(30 << 20))
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with pytest.raises(TooLarge, match="header"):
        lay_out(tmp_path, data)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000


def test_a_compressed_bomb_outside_any_member_is_stopped_too(tmp_path: Path) -> None:
    info = tarfile.TarInfo("saved_model.pb")
    info.size = 60 << 20
    data = gzip.compress(info.tobuf() + bytes(60 << 20))
    with pytest.raises(TooLarge):
        lay_out(tmp_path, data)


def test_a_zip_on_disks_that_are_not_there_is_damaged(tmp_path: Path) -> None:
    """Found by the fuzzer: asking whether it is a zip raised."""
    seed = Path(__file__).parents[2] / "verification" / "fuzz" / "corpus" / "archives" / "zip_many_disks"
    with pytest.raises(InvalidRequest, match="damaged"):
        lay_out(tmp_path, seed.read_bytes())


def test_operations_that_need_a_persons_word_serve_only_when_another_one_gave_it(
    browser: Browser, console: ConsoleSettings
) -> None:
    client = browser("model manager")
    archive = SimpleUploadedFile("model.tar.gz", archive_of(hostile()))
    answer = submit(client, "/models/-/upload", {"name": "tricky", "archive": archive, "is_default": "new"})
    assert answer.status_code == 302, answer.content
    version = ModelVersion.objects.get()
    assert {"ReadFile", "WriteFile", "RegisterDataset"} <= version.listed_ops.keys()
    document = services.find("tricky").document()
    assert (document.versions, document.default_version) == ((), None)
    page = client.get("/models/tricky").content
    for words in (b"waits for approval", b"ReadFile", b"reads files"):
        assert words in page
    assert submit(client, "/models/tricky/default", {"version": "1"}).status_code == 409
    assert submit(client, "/models/tricky/label", {"label": "x", "version": "1"}).status_code == 409
    assert submit(client, "/models/tricky/approve", {"version": "1"}).status_code == 403
    refused = AuditEntry.objects.filter(act="models.approve").latest("id")
    assert (refused.result, refused.actor_name) == (AuditEntry.FAILED, version.added_by)
    assert not services.find("tricky").document().versions
    other = browser("admin")
    assert submit(other, "/models/tricky/approve", {"version": "1"}).status_code == 302
    document = services.find("tricky").document()
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
        services.register(admin, "mine", str(folder), is_default=True)
    found = services.find("mine")
    assert ModelVersion.objects.get(number=2).unknown_ops == ["MyFastOp"]
    assert [v.version for v in found.document().versions] == [found.serving_version] == [1]
    with pytest.raises(Forbidden, match="a person who did not add"):
        services.approve(admin, "mine", 2)
    with pytest.raises(Forbidden, match="a person who did not add"):
        services.approve(system_actor("command"), "mine", 2)


@pytest.mark.parametrize(("is_default", "served"), [(False, 1), (None, 2)])
def test_the_default_stays_when_the_version_that_was_added_beside_it_is_approved(
    cast: dict[str, User], console: ConsoleSettings, tmp_path: Path, is_default: bool | None, served: int
) -> None:
    graphs = {1: [node("y", "Const")], 2: [node("x", "Placeholder"), node("y", "MyFastOp", "x")]}
    for number, graph in graphs.items():
        folder = tmp_path / "mine" / str(number)
        folder.mkdir(parents=True)
        (folder / "saved_model.pb").write_bytes(model(graph))
        services.register(Actor(user=cast["model manager"]), "mine", str(folder), is_default=is_default)
    services.approve(Actor(user=cast["admin"]), "mine", 2)
    assert services.find("mine").document().default_version == served


def test_a_version_is_judged_anew_when_the_list_has_changed_and_serves_until_a_person_says_no(
    browser: Browser, console: ConsoleSettings, tmp_path: Path
) -> None:
    folder = tmp_path / "old" / "1"
    folder.mkdir(parents=True)
    (folder / "saved_model.pb").write_bytes(model([node("x", "Placeholder"), node("y", "ReadFile", "x")]))
    services.register(system_actor("command"), "old", str(folder))
    assert judging.judge_anew() == 0, "it was judged by the list of today"
    ModelVersion.objects.update(rules="an older list", listed_ops={})  # as it stood in the database
    assert judging.judge_anew() == 1
    version = ModelVersion.objects.get()
    assert version.raised_ops.keys() == {"ReadFile"}
    assert [v.version for v in services.find("old").document().versions] == [1]
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
    services.register(Actor(user=cast["model manager"]), "mine", str(folder))
    program = cast["admin"]
    program.is_service = True
    with pytest.raises(Forbidden, match="a person who did not add"):
        services.approve(Actor(user=program), "mine", 1)
    assert not services.find("mine").document().versions


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
        services.register(admin, "m", str(base))


def test_a_bomb_is_stopped_while_it_unpacks(tmp_path: Path) -> None:
    bomb = zipped(("saved_model.pb", bytes(40 * 1024 * 1024)))
    assert len(bomb) < 100_000
    with pytest.raises(TooLarge, match="200 times"):
        lay_out(tmp_path, bomb)
    assert sum(path.stat().st_size for path in everything_below(tmp_path)) < 20 * 1024 * 1024


@pytest.mark.parametrize("method", [zipfile.ZIP_LZMA, zipfile.ZIP_BZIP2])
def test_a_zip_that_would_unpack_into_memory_is_refused_unread(tmp_path: Path, method: int) -> None:
    """Of these methods the library gives all there is at once, hundreds of megabytes out of 22 KB."""
    bomb = zipped(("saved_model.pb", bytes(20 << 20)), method=method)
    with pytest.raises(InvalidRequest, match="make the zip with deflate"):
        lay_out(tmp_path, bomb)
    assert not list(everything_below(tmp_path / "into"))


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_plain_and_deflated_zips_are_laid_out(tmp_path: Path, method: int) -> None:
    folder = lay_out(tmp_path, zipped(("1/saved_model.pb", b"pb" * 2000), method=method))
    assert (folder / "saved_model.pb").read_bytes() == b"pb" * 2000


def test_more_content_or_more_members_than_allowed_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TooLarge):
        lay_out(tmp_path, tar(("saved_model.pb", b"x" * 2000), mode="w"), Caps(1000, 10))
    many = tar(*((f"f{n}", b"") for n in range(11)))
    (tmp_path / "many").mkdir()
    with pytest.raises(TooLarge, match="members"):
        lay_out(tmp_path / "many", many, Caps(1000, 10))


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"just some bytes", "Upload a .tar"),
        (b"", "Upload a .tar"),
        (tar(("readme.txt", b"x")), "holds no saved_model.pb"),
        (tar(("1/saved_model.pb", b"x"), ("2/saved_model.pb", b"y")), "2 SavedModels"),
    ],
)
def test_what_is_no_single_saved_model_is_refused_with_the_reason(tmp_path: Path, data: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        lay_out(tmp_path, data)


def test_a_nested_saved_model_is_found(tmp_path: Path) -> None:
    data = tar(("digits/3/saved_model.pb", b"pb"), ("digits/3/variables/variables.index", b"i"))
    folder = lay_out(tmp_path, data)
    assert (folder / "variables" / "variables.index").read_bytes() == b"i"


@given(data=st.binary(max_size=300), cut=st.integers(0, 300))
def test_any_bytes_either_unpack_or_are_refused_in_our_words(
    tmp_path_factory: pytest.TempPathFactory, data: bytes, cut: int
) -> None:
    good = tar(("saved_model.pb", b"x" * 50))
    for mangled in (data, good[:cut], good[:cut] + data):
        with contextlib.suppress(InvalidRequest):  # TooLarge is one too; anything else fails the test
            lay_out(tmp_path_factory.mktemp("fuzz"), mangled)


def archive_of(folder: Path) -> bytes:
    """A model's folder as a tar."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w:gz") as archive:
        archive.add(folder, arcname="model")
    return out.getvalue()


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
        services.upload(admin, "mine", io.BytesIO(data), number=2)
    assert not list((console.repository / ".staging").iterdir())


def test_an_uploaded_version_that_never_loaded_is_replaced(
    admin: Actor, console: ConsoleSettings, tmp_path: Path
) -> None:
    home = console.repository / "mine" / "4"
    old, new = archive_of(half_plus_two()), archive_of(half_plus_two_v1())
    first = services.upload(admin, "mine", io.BytesIO(old), number=4)
    second = services.upload(admin, "mine", io.BytesIO(new), number=4)
    assert (home / "saved_model.pb").read_bytes() == (half_plus_two_v1() / "saved_model.pb").read_bytes()
    assert (first.pk, first.folder) == (second.pk, second.folder)
    entry = AuditEntry.objects.latest("id")
    assert ("digest", first.digest, second.digest) in entry.changes
    readiness.note([("mine", 4)])
    with pytest.raises(Conflict, match="immutable from then on"):
        services.upload(admin, "mine", io.BytesIO(old), number=4)
    assert (home / "saved_model.pb").read_bytes() == (half_plus_two_v1() / "saved_model.pb").read_bytes()
    assert not list((console.repository / ".staging").iterdir())


def test_what_the_inspector_refuses_leaves_nothing_behind(admin: Actor, console: ConsoleSettings) -> None:
    with pytest.raises(InvalidRequest):
        services.upload(admin, "bad", io.BytesIO(tar(("saved_model.pb", b"no model at all"))))
    assert not ServedModel.objects.exists()
    assert not (console.repository / "bad").exists()
    assert not list((console.repository / ".staging").iterdir())


def first_half(path: Path) -> None:
    data = path.read_bytes()
    path.write_bytes(data[: len(data) // 2])


INDEX, DATA = "variables/variables.index", "variables/variables.data-00000-of-00001"


@pytest.mark.parametrize(
    ("lose", "name", "words"),
    [
        (Path.unlink, INDEX, f"{INDEX} is missing"),
        (first_half, INDEX, f"{INDEX} is cut short"),
        (Path.unlink, DATA, f"{DATA} is missing"),
        (first_half, DATA, f"{DATA} has 69 of 138 bytes"),
        (first_half, "saved_model.pb", "saved_model.pb is damaged, cut short"),
        (shutil.rmtree, "variables", f"{INDEX} is missing"),
    ],
)
def test_a_version_that_is_still_being_copied_is_refused_with_what_is_missing(
    admin: Actor, console: ConsoleSettings, tmp_path: Path, lose: Callable[[Path], None], name: str, words: str
) -> None:
    folder = Path(shutil.copytree(half_plus_two(), tmp_path / "mine" / "3"))
    lose(folder / name)
    with pytest.raises(InvalidRequest, match=words):
        services.register(admin, "mine", str(folder))
    with pytest.raises(InvalidRequest, match=words):
        services.upload(admin, "mine", io.BytesIO(archive_of(folder)))
    assert not ServedModel.objects.exists()
    shutil.copytree(half_plus_two(), folder, dirs_exist_ok=True)
    services.register(admin, "mine", str(folder))


@pytest.mark.parametrize(
    ("shards", "words"),
    [([], "data-00000-of-00002 is missing, .*data-00001-of-00002 is missing"), ([0], "data-00001-of-00002 is missing")],
)
def test_every_data_file_that_the_index_names_must_be_there(tmp_path: Path, shards: list[int], words: str) -> None:
    """The header alone, as TensorFlow writes it of two files: key, and ``num_shards`` of 2."""
    block = b"\x00\x00\x02" + b"\x08\x02" + bytes(4) + b"\x01\x00\x00\x00"
    handle = b"\x00" + bytes([len(block)])
    blocks = block + bytes(5) + b"\x00\x01\x02" + b"k" + handle + bytes(4) + b"\x01\x00\x00\x00" + bytes(5)
    at, size = len(block) + 5, 6 + 8
    footer = (b"\x00\x00" + bytes([at, size])).ljust(40, b"\x00") + bytes.fromhex("57fb808b247547db")
    (tmp_path / "variables").mkdir()
    (tmp_path / "saved_model.pb").write_bytes(model([node("y", "Const")]))
    (tmp_path / INDEX).write_bytes(blocks + footer)
    for number in shards:
        (tmp_path / "variables" / f"variables.data-{number:05}-of-00002").touch()
    with pytest.raises(InvalidRequest, match=words):
        savedmodel.inspect(tmp_path)


def collected(*names: str) -> bytes:
    """Assets as ``SavedModelBuilder`` of TensorFlow 1 writes them: a collection of packed messages."""
    kind = field(1, "type.googleapis.com/tensorflow.AssetFileDef")
    packed = b"".join(field(1, kind + field(2, field(2, name))) for name in names)
    return field(4, field(1, "saved_model_assets") + field(2, field(5, packed)))


@pytest.mark.parametrize(
    ("name", "words"), [("words.txt", "assets/words.txt is missing"), ("../out.txt", "out.txt lies outside")]
)
@pytest.mark.parametrize("is_collected", [False, True])
def test_an_asset_that_the_graph_names_must_be_there(
    tmp_path: Path, name: str, words: str, *, is_collected: bool
) -> None:
    plain = field(6, field(2, "here.txt")) + field(6, field(2, name))
    assets = collected("here.txt", name) if is_collected else plain
    (tmp_path / "saved_model.pb").write_bytes(meta(SERVE, field(2, field(1, PLAIN)), ENTRY, assets))
    (tmp_path / "assets").mkdir()
    for found in ("assets/here.txt", "out.txt"):
        (tmp_path / found).touch()
    with pytest.raises(InvalidRequest, match=words):
        savedmodel.inspect(tmp_path)


@pytest.mark.parametrize("change", [Path.unlink, lambda path: path.write_bytes(b"more")])
def test_files_that_change_while_they_are_inspected_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: Callable[[Path], None]
) -> None:
    (tmp_path / "saved_model.pb").write_bytes(model([node("y", "Const")]))
    (tmp_path / "notes").touch()
    digest = savedmodel.manifest

    def meanwhile(directory: Path) -> tuple[int, str]:
        change(directory / "notes")
        return digest(directory)

    savedmodel.inspect(tmp_path)
    monkeypatch.setattr(savedmodel, "manifest", meanwhile)
    with pytest.raises(InvalidRequest, match=r"change while they are inspected\. Wait until all are copied"):
        savedmodel.inspect(tmp_path)


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
        services.upload(admin, "bad", io.BytesIO(tar(("saved_model.pb", b"no model at all"))))
    assert "/" not in refused.value.public_message
    assert "staging" not in refused.value.public_message


def test_a_name_or_a_number_that_the_disk_refuses_shows_no_folder_either(
    admin: Actor, console: ConsoleSettings
) -> None:
    long = "é" * 150  # short enough in letters, too long in bytes
    with pytest.raises(InvalidRequest) as refused:
        services.upload(admin, "bad", io.BytesIO(tar((f"{long}/saved_model.pb", b"x"))))
    assert str(console.repository) not in refused.value.public_message
    (console.repository / "good" / "7").mkdir(parents=True)
    with pytest.raises(Conflict) as taken:
        services.upload(admin, "good", io.BytesIO(archive_of(half_plus_two())), number=7)
    assert str(console.repository) not in taken.value.public_message


def test_a_signature_that_cannot_be_run_is_named_with_the_reason(admin: Actor, browser: Browser) -> None:
    version = services.upload(admin, "words", io.BytesIO(archive_of(oddmodels.folder() / "composite" / "1")))
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


def test_an_archive_over_the_cap_is_refused_while_it_arrives(
    admin: Actor, console: ConsoleSettings, settings: Any
) -> None:
    settings.CONSOLE = replace(console, upload_max_bytes=2000)
    with pytest.raises(TooLarge):
        services.upload(admin, "big", io.BytesIO(bytes(5000)))


def test_an_inspector_that_hangs_is_ended(admin: Actor, console: ConsoleSettings, settings: Any) -> None:
    from signalbox.program.errors import DeadlineExceeded

    settings.CONSOLE = replace(console, inspect_timeout_s=0.2, inspect_command="sh -c 'sleep 60' inspector")
    with pytest.raises(DeadlineExceeded):
        inspection.inspect(half_plus_two())


def test_without_an_inspector_the_reason_is_said(console: ConsoleSettings, settings: Any) -> None:
    from signalbox.program.errors import Misconfigured

    for command in ("/no/such/program", "python -m no_such_module", "echo not-json"):
        settings.CONSOLE = replace(console, inspect_command=command)
        with pytest.raises(Misconfigured):
            inspection.inspect(half_plus_two())


def test_graphs_are_inspected_together_and_each_says_why_it_is_refused(tmp_path: Path) -> None:
    graphs = {
        "good": (half_plus_two() / "saved_model.pb").read_bytes(),
        "words": meta(SERVE, field(2, field(1, PLAIN)), ENTRY, field(6, field(2, "words.txt"))),
        "bad": b"no model at all",
    }
    for name, graph in graphs.items():
        (tmp_path / name).mkdir()
        (tmp_path / name / "saved_model.pb").write_bytes(graph)
    found = inspection.inspect_graphs(tmp_path)
    assert (found["words"].assets, found["words"].restores, found["words"].error) == (("words.txt",), False, "")
    assert found["bad"].error == "saved_model.pb is damaged, cut short, or no SavedModel."
    assert found["good"].whole(77) == replace(inspection.inspect(half_plus_two()), size_bytes=77, digest="")


def test_where_the_time_for_graphs_is_over_those_that_were_read_count(console: ConsoleSettings, settings: Any) -> None:
    line = msgspec.json.encode(inspection.GraphInspection("a", {}, Verdict({}, []), "", False, (), "")).decode()
    command = f"""sh -c 'echo '"'"'{line}'"'"'; printf half; sleep 60'"""
    settings.CONSOLE = replace(console, inspect_timeout_s=0.5, inspect_command=command)
    assert inspection.inspect_graphs(Path("/")).keys() == {"a"}
