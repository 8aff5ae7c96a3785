"""Waits until restored streams are complete on every replica.

A cluster says that it has restored a stream when one node has it. The others fetch their copies afterwards.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Iterable
from typing import Any, Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.program.errors import NotFound, Unavailable

STILL_S: Final = 60.0
"""Waiting is given up after this long without progress. A replica of many gibibytes makes progress all the time."""
_PAUSE_S: Final = 0.1


class Missing(NamedTuple):
    """What is still missing, in words, and how much: messages that a replica lacks, or 1."""

    what: str
    amount: int = 1


async def wait_current(bus: Bus, streams: Iterable[str], replicas: int, *, still_s: float = STILL_S) -> None:
    """Return when all copies of the streams are current.

    Raises :class:`Unavailable`, which says what is missing, after ``still_s`` seconds without progress.
    """
    last, since = 0, time.monotonic()
    while missing := [each async for each in _missing(bus, streams, replicas)]:
        amount = sum(each.amount for each in missing)
        if amount < last:
            since = time.monotonic()
        elif time.monotonic() - since > still_s:
            raise Unavailable(
                f"All is restored, but not yet to be had: {missing[0].what}, and {len(missing) - 1} more. "
                f"Nothing has come for {still_s:g} s. Look at the nodes of NATS and their logs."
            )
        last = amount
        await asyncio.sleep(_PAUSE_S)


async def _missing(bus: Bus, streams: Iterable[str], replicas: int) -> AsyncIterator[Missing]:
    for stream in streams:
        try:
            info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
            for missing in _copies_missing(stream, info, replicas):
                yield missing
        except (NotFound, Unavailable):  # not made yet on the node we asked, or without a leader
            yield Missing(f"stream {stream} has no leader")


def _copies_missing(stream: str, info: dict[str, Any], replicas: int) -> list[Missing]:
    if replicas == 1:
        return []
    cluster = info.get("cluster") or {}
    copies = cluster.get("replicas") or []
    if not cluster.get("leader"):
        return [Missing(f"stream {stream} has no leader")]
    if len(copies) < replicas - 1:
        return [Missing(f"stream {stream} has {1 + len(copies)} of {replicas} copies")]
    return [
        Missing(f"the copy of stream {stream} on {copy['name']} is not current", max(1, copy.get("lag", 0)))
        for copy in copies
        if not copy.get("current")
    ]
