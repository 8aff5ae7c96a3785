"""The fetches of model versions that workers tell of, those of one host as one. Pure."""

from collections.abc import Iterable
from typing import Final, NamedTuple

from signalbox.program.words import bytes_of
from signalbox.wire.workerdocs import Residency, Worker

_MOST_LETTERS: Final = 200
"""Of a cause, as a job's owner is told."""


class Fetch(NamedTuple):
    """A version on its way to a host. size_bytes, rate (bytes a second): 0 = not known yet. fault: why it cannot go on.

    host: as :class:`Worker` has it.
    """

    model: str
    version: int
    host: str
    fetched_bytes: int = 0
    size_bytes: int = 0
    rate: float = 0.0
    fault: str = ""

    @property
    def words(self) -> str:
        """``41 of 100 MB``, empty where that is not known yet."""
        return bytes_of(self.fetched_bytes, self.size_bytes) if self.size_bytes else ""

    @property
    def cause(self) -> str:
        """The first sentence of the fault, to follow a colon: what comes after it is for operators."""
        said = self.fault.partition(". ")[0].rstrip(".")[:_MOST_LETTERS]
        return said[:1].lower() + said[1:] if said.isprintable() else ascii(said)


def under_way(workers: Iterable[Worker]) -> list[Fetch]:
    """Each fetch once: of the workers of a host one brings the files, and the others wait for it."""
    found: dict[tuple[str, str, int], Fetch] = {}
    for worker in workers:
        for told in worker.models:
            if told.state == "fetching":
                fetch = _fetch(told, worker.host)
                key = fetch.host, fetch.model, fetch.version
                found[key] = max(fetch, found.get(key, fetch), key=_progress)
    return list(found.values())


def fetch_of(model: str, version: int, workers: Iterable[Worker]) -> Fetch | None:
    """The fetch of one version that is furthest, on whichever host; None where none is told of."""
    found = (
        _fetch(told, worker.host)
        for worker in workers
        for told in worker.models
        if told.state == "fetching" and (told.model, told.version) == (model, version)
    )
    return max(found, key=_progress, default=None)


def _fetch(told: Residency, host: str) -> Fetch:
    return Fetch(
        told.model, told.version, host, told.fetched_bytes, told.fetch_bytes, told.fetch_rate, fault=told.error
    )


def _progress(fetch: Fetch) -> tuple[bool, bool, int]:
    return not fetch.fault, fetch.size_bytes > 0, fetch.fetched_bytes
