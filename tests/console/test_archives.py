"""Archives are somebody else's: what is refused, and what is laid out."""

import contextlib
import gzip
import io
import resource
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from console.catalog.archives import Caps, unpack
from signalbox.program.errors import InvalidRequest, TooLarge

CAPS = Caps(max_bytes=64 * 1024 * 1024, max_members=100)


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
    ids=lambda value: "" if isinstance(value, bytes) else value,  # the bytes hold the time
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
