"""How the disk cache of a host is kept."""

from pathlib import Path

import msgspec


class CacheSettings(msgspec.Struct, frozen=True, kw_only=True):
    """folder: the same for all workers of the host; it is made when something is fetched, unless ``is_made``: at once.
    limit_bytes: of all versions together, 0 = half of its file system. dropped_s: what the catalog has dropped leaves
    after so long.

    credentials: folder with a file for each repository; None = the machine's own identity. fetches: versions of one
    repository at a time. streams: requests for files, or pieces of files, of one version at a time.
    """

    folder: Path
    is_made: bool = False
    limit_bytes: int = 0
    dropped_s: float = 30.0
    credentials: Path | None = None
    fetches: int = 4
    streams: int = 8
