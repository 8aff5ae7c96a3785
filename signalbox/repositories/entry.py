"""A file of a repository, as a listing has it."""

from typing import Final

import msgspec

MOST_ENTRIES: Final = 1_000_000
"""Files of one repository: what a listing holds in memory, some 200 bytes each. Larger ones are not listed."""
PAGE: Final = 1000
"""Files that come together, at most: a page of S3, Google Cloud Storage and Azure."""


class Entry(msgspec.Struct, frozen=True, gc=False):
    """path: below the repository, with ``/``. etag: the store's, without quotes; of a folder ``<mtime in ns>-<bytes>``;
    empty = it gave none."""

    path: str
    size_bytes: int
    etag: str = ""
