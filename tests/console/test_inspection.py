"""What a SavedModel's inspection finds and refuses."""

import io
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from console.accounts.rights import Actor
from console.catalog import inspection, registration, uploads
from console.catalog.inspection import Verdict
from console.catalog.models import ServedModel
from console.config import ConsoleSettings
from signalbox.program.errors import InvalidRequest
from tests.console.test_archives import archive_of
from tests.rigs.models import half_plus_two
from tests.unit.workers.runner.test_model_gate import ENTRY, PLAIN, SERVE, field, meta, model, node
from workers.runner import savedmodel


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
        registration.register(admin, "mine", str(folder))
    with pytest.raises(InvalidRequest, match=words):
        uploads.upload(admin, "mine", io.BytesIO(archive_of(folder)))
    assert not ServedModel.objects.exists()
    shutil.copytree(half_plus_two(), folder, dirs_exist_ok=True)
    registration.register(admin, "mine", str(folder))


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
