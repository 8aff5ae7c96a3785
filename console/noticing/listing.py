"""Asks repositories what they hold: folders by a walk, object stores by flat pages, never by a request a model."""

import asyncio
import itertools
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import NotFound, TooLarge
from signalbox.repositories.entry import Entry
from signalbox.repositories.folder import walk
from signalbox.repositories.layouts import Found, find
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore
from signalbox.wire.messages import ManifestFile

REQUESTS_PER_S: Final = 50.0
"""Of all repositories in object stores together."""
MOST_GRAPH_BYTES: Final = 256 * 1024**2
"""Of a ``saved_model.pb``. Weights lie beside it."""


class Place(msgspec.Struct, frozen=True):
    """A repository as its row has it."""

    name: str
    url: str
    marker: str = ""

    @property
    def location(self) -> Location:
        """Raises :class:`InvalidRequest` for a URL that no service has checked."""
        return Location.parse(self.url)


class Pace:
    """Spaces requests evenly: at most so many a second."""

    def __init__(self, per_s: float) -> None:
        self._gap_s = 1.0 / per_s
        self._next = 0.0

    async def turn(self) -> None:
        """Return when one more request may go out."""
        now = asyncio.get_running_loop().time()
        at = max(now, self._next)
        self._next = at + self._gap_s
        await asyncio.sleep(at - now)


class Repositories:
    """Reads repositories. credentials: as :meth:`ObjectStore.open` has it. One client is kept for each place."""

    def __init__(self, credentials: Path | None, per_s: float = REQUESTS_PER_S) -> None:
        self._credentials = credentials
        self._pace = Pace(per_s)
        self._stores: dict[str, ObjectStore] = {}

    async def find(self, place: Place) -> Found:
        """What lies there. Raises :class:`SignalboxError` where it cannot be listed as a whole."""
        if place.location.is_local:
            return await asyncio.to_thread(_found_locally, place)
        entries: list[Entry] = []
        pages = aiter(self._store(place).pages())
        while True:
            await self._pace.turn()
            page = await anext(pages, None)
            if page is None:
                break
            entries += page
        return await asyncio.to_thread(find, entries, marker=place.marker, name=place.name)

    async def graph(self, place: Place, below: str, file: ManifestFile) -> bytes:
        """The bytes of a ``saved_model.pb`` as it was listed, in the folder ``below`` the repository.

        Raises :class:`TooLarge`, :class:`Conflict` where it is another file by now, :class:`NotFound`, and what a
        store raises.
        """
        if file.size_bytes > MOST_GRAPH_BYTES:
            raise TooLarge(f"{file.path} has {file.size_bytes} bytes; at most {MOST_GRAPH_BYTES} are read.")
        path = f"{below}/{file.path}".lstrip("/")
        if place.location.is_local:
            return await asyncio.to_thread(_read, place.location.folder, path)
        await self._pace.turn()
        return await self._store(place).read(path, most_bytes=MOST_GRAPH_BYTES, etag=file.etag)

    def _store(self, place: Place) -> ObjectStore:
        """Raises :class:`Misconfigured`."""
        store = self._stores.get(place.name)
        if store is None or store.location != place.location:
            store = self._stores[place.name] = ObjectStore.open(place.location, self._credentials, place.name)
        return store


def _found_locally(place: Place) -> Found:
    entries = itertools.chain.from_iterable(walk(place.location.folder))
    return find(entries, marker=place.marker, name=place.name)


def _read(root: Path, path: str) -> bytes:
    found = (root / path).resolve()
    if not found.is_relative_to(root.resolve()):
        raise NotFound(f"{path} leads out of the repository.")
    try:
        with found.open("rb") as file:
            data = file.read(MOST_GRAPH_BYTES + 1)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > MOST_GRAPH_BYTES:
        raise TooLarge(f"{path} has more than {MOST_GRAPH_BYTES} bytes.")
    return data
