"""What is pinned of a version in NATS: its list of files, and the digest that its bytes have for ever."""

import time
from pathlib import PurePosixPath

from signalbox.bus.client import Bus
from signalbox.bus.table import put
from signalbox.program.errors import NotServing, SignalboxError, Unavailable
from signalbox.wire import names
from signalbox.wire.manifests import Manifest, VersionDigest
from signalbox.wire.messages import decode
from signalbox.wire.modeldocs import Version
from signalbox.wire.names import Bucket
from workers.diskcache.place import Key


class OtherBytes(NotServing):
    """The version's files are not those that it was made of."""


async def manifest(bus: Bus, key: Key, version: Version) -> Manifest:
    """The files of a version. Raises :class:`Unavailable` where no list of them was published for its URL."""
    subject = names.key(Bucket.MANIFESTS, names.version_key(*key))
    stored = await bus.direct_get(Bucket.MANIFESTS.stream, subject)
    if stored is None or not stored.data:
        raise Unavailable("The list of the version's files was not published yet.")
    found = decode(Manifest, stored.data)
    if found.url.rstrip("/") != version.path.rstrip("/") or not found.files:
        raise Unavailable("The list of the version's files that is published is another version's.")
    for file in found.files:
        path = PurePosixPath(file.path)
        if path.is_absolute() or ".." in path.parts or str(path) != file.path or "\0" in file.path:
            raise OtherBytes(f"The list of the version's files names a file that cannot be: {file.path[:200]!r}.")
    return found


async def digest(bus: Bus, key: Key) -> VersionDigest | None:
    """What is known of a version's bytes, from the leader; None: no host has had all of them."""
    subject = names.key(Bucket.DIGESTS, names.version_key(*key))
    stored = await bus.leader_get(Bucket.DIGESTS.stream, subject)
    return decode(VersionDigest, stored.data) if stored is not None and stored.data else None


async def agree(bus: Bus, key: Key, found: str, *, registered: str, host: str) -> None:
    """Return where a version's bytes have the digest that they shall have; the first host says which that is.

    registered: the digest in the model's document, where it has one. Raises :class:`OtherBytes`.
    """
    known = VersionDigest(digest=registered) if registered else await _first(bus, key, found, host)
    if known.digest != found:
        by = f"which {known.host} was the first to have" if known.host else "which it was registered with"
        raise OtherBytes(
            f"The files have changed: their digest is {found[:12]}, and not {known.digest[:12]}, {by}. Put the old"
            " files back, or publish the new ones under another number."
        )


async def _first(bus: Bus, key: Key, found: str, host: str) -> VersionDigest:
    """The digest that stands, if need be the one that was found here."""
    known = await digest(bus, key)
    if known is not None:
        return known
    mine = VersionDigest(digest=found, host=host, at=time.time())
    try:
        await put(bus, Bucket.DIGESTS, names.version_key(*key), mine, expect=0)
    except SignalboxError:  # another host was first, or it is not known whether it is stored
        known = await digest(bus, key)
        if known is None:
            raise
        return known
    return mine
