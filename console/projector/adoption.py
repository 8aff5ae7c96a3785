"""Rows for queued jobs whose acceptance nobody heard: it is told once, on a core subject, and kept nowhere."""

from collections.abc import AsyncIterator, Iterable
from itertools import islice
from typing import Any, Final

from channels.db import database_sync_to_async

from console.jobs.models import Job
from console.projector import store
from console.projector.fold import Heard
from signalbox.bus import Bus
from signalbox.messages import Job as Accepted
from signalbox.messages import decode
from signalbox.names import Header, Stream, job_anywhere

LIMIT: Final = 20_000
"""With more jobs queued than this, names are not listed: they get their rows when they are claimed."""
_CHUNK: Final = 50


async def adopt_queued(bus: Bus, limit: int = LIMIT) -> int:
    """Rows for queued jobs nobody told us of; returns how many. Does nothing with more than ``limit`` queued.

    Names are listed first; only messages of jobs without a row are read, a few at a time. Safe to repeat.
    """
    info = await bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
    if not 0 < info["state"]["messages"] <= limit:
        return 0
    queued = {name.rpartition(".")[2] async for name in _names(bus)}
    count = 0
    for chunk in _chunks(queued - await _known(queued)):
        stored = [await bus.leader_get(Stream.JOBS, job_anywhere(job_id)) for job_id in chunk]
        heard = [
            Heard(one.time, 0, job=decode(Accepted, one.headers[Header.JOB]))
            for one in stored if one is not None
        ]  # fmt: skip
        await database_sync_to_async(store.write)(heard)
        count += len(heard)
    return count


async def _names(bus: Bus) -> AsyncIterator[str]:
    offset = 0
    while True:
        info: dict[str, Any] = await bus.request_json(
            f"$JS.API.STREAM.INFO.{Stream.JOBS}", {"subjects_filter": "jobs.>", "offset": offset}
        )
        names = info["state"].get("subjects") or {}
        for name in names:
            yield name
        offset += len(names)
        if not names or offset >= int(info.get("total", 0)):
            return


@database_sync_to_async
def _known(ids: set[str]) -> set[str]:
    found: set[str] = set()
    for chunk in _chunks(ids, 500):
        found.update(Job.objects.filter(pk__in=chunk).values_list("pk", flat=True))
    return found


def _chunks(ids: Iterable[str], size: int = _CHUNK) -> Iterable[list[str]]:
    rest = iter(ids)
    while chunk := list(islice(rest, size)):
        yield chunk
