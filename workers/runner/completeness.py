"""Whether all files are there that a SavedModel names: its variables' index and data, and its assets.

Field numbers are those of TensorFlow's meta_graph.proto, saver.proto and saved_object_graph.proto, and of protobuf's
any.proto.
"""

from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import Final

from signalbox.program.errors import InvalidRequest
from workers.runner import checkpoint
from workers.runner.protowire import single, submessages, text

_MOST_NAMED: Final = 3
_LONGEST_NAME: Final = 100
_INDEX: Final = "variables/variables.index"
_ASSETS: Final = "saved_model_assets"
_WHOLE: Final = "Copy, or upload, the whole folder, then register it again."
_Facts = dict[str, tuple[int, int, int]]


def require_whole(directory: Path, graph: memoryview) -> None:
    """Raise :class:`InvalidRequest` naming what is missing in ``directory`` of what the served ``graph`` names."""
    lacking = [*_lacking_variables(directory, graph), *_lacking_assets(directory, graph)]
    if not lacking:
        return
    more = f", and {len(lacking) - _MOST_NAMED} more" if len(lacking) > _MOST_NAMED else ""
    raise InvalidRequest(
        f"Not all that the SavedModel names is there: {', '.join(lacking[:_MOST_NAMED])}{more}. {_WHOLE}"
    )


def named(graph: memoryview) -> tuple[bool, tuple[str, ...]]:
    """(whether there are variables to restore, names of the assets below ``assets``), of the served graph."""
    return _restores(graph), tuple(text(each, 2) for each in _assets(graph))


def facts(directory: Path) -> _Facts:
    """What changes when a file does: number, bytes and time of the last write, by path."""
    found = ((str(path), path.stat()) for path in directory.rglob("*") if path.is_file())
    return {path: (state.st_ino, state.st_size, state.st_mtime_ns) for path, state in found}


def _lacking_variables(directory: Path, graph: memoryview) -> Iterator[str]:
    folder = directory / "variables"
    if not _restores(graph) and not (folder.is_dir() and any(folder.iterdir())):
        return
    index = directory / _INDEX
    if not index.is_file():
        yield f"{_INDEX} is missing"
        return
    try:
        sizes = checkpoint.data_bytes(memoryview(index.read_bytes()))
    except IndexError:
        yield f"{_INDEX} is cut short or damaged"
        return
    for number, least in enumerate(sizes):
        name = f"variables/variables.data-{number:05}-of-{len(sizes):05}"
        data = directory / name
        if not data.is_file():
            yield f"{name} is missing"
        elif (size := data.stat().st_size) < least:
            yield f"{name} has {size} of {least} bytes"


def _restores(graph: memoryview) -> bool:
    """Whether it has variables to restore: an operation that does so, or an object that is one."""
    objects = submessages(single(graph, 7), 1)
    return bool(text(single(graph, 3), 3)) or any(True for each in objects for _ in submessages(each, 7))


def _lacking_assets(directory: Path, graph: memoryview) -> Iterator[str]:
    for each in _assets(graph):
        name = text(each, 2)
        path = PurePosixPath(name)
        shown = (name if name.isprintable() else ascii(name))[:_LONGEST_NAME]
        if path.is_absolute() or ".." in path.parts:
            yield f"assets/{shown} lies outside of the version's folder"
        elif not (directory / "assets" / path).is_file():
            yield f"assets/{shown} is missing"


def _assets(graph: memoryview) -> Iterator[memoryview]:
    """Each AssetFileDef, those too that programs for TensorFlow 1 write: packed, as a collection."""
    yield from submessages(graph, 6)
    for entry in submessages(graph, 4):
        if text(entry, 1) == _ASSETS:
            collection = single(single(entry, 2), 5)
            yield from (single(packed, 2) for packed in submessages(collection, 1))
