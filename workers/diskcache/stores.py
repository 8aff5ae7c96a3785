"""The object stores that versions are fetched from: one connection for each repository and bucket."""

from pathlib import Path

from signalbox.repositories.location import Location
from workers.diskcache.download import Store


class Stores:
    """credentials: see :class:`workers.diskcache.settings.CacheSettings`."""

    def __init__(self, credentials: Path | None) -> None:
        self._credentials = credentials
        self._open: dict[tuple[str, Location], Store] = {}

    def open(self, url: str, repository: str) -> tuple[Store, str]:
        """The store of a version's URL, and the version's folder in it.

        Raises :class:`InvalidRequest` where the URL is none, and :class:`Misconfigured`.
        """
        from signalbox.repositories.store import ObjectStore  # 5 MB, which most workers need not have

        location = Location.parse(url)
        bucket = Location(location.scheme, location.bucket)
        store = self._open.get((repository, bucket))
        if store is None:
            store = self._open[repository, bucket] = ObjectStore.open(bucket, self._credentials, repository)
        return store, location.prefix
