"""Hosts, and what their disk caches hold: as their workers wrote it, beside what those say of each version now."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from console.asking import ask
from console.board.conditions import Condition
from console.board.rows import LoadedVersion, WorkerRow
from console.fleet import agents, workers
from signalbox.bus.client import Bus
from signalbox.program.errors import InvalidRequest, NotFound
from signalbox.wire import messages, names
from signalbox.wire.manifests import CachedFiles, HostCache
from signalbox.wire.names import Bucket

STATES: Final = {
    "loaded": "in a worker's memory",
    "loading": "loading",
    "fetching": "being fetched",
    "failed": "cannot be served",
    "cached": "on the disk only",
    "partial": "in part, and not being fetched",
}
"""What a version of a cache is filtered by."""
_RANK: Final = {"ready": "loaded", "spare": "loaded", "loading": "loading", "fetching": "fetching", "failed": "failed"}
"""States that workers report, the one that counts most first, and what a version is called then."""
_MARKS: Final = {"loaded": "ready", "cached": "idle", "partial": "late"}
"""Words of the stylesheet, where they differ."""


class Host(NamedTuple):
    """id: of its lock directory. name: as the machine calls itself, empty where it is not known. workers: those that
    are here, by id. cache: None where none was written; of a list without its versions.
    """

    id: str
    name: str
    workers: tuple[str, ...]
    cache: HostCache | None


class CachedRow(NamedTuple):
    """files: as the cache has them. state: of :data:`STATES`. condition: for pages. workers: those that say so."""

    files: CachedFiles
    state: str
    condition: Condition
    workers: tuple[str, ...]


class CachePage(NamedTuple):
    """rows: the last used first. found: how many match, on all pages. next: number of the next page, 0 = none."""

    host: Host
    rows: Sequence[CachedRow]
    found: int
    next: int


def hosts() -> list[Host]:
    """Hosts with workers, or with a cache that was written a short while ago, by name. Raises :class:`Unavailable`."""
    caches = {cache.host: cache for cache in ask("caches of hosts", lambda bus: _read(bus, "*"))}
    here = _workers_by_host()
    known = caches.keys() | here.keys() | agents.present().keys()
    found = [_host(name, here.get(name, ()), caches.get(name)) for name in known]
    return sorted(found, key=lambda host: (host.name, host.id))


def page(
    host: str, *, q: str = "", repository: str = "", state: str = "", number: int = 1, size: int = 50
) -> CachePage:
    """A page of what is in a host's cache. q: part of a model's name. number: from 1.

    Raises :class:`NotFound`, :class:`InvalidRequest` for an unknown state, and :class:`Unavailable` without NATS.
    """
    if state and state not in STATES:
        raise InvalidRequest(f"state: one of {', '.join(STATES)}.")
    caches = ask("the cache of a host", lambda bus: _read(bus, names.token(host)))
    here = _workers_by_host().get(host, ())
    if not (caches or here or host in agents.present()):
        raise NotFound(f"There is no host {host[:150]!r} with a worker.")
    found = _host(host, here, caches[0] if caches else None)
    reports = _reports(here)
    rows = [
        row
        for files in (found.cache.versions if found.cache is not None else ())
        if q.lower() in files.model.lower() and repository in {"", files.repository}
        if (row := _row(files, reports.get((files.model, files.version), ()))).state == (state or row.state)
    ]
    end = number * size
    return CachePage(found, rows[end - size : end], len(rows), number + 1 if len(rows) > end else 0)


def _row(files: CachedFiles, reports: Sequence[tuple[str, LoadedVersion]]) -> CachedRow:
    """reports: what workers of the host say of the version."""
    for word, state in _RANK.items():
        saying = [(worker, loaded) for worker, loaded in reports if loaded.state == word]
        if saying:
            # where one of them has no trouble, it brings the files that the others wait for
            why = saying[0][1].error if all(loaded.error for _, loaded in saying) else ""
            return _made(files, state, why, tuple(worker for worker, _ in saying))
    return _made(files, "cached" if files.digest else "partial", "", ())


def _made(files: CachedFiles, state: str, why: str, saying: tuple[str, ...]) -> CachedRow:
    is_stuck = state == "fetching" and why
    condition = (
        Condition("failed", "cannot be fetched", why) if is_stuck else Condition(_MARKS.get(state, state), state, why)
    )
    return CachedRow(files, state, condition, saying)


def _reports(here: Iterable[WorkerRow]) -> dict[tuple[str, int], list[tuple[str, LoadedVersion]]]:
    found = defaultdict(list)
    for worker in here:
        for loaded in worker.models:
            found[loaded.model, loaded.version].append((worker.id, loaded))
    return found


def _workers_by_host() -> dict[str, list[WorkerRow]]:
    found = defaultdict(list)
    for _, row in sorted(workers.present().items()):
        if row.state != "lost":
            found[id_of(row.host)].append(row)
    return found


def id_of(host: str) -> str:
    """A host's id, of what presence calls it."""
    return host.partition("/")[0]


def _host(name: str, here: Iterable[WorkerRow], cache: HostCache | None) -> Host:
    return Host(name, cache.name if cache is not None else "", tuple(row.id for row in here), cache)


async def _read(bus: Bus, key: str) -> list[HostCache]:
    """The documents under a key; of all hosts without their versions."""
    found = []
    async for some in bus.list_pages(Bucket.CACHES.stream, [names.key(Bucket.CACHES, key)]):
        for stored in some:
            if stored.data:
                cache = messages.decode(HostCache, stored.data)
                found.append(msgspec.structs.replace(cache, versions=()) if key == "*" else cache)
    return found
