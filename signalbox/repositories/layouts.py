"""Which models and versions lie in a repository: told from the paths of its files alone.

Three layouts, told apart by themselves: TensorFlow Serving's ``<model>/<number>/saved_model.pb``, Triton's
``<model>/<number>/model.savedmodel/saved_model.pb`` with ``<model>/config.pbtxt``, and one model alone in the
repository, ``saved_model.pb`` or ``<number>/saved_model.pb``, which is called like the repository.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator
from typing import Final, Literal

import msgspec

from signalbox.repositories.entry import Entry
from signalbox.repositories.triton import CONFIG
from signalbox.repositories.version import SAVED_MODEL, FoundVersion, Refused, made, shown
from signalbox.wire.names import MODEL_NAME, RESERVED_MODEL_NAMES

TRITON_FOLDER: Final = "model.savedmodel"
MOST_NUMBER: Final = 2**63 - 1
MOST_VERSIONS: Final = 64
"""Of one model: its document holds them all."""
_NUMBER: Final = re.compile(r"[0-9]{1,30}\Z")
_FOLDERS: Final = frozenset({"assets", "assets.extra", "variables", TRITON_FOLDER})
"""An empty file with such a name stands for a folder, as some tools put one into a bucket."""
_PLATFORMS: Final = {
    "model.onnx": "ONNX",
    "model.plan": "TensorRT",
    "model.pt": "PyTorch",
    "model.py": "Python",
    "model.xml": "OpenVINO",
    "model.graphdef": "TensorFlow GraphDef",
    "model.dali": "DALI",
}
_SHAPES: Final = f"<model>/<number>/{SAVED_MODEL} or <model>/<number>/{TRITON_FOLDER}/{SAVED_MODEL}"


class FoundModel(msgspec.Struct, frozen=True):
    """versions: by number, at least one. config: Triton's ``config.pbtxt``, where there is one."""

    name: str
    layout: Literal["serving", "triton", "single"]
    versions: dict[int, FoundVersion]
    config: Entry | None = None


class Found(msgspec.Struct, frozen=True):
    """models: by name. refused: why something is not served, by its path below the repository, made printable.
    unlisted: names of models whose folders could not be listed: nothing is known of them.
    """

    models: dict[str, FoundModel]
    refused: dict[str, str]
    unlisted: frozenset[str] = frozenset()


class _Place(msgspec.Struct, frozen=True):
    """Where a SavedModel lies. model: its folder, empty = the repository itself. home: the folder that is a number."""

    level: int
    model: str
    number: str
    home: str
    folder: str

    @property
    def is_triton(self) -> bool:
        return self.folder.endswith(f"/{TRITON_FOLDER}")


def find(entries: Iterable[Entry], *, marker: str, name: str) -> Found:
    """All models of the repository ``name``, whose versions are whole once they hold a file ``marker`` (empty = none).

    Raises nothing, whatever the paths are: what cannot be served is refused with a sentence, or is no model at all.
    """
    return _Search(entries, marker, name).found()


class _Search:
    """One listing: its files by path, without the empty ones that stand for folders; and every folder in it."""

    def __init__(self, entries: Iterable[Entry], marker: str, name: str) -> None:
        self._files = {entry.path: entry for entry in entries}
        self._folders = _folders(self._files)
        self._marker, self._name = marker, name
        self._refused: dict[str, str] = {}
        marks = [path for path, entry in self._files.items() if not entry.size_bytes and self._is_folder(path)]
        for path in marks:
            del self._files[path]

    def found(self) -> Found:
        """Models and refusals. To be called once."""
        places = self._places()
        contents: dict[str, list[Entry]] = {folder: [] for folder in places}
        for path, entry in self._files.items():
            if (owner := _owner(path.rpartition("/")[0], places)) is not None:
                contents[owner].append(entry)
        members: dict[str, list[_Place]] = defaultdict(list)
        for place in places.values():
            members[place.model].append(place)
        found = (self._model(folder, members[folder], contents) for folder in members)
        models = {model.name: model for model in found if model}
        self._refuse_platforms(members.keys())
        return Found(models, self._refused)

    def _is_folder(self, path: str) -> bool:
        return path in self._folders or path.rpartition("/")[2] in _FOLDERS

    def _places(self) -> dict[str, _Place]:
        """Every SavedModel that lies where one may lie, by its folder; others are refused."""
        graphs = (path for path in self._files if path.rpartition("/")[2] == SAVED_MODEL)
        folders = sorted((path.rpartition("/")[0] for path in graphs), key=lambda folder: (folder.count("/"), folder))
        places: dict[str, _Place] = {}
        astray = []
        for folder in folders:
            place = _place(folder)
            if place is None:
                astray.append(folder)
            elif place.home not in places:  # else it is a file of the SavedModel above it
                places[folder] = place
        deepest = max((place.level for place in places.values()), default=0)
        for folder in [folder for folder, place in places.items() if place.level < deepest]:
            self._refuse(_below(folder, SAVED_MODEL), "It lies beside the folders of other models or versions.")
            del places[folder]
        for folder in astray:
            if _owner(folder, places) is None:
                further = " Add a repository for what lies deeper." if folder.count("/") > 1 else ""
                self._refuse(folder, f"A SavedModel is taken from {_SHAPES}.{further}")
        return places

    def _model(self, folder: str, places: list[_Place], contents: dict[str, list[Entry]]) -> FoundModel | None:
        name = folder or self._name
        if why := _nameless(name):
            self._refuse(folder, f"No model can be called '{shown(name)}': {why}.")
            return None
        versions = dict(self._versions(places, contents))
        if len(versions) > MOST_VERSIONS:
            self._refuse(name, f"It has {len(versions)} versions; the {MOST_VERSIONS} newest are taken.")
            versions = {number: versions[number] for number in sorted(versions)[-MOST_VERSIONS:]}
        if not versions:
            return None
        if any(place.is_triton for place in places):
            return FoundModel(name, "triton", versions, self._files.get(_below(folder, CONFIG)))
        return FoundModel(name, "serving" if folder else "single", versions)

    def _versions(self, places: list[_Place], contents: dict[str, list[Entry]]) -> Iterator[tuple[int, FoundVersion]]:
        by_number: dict[int, list[_Place]] = defaultdict(list)
        for place in places:
            by_number[int(place.number)].append(place)
        for number, (place, *others) in by_number.items():
            if others:
                for each in (place, *others):
                    self._refuse(each.home, f"{len(others) + 1} folders are version {number}. Leave one of them.")
            elif not 1 <= number <= MOST_NUMBER:
                self._refuse(place.home, f"A version is a number from 1 to {MOST_NUMBER}.")
            else:
                try:
                    yield number, made(place.folder, contents[place.folder], self._folders, self._is_marked(place))
                except Refused as why:
                    self._refuse(place.folder or SAVED_MODEL, str(why))

    def _is_marked(self, place: _Place) -> bool:
        return bool(self._marker) and any(
            _below(folder, self._marker) in self._files for folder in (place.home, place.folder)
        )

    def _refuse_platforms(self, models: Collection[str]) -> None:
        """Triton's models that are no SavedModel, by what they are."""
        configs = (path for path in self._files if path.count("/") == 1 and path.endswith(f"/{CONFIG}"))
        kinds = {top: "no SavedModel" for path in configs if (top := path.partition("/")[0]) not in models}
        for path in self._files if kinds else ():
            top, _, rest = path.partition("/")
            if top in kinds and (kind := _PLATFORMS.get(rest.rpartition("/")[2])):
                kinds[top] = kind
        for top, kind in kinds.items():
            self._refuse(top, f"This model of Triton's is {kind}; TensorFlow SavedModels are served, from {_SHAPES}.")

    def _refuse(self, path: str, why: str) -> None:
        self._refused[shown(path)] = why


def _folders(paths: Iterable[str]) -> set[str]:
    found: set[str] = set()
    for path in paths:
        above = path.rpartition("/")[0]
        while above and above not in found:
            found.add(above)
            above = above.rpartition("/")[0]
    return found


def _below(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _place(folder: str) -> _Place | None:
    parts = folder.split("/") if folder else []
    above = parts[:-1] if parts[1:] and parts[-1] == TRITON_FOLDER else parts
    if len(above) > 2 or (above and not _NUMBER.match(above[-1])):
        return None
    model, number = above[0] if above[1:] else "", above[-1] if above else "1"
    return _Place(len(above), model, number, "/".join(above), folder)


def _owner(path: str, places: dict[str, _Place]) -> str | None:
    """The folder of ``places`` that ``path`` is or lies in: a place has three parts at most, and lies in no other."""
    parts = path.split("/", 3)
    for count in (2, 3, 1, 0):
        if (folder := "/".join(parts[:count])) in places and len(parts) >= count:
            return folder
    return None


def _nameless(name: str) -> str:
    """Why no model can have a name; empty = it can."""
    if not MODEL_NAME.match(name):
        return "it takes 1 to 100 letters, digits, '_', '.' and '-', a letter or digit first"
    return "an API's paths have that word" if name.lower() in RESERVED_MODEL_NAMES else ""
