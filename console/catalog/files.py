"""The files of a version: as they were listed in a repository or an object store, else as they lie in its folder."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from console.asking import ask
from console.catalog.models import ModelVersion
from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, NotFound
from signalbox.wire import messages, names
from signalbox.wire.manifests import Manifest, ManifestFile, VersionDigest
from signalbox.wire.names import Bucket

MOST_FILES: Final = 10_000


class VersionFiles(msgspec.Struct, frozen=True):
    """What a version consists of. place: its folder or URL. digest: of all bytes, empty while no host has had them.

    host: the one that had all bytes first, of a repository's version. listed_at: UTC seconds, 0 = just now.
    """

    place: str
    files: tuple[ManifestFile, ...]
    digest: str = ""
    host: str = ""
    listed_at: float = 0.0

    @property
    def size_bytes(self) -> int:
        """Of all files."""
        return sum(one.size_bytes for one in self.files)


def of(version: ModelVersion) -> VersionFiles:
    """The files of a version, by path.

    Raises :class:`NotFound` where no list of them is published yet, :class:`Conflict` where its folder cannot be read
    here, and :class:`Unavailable` without NATS.
    """
    if not version.is_listed:
        return VersionFiles(version.folder, tuple(sorted(_below(version.folder), key=_path)), version.digest)
    key = names.version_key(version.model.name, version.number)
    manifest, pinned = ask("files of versions", lambda bus: _read(bus, key))
    if manifest is None:
        raise NotFound(f"The files of {version} are not listed yet: the controller publishes them with the version.")
    files = tuple(sorted(manifest.files, key=_path))
    digest = pinned if pinned is not None else VersionDigest(digest=version.digest)
    return VersionFiles(manifest.url, files, digest.digest, digest.host, manifest.listed_at)


async def _read(bus: Bus, key: str) -> tuple[Manifest | None, VersionDigest | None]:
    listed = await bus.direct_get(Bucket.MANIFESTS.stream, names.key(Bucket.MANIFESTS, key))
    pinned = await bus.leader_get(Bucket.DIGESTS.stream, names.key(Bucket.DIGESTS, key))
    return (
        messages.decode(Manifest, listed.data) if listed is not None and listed.data else None,
        messages.decode(VersionDigest, pinned.data) if pinned is not None and pinned.data else None,
    )


def _below(folder: str) -> Iterator[ManifestFile]:
    """The files below a folder of this machine; links are not followed. Raises :class:`Conflict`."""
    found = 0
    try:
        for place, _, files in os.walk(folder, onerror=_raise):
            for name in files:
                found += 1
                if found > MOST_FILES:
                    raise Conflict(f"{folder} holds more than {MOST_FILES} files.")
                path = Path(place) / name
                yield ManifestFile(str(path.relative_to(folder)), path.lstat().st_size)
    except OSError as error:
        raise Conflict(
            f"The console cannot read {folder}: {error.strerror}. Workers read it where they run."
        ) from error


def _raise(error: OSError) -> None:
    raise error


def _path(one: ManifestFile) -> str:
    return one.path
