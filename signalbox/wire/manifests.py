"""Documents about the files of versions: which there are, which bytes they have, which a host has cached."""

import msgspec

from signalbox.wire.messages import Doc


class ManifestFile(msgspec.Struct, frozen=True):
    """A file of a version. path: below the version's folder, with ``/``. etag: the store's, empty = it gave none."""

    path: str
    size_bytes: int
    etag: str = ""


class Manifest(Doc, frozen=True, kw_only=True):
    """KV ``manifests``: the files of a version that a repository brought or has. Key: ``version_key(model, version)``.

    url: the version's folder. Read when the version is fetched, and kept by no program.
    """

    repository: str
    url: str
    files: tuple[ManifestFile, ...]
    listed_at: float = 0.0


class VersionDigest(Doc, frozen=True, kw_only=True):
    """KV ``digests``: which bytes a version has, for ever. Key: ``version_key(model, version)``; written create-only.

    digest: as :class:`signalbox.wire.modeldocs.Version` has it. host: the one that had all bytes first.
    """

    digest: str
    host: str = ""
    at: float = 0.0


class CachedFiles(msgspec.Struct, frozen=True, array_like=True):
    """A version in a host's disk cache. size_bytes: of all its files. used_at: when it was last fetched, loaded or
    unloaded, UTC unix seconds. digest: of its bytes; empty = not all of its
    files are there.
    """

    model: str
    version: int
    repository: str
    size_bytes: int
    used_at: int
    digest: str = ""


class HostCache(Doc, frozen=True, kw_only=True):
    """KV ``caches``: the disk cache that the workers of a host share, written by the one that changed it, with a TTL.
    Key: ``token(host)``.

    host: id of the lock directory, what a worker's ``host`` has before the slash. name: as the machine calls itself.
    at: when it was so. used_bytes: of all versions. count: how many there are. versions: the last used first, as many
    as the document holds.
    """

    host: str
    name: str
    at: float
    used_bytes: int
    limit_bytes: int
    count: int
    versions: tuple[CachedFiles, ...] = ()
