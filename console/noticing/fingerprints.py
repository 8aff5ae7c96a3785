"""Tells whether a version's files in a repository are those of another listing, without keeping their list."""

import hashlib
from collections.abc import Sequence
from typing import Final

from signalbox.repositories.entry import Entry
from signalbox.wire.manifests import ManifestFile

_HALF: Final = 32


def of(files: Sequence[ManifestFile]) -> str:
    """Fingerprint of a version's files: 64 letters, the first half of their names and sizes, the rest of all."""
    names, all_ = hashlib.sha256(), hashlib.sha256()
    for file in files:
        names.update(f"{file.path}\0{file.size_bytes}\n".encode())
        all_.update(f"{file.path}\0{file.size_bytes}\0{file.etag}\n".encode())
    return names.hexdigest()[:_HALF] + all_.hexdigest()[:_HALF]


def of_config(file: Entry | None) -> str:
    """Fingerprint of a model's ``config.pbtxt``; empty where there is none."""
    return hashlib.sha256(f"{file.size_bytes}\0{file.etag}".encode()).hexdigest()[:_HALF] if file is not None else ""


def have_equal_sizes(one: str, other: str) -> bool:
    """Whether names and sizes are the same, so that the bytes may be."""
    return one[:_HALF] == other[:_HALF]
