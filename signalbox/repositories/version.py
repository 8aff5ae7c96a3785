"""A version that lies in a repository: its files, and which of them are not there yet."""

import re
from collections import defaultdict
from collections.abc import Collection, Iterator, Sequence
from itertools import islice
from typing import Final

import msgspec

from signalbox.repositories.entry import Entry
from signalbox.repositories.location import fault
from signalbox.wire.manifests import ManifestFile

SAVED_MODEL: Final = "saved_model.pb"
MOST_FILES: Final = 10_000
"""Of one version."""
MOST_MANIFEST_BYTES: Final = 512 * 1024
"""JSON of a version's files: half of what a message of NATS holds."""
_INDEX: Final = "variables/variables.index"
_DATA: Final = re.compile(r"variables/variables\.data-([0-9]{5})-of-([0-9]{5})\Z")
_MOST_MISSING: Final = 8
_MOST_SHOWN: Final = 200


class FoundVersion(msgspec.Struct, frozen=True):
    """folder: below the repository, empty = all of it. files: sorted by their paths, which are below the folder.

    graph: its ``saved_model.pb``, one of the files. missing: some of the files that the names of others promise and
    that are not there; empty = none. is_marked: the marker file is there.
    """

    folder: str
    files: tuple[ManifestFile, ...]
    graph: ManifestFile
    missing: tuple[str, ...]
    is_marked: bool


class Refused(Exception):
    """A version cannot be served, whatever else comes; the text says why."""


def made(folder: str, entries: Sequence[Entry], folders: Collection[str], is_marked: bool) -> FoundVersion:
    """The version in ``folder``, which has ``entries``, a SavedModel among them. Raises :class:`Refused`.

    folders: those of the repository.
    """
    if len(entries) > MOST_FILES:
        raise Refused(f"It has {len(entries)} files; at most {MOST_FILES} are taken.")
    start = len(folder) + 1 if folder else 0
    for entry in entries:
        if what := fault(entry.path):
            raise Refused(f"Its file {shown(entry.path[start:])!r} {what}.")
        if entry.path in folders:
            raise Refused(f"{shown(entry.path[start:])!r} is both a file and a folder of it.")
    files = tuple(
        ManifestFile(entry.path[start:], entry.size_bytes, entry.etag)
        for entry in sorted(entries, key=lambda entry: entry.path)
    )
    if len(msgspec.json.encode(files)) > MOST_MANIFEST_BYTES:
        raise Refused(f"The list of its files has more than {MOST_MANIFEST_BYTES >> 10} KiB.")
    by_path = {file.path: file for file in files}
    return FoundVersion(folder, files, by_path[SAVED_MODEL], tuple(_missing(by_path)), is_marked)


def shown(path: str) -> str:
    """A path that may be stored and shown, whatever its letters are."""
    return (path if path.isprintable() else ascii(path))[:_MOST_SHOWN]


def _missing(files: Collection[str]) -> Iterator[str]:
    """The first files that the most complete checkpoint lacks: TensorFlow's names say how many there are."""
    parts: dict[int, set[int]] = defaultdict(set)
    for path in files:
        if (found := _DATA.match(path)) and int(found[1]) < int(found[2]):
            parts[int(found[2])].add(int(found[1]))
    if not parts and _INDEX not in files:
        return
    if _INDEX not in files:
        yield _INDEX
    count = min(parts, key=lambda count: (count - len(parts[count]), count), default=1)
    lacking = (number for number in range(count) if number not in parts[count])
    yield from (f"variables/variables.data-{number:05}-of-{count:05}" for number in islice(lacking, _MOST_MISSING))
