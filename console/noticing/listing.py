"""Asks repositories what they hold: folders by a walk, object stores by flat pages, never by a request a model."""

import asyncio
import itertools
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program.errors import NotFound, TooLarge
from signalbox.repositories import gaps
from signalbox.repositories.entry import Entry
from signalbox.repositories.folder import walk
from signalbox.repositories.layouts import Found, find
from signalbox.repositories.location import Location
from signalbox.repositories.store import ObjectStore
from signalbox.repositories.version import shown

REQUESTS_PER_S: Final = 50.0
"""Of all repositories in object stores together."""
MOST_GRAPH_BYTES: Final = 256 * 1024**2
"""Of a ``saved_model.pb``. Weights lie beside it."""

_OUTSIDE: Final = "It is a link that leads out of the repository: put the files here, or add a repository there."


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
        unlisted: dict[str, str] = {}
        async for page in gaps.pages(self._store(place), unlisted, self._pace.turn):
            entries += page
        found = await asyncio.to_thread(find, entries, marker=place.marker, name=place.name)
        refused = found.refused | {shown(folder): why for folder, why in unlisted.items()}
        alone = (place.name for folder in unlisted if folder.isdecimal())  # a version of one model alone
        return msgspec.structs.replace(found, refused=refused, unlisted=frozenset((*unlisted, *alone)))

    async def file(self, place: Place, entry: Entry, *, most_bytes: int) -> bytes:
        """The bytes of a file as it was listed.

        Raises :class:`TooLarge`, :class:`Conflict` where it is another file by now, :class:`NotFound`, and what a
        store raises.
        """
        if entry.size_bytes > most_bytes:
            raise TooLarge(f"{_name(entry.path)} has {entry.size_bytes} bytes; at most {most_bytes} are read.")
        if place.location.is_local:
            return await asyncio.to_thread(_read, place.location.folder, entry.path, most_bytes)
        await self._pace.turn()
        return await self._store(place).read(entry.path, most_bytes=most_bytes, etag=entry.etag)

    def _store(self, place: Place) -> ObjectStore:
        """Raises :class:`Misconfigured`."""
        store = self._stores.get(place.name)
        if store is None or store.location != place.location:
            store = self._stores[place.name] = ObjectStore.open(place.location, self._credentials, place.name)
        return store


def _found_locally(place: Place) -> Found:
    outside: list[str] = []
    entries = itertools.chain.from_iterable(walk(place.location.folder, outside=outside))
    found = find(entries, marker=place.marker, name=place.name)
    return msgspec.structs.replace(found, refused=found.refused | dict.fromkeys(map(shown, outside), _OUTSIDE))


def _read(root: Path, path: str, most_bytes: int) -> bytes:
    found = (root / path).resolve()
    if not found.is_relative_to(root.resolve()):
        raise NotFound(f"{path} leads out of the repository.")
    try:
        with found.open("rb") as file:
            data = file.read(most_bytes + 1)
    except OSError as error:
        raise NotFound(f"{path} cannot be read: {error.strerror}.") from error
    if len(data) > most_bytes:
        raise TooLarge(f"{_name(path)} has more than {most_bytes} bytes.")
    return data


def _name(path: str) -> str:
    return path.rpartition("/")[2]
