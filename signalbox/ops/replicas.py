"""Waits until restored streams are complete: on every replica, and for clients that pull from their consumers.

A cluster says that it has restored a stream when one node has it. The others fetch their copies afterwards, and a
consumer is led by any of the three: until its node has the stream's messages it has none to deliver, and says so.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from typing import Any, Final, NamedTuple

from signalbox.bus.client import Bus
from signalbox.program.errors import NotFound, Unavailable

STILL_S: Final = 60.0
"""Waiting is given up after this long without progress. A replica of many gibibytes makes progress all the time."""
_PAUSE_S: Final = 0.1

Info = dict[str, Any]


class Missing(NamedTuple):
    """What is still missing, in words, and how much: messages that a replica lacks, or 1."""

    what: str
    amount: int = 1


async def wait_current(bus: Bus, streams: Mapping[str, int | None], replicas: int, *, still_s: float = STILL_S) -> None:
    """Return when all copies of streams and consumers are current, and every consumer knows of what is due to it.

    streams: how many consumers each has; None: as many as the server lists.
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


async def _missing(bus: Bus, streams: Mapping[str, int | None], replicas: int) -> AsyncIterator[Missing]:
    for stream, consumers in streams.items():
        try:
            # Consumers first. A copy that has not begun to be fetched counts as current, and a consumer led there has
            # nothing pending; from then on until all of it is there the copy does not count as current.
            if consumers != 0:
                async for missing in _consumers_missing(bus, stream, consumers, replicas):
                    yield missing
            info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
            for missing in _copies_missing(f"stream {stream}", info, replicas):
                yield missing
        except (NotFound, Unavailable):  # not made yet on the node we asked, or without a leader
            yield Missing(f"stream {stream} has no leader")


async def _consumers_missing(bus: Bus, stream: str, consumers: int | None, replicas: int) -> AsyncIterator[Missing]:
    found, listed = await _consumers(bus, stream)
    expected = listed if consumers is None else consumers
    if len(found) < expected:
        lacking = expected - len(found)
        yield Missing(f"{lacking} of {expected} consumers of {stream} have no leader", lacking)
    for info in found:
        what = f"consumer {info['name']} of {stream}"
        for missing in _copies_missing(what, info, replicas):
            yield missing
        if not info.get("num_pending") and await _is_due(bus, stream, info):
            yield Missing(f"{what} has a message to deliver and does not know it")


async def kept_consumers(bus: Bus, stream: str) -> int:
    """How many of a stream's consumers a restore may wait for: all but those that live in memory.

    The stream's own count includes consumers of the projector and of a worker's scan, which end when not pulled from.
    """
    found, _ = await _consumers(bus, stream)
    return sum(not info["config"].get("mem_storage") for info in found)


async def _consumers(bus: Bus, stream: str) -> tuple[list[Info], int]:
    """What each consumer's leader says, and how many consumers there are; one without a leader says nothing."""
    found: list[Info] = []
    asked = 0
    while True:
        page = await bus.request_json(f"$JS.API.CONSUMER.LIST.{stream}", {"offset": asked})
        infos = page.get("consumers") or []
        found += infos
        asked += len(infos) + len(page.get("missing") or [])
        if not infos or asked >= page["total"]:
            return found, page["total"]


def _copies_missing(what: str, info: Info, replicas: int) -> list[Missing]:
    if replicas == 1:
        return []
    cluster = info.get("cluster") or {}
    copies = cluster.get("replicas") or []
    if not cluster.get("leader"):
        return [Missing(f"{what} has no leader")]
    if len(copies) < replicas - 1:
        return [Missing(f"{what} has {1 + len(copies)} of {replicas} copies")]
    return [
        Missing(f"the copy of {what} on {copy['name']} is not current", max(1, copy.get("lag", 0)))
        for copy in copies
        if not copy.get("current")
    ]


async def _is_due(bus: Bus, stream: str, consumer: Info) -> bool:
    """Whether the stream, as its own leader has it, holds a message that the consumer has not delivered yet."""
    after = consumer["delivered"]["stream_seq"]
    asked = {"seq": after + 1, "next_by_subj": consumer["config"].get("filter_subject", ">")}
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.GET.{stream}", asked)
    except NotFound:
        return False
    return True
