"""Looks through the items of one side of a queue, some at a time, as any replica has them."""

from collections.abc import AsyncIterator, Mapping
from typing import Any, Final

from gateway_plugin.queues.items import REQUEST_TAG
from signalbox.bus.client import Bus, Stored
from signalbox.program.errors import NotFound, Unavailable
from signalbox.wire import queuenames
from signalbox.wire.names import Header
from signalbox.wire.queuenames import REAR, Side
from signalbox.wire.queues import Queue

MOST_SCANNED: Final = 10_000
"""Items that one call looks through."""
PAGE_BYTES: Final = 4 * 1024 * 1024
_PAGE: Final = 250
BEING_MADE: Final = "The queue is being made, or removed. Nothing was done: try again in a moment."


class Place:
    """Where to look: one side of a queue or its dead items. tags: what is looked for; only ``requestId`` narrows it."""

    def __init__(
        self, queue: Queue, side: Side, tags: Mapping[str, str], *, is_rear: bool = False, rank: str = "*"
    ) -> None:
        self.request_id = tags.get(REQUEST_TAG, "")
        self.tags = tags
        self.needs_scan = any(key != REQUEST_TAG or not value for key, value in tags.items())
        if is_rear:
            self.stream, self.subject = REAR, queuenames.rear_items(queue.name, side, self.request_id)
        else:
            self.stream = queuenames.queue_stream(queue.name, side)
            self.subject = queuenames.queue_items(queue.name, side, rank, self.request_id)


async def page(bus: Bus, place: Place, index: int, most: int, most_bytes: int) -> list[Stored]:
    """The first messages from an index on; empty where there is none. The first one comes however large it is."""
    asked = {"seq": max(1, index), "next_by_subj": place.subject, "batch": most, "max_bytes": most_bytes}
    return await bus.direct_batch(place.stream, asked)


async def head(bus: Bus, place: Place, index: int, most: int, most_bytes: int) -> list[Stored]:
    """The first messages from an index on, as :func:`page`; empty only where the leader has none either.

    A replica may be one write behind, and whoever was told of that write does not ask again.
    """
    found = await page(bus, place, index, most, most_bytes)
    if not found:
        newest = await bus.leader_next(place.stream, index, place.subject)
        return [newest] if newest is not None else []
    return found


async def pages(bus: Bus, place: Place, index: int) -> AsyncIterator[list[Stored]]:
    """Pages from an index on, to the end."""
    while True:
        found = await page(bus, place, index, _PAGE, PAGE_BYTES)
        if not found:
            return
        yield found
        index = found[-1].seq + 1


async def count_from(bus: Bus, place: Place, index: int) -> int:
    """How many messages there are from an index on. The server counts them."""
    found = await page(bus, place, index, 1, 1)
    return int(found[0].headers[Header.NUM_PENDING]) + 1 if found else 0


async def state_of(bus: Bus, stream: str) -> dict[str, int]:
    """``messages``, ``first_seq``, ``last_seq`` of a stream. Raises :class:`Unavailable` where it is not made yet."""
    try:
        state: dict[str, int] = (await bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))["state"]
    except NotFound as error:
        raise Unavailable(BEING_MADE, retry_after_s=1.0) from error
    return state


async def consumer_of_group(bus: Bus, stream: str, consumer: str) -> dict[str, Any]:
    """A group's consumer in NATS's words. Raises :class:`NotFound` where there is no such group."""
    try:
        return await bus.request_json(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")
    except NotFound as error:
        group = queuenames.group_of_consumer(consumer)
        raise NotFound(f'Nobody watches, or has watched of late, with the group "{group}".', field="group") from error
