"""Builds the rows of the fetches that are under way: what comes to which host, and what waits for it. Pure."""

from collections.abc import Callable, Iterable
from typing import Final

from console.board.rows import FetchRow
from signalbox.jobs.fetches import Fetch, under_way
from signalbox.wire.workerdocs import Worker

MOST: Final = 50
"""Fetches that are shown: those that most jobs wait for."""


def rows(workers: Iterable[Worker], waiting: Callable[[str], int]) -> dict[str, FetchRow]:
    """Build a row for each fetch that workers tell of. waiting: jobs of a model that have not begun.

    Above :data:`MOST` the last row stands for the others.
    """
    found = [(waiting(fetch.model), fetch) for fetch in under_way(workers)]
    found.sort(key=lambda one: (-one[0], not one[1].size_bytes, one[1].model, one[1].version, one[1].host))
    shown = {f"{fetch.model}:{fetch.version}@{fetch.host}": _row(fetch, jobs) for jobs, fetch in found[:MOST]}
    if others := found[MOST:]:
        shown[""] = FetchRow(others=len(others))
    return shown


def _row(fetch: Fetch, jobs: int) -> FetchRow:
    return FetchRow(
        model=fetch.model,
        version=fetch.version,
        host=fetch.host,
        fetched_bytes=fetch.fetched_bytes,
        size_bytes=fetch.size_bytes,
        bytes_per_s=fetch.rate,
        words=fetch.words,
        fault=fetch.fault,
        waiting=jobs,
    )
