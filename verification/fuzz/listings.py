"""Repositories: a URL in the first line, a listing in the others. What is taken is written as it came; every listing
is found or refused in words that can be stored, and every file of a version is below its folder, once.
"""

from collections.abc import Hashable
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import InvalidRequest
from signalbox.repositories.entry import Entry
from signalbox.repositories.layouts import MOST_VERSIONS, find
from signalbox.repositories.location import Location
from signalbox.wire.names import MODEL_NAME

SEEDS: Final = Path(__file__).parent / "corpus" / "listings"
SHARE: Final = 20_000
TOKENS: Final = (
    *(b"s3://", b"file:///", b"az://", b"%2e", b"..", b"/", b"//", b"\n", b"@", b"?"),
    *(b"saved_model.pb", b"model.savedmodel", b"config.pbtxt", b"variables/variables.index", b"assets", b"model.onnx"),
    *(
        b"variables/variables.data-00000-of-00001",
        b"1",
        b"01",
        b"0",
        b"99999999999999999999",
        b"_SUCCESS",
        b"\xff",
        b"\0",
    ),
)
_MARKER: Final = "_SUCCESS"


def one(data: bytes) -> Hashable:
    """One repository. A file is empty where its line ends with a slash."""
    url, *lines = data.decode("utf-8", "surrogateescape").split("\n")
    entries = [Entry(line.removesuffix("/"), int(not line.endswith("/"))) for line in lines]
    found = find(entries, marker=_MARKER, name="zoo")
    paths = {entry.path for entry in entries}
    for name, model in found.models.items():
        assert MODEL_NAME.match(name)
        assert 1 <= len(model.versions) <= MOST_VERSIONS
        for version in model.versions.values():
            below = [f"{version.folder}/{file.path}".lstrip("/") for file in version.files]
            assert version.graph in version.files
            assert len(set(below)) == len(below)
            assert paths.issuperset(below)
            assert not any(".." in path.split("/") for path in below)
            msgspec.json.encode(version.files)
    assert all(text.isprintable() for pair in found.refused.items() for text in pair)
    layouts = tuple(sorted({model.layout for model in found.models.values()}))
    return _parsed(url), layouts, tuple(sorted({why[:12] for why in found.refused.values()}))


def _parsed(url: str) -> str:
    try:
        location = Location.parse(url)
    except InvalidRequest as error:
        return str(error)[-30:]
    assert location.url.rstrip("/") == url.rstrip("/")
    assert Location.parse(location.below("m", "1").url).is_within([location.url, "gs://"])
    return location.scheme
