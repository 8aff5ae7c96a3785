"""Reads items of a side of a queue from an index on, and waits for them. What is deleted is given to one reader."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec

from gateway_plugin.queues import removal
from gateway_plugin.queues.arrivals import Arrivals
from gateway_plugin.queues.items import Item, item_of
from gateway_plugin.queues.scanning import MOST_SCANNED, Place, head, pages, state_of
from gateway_plugin.queues.store import BYTES, ITEMS
from gateway_plugin.queues.taking import MOST_BYTES, MOST_ITEMS, Taking
from signalbox.bus.client import Bus
from signalbox.program.errors import InvalidRequest
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import Queue

NEWEST: Final = -1
LONGEST_S: Final = 60.0
_MARGIN_S: Final = 0.5
_MARGIN: Final = 0.1
"""An empty answer comes so much of the time earlier, and no more than ``_MARGIN_S``: the product's client reads for
exactly the time that it asks for."""


class Get(msgspec.Struct, frozen=True):
    """What is read. index: of the first item at least, 0 = from the head, -1 = the newest alone. length: items at most.

    timeout_s: how long to wait for a first one. is_deleting: they are removed for all groups. tags: that each has.
    is_rear: of the dead items, for which nobody waits.
    """

    index: int = 0
    length: int = 1
    timeout_s: float = 0.0
    is_deleting: bool = True
    tags: Mapping[str, str] = msgspec.field(default_factory=dict)
    is_rear: bool = False

    @property
    def takes_any(self) -> bool:
        """Whether it takes away whatever is first."""
        return self.is_deleting and not self.tags and self.index == 0


class Reader:
    """Reads the items of all queues. bus: to the account of the queue service."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.arrivals = Arrivals(bus)
        self._taking = Taking(bus)

    async def close(self) -> None:
        """Read no more, and follow the connection no more. Idempotent."""
        self.arrivals.close()
        await self._taking.close()

    async def get(self, queue: Queue, side: Side, asked: Get) -> list[Item]:
        """The items, by index; empty where none came in time. Bounds of :data:`MOST_ITEMS` and :data:`LONGEST_S` hold.

        Each item that is deleted is given to one reader; where NATS does not say who removed it, perhaps to two. Raises
        :class:`Unavailable`, and :class:`InvalidRequest` where more would have to be looked through than may be.
        """
        place = Place(queue, side, asked.tags, is_rear=asked.is_rear)
        found = await self._read(place, asked)
        if not found and asked.timeout_s > 0 and not asked.is_rear:
            found = await self._wait(queue, side, place, asked)
        ITEMS.labels("get").inc(len(found))
        BYTES.labels("get").inc(sum(len(item.data) for item in found))
        return found

    async def _wait(self, queue: Queue, side: Side, place: Place, asked: Get) -> list[Item]:
        until = asyncio.get_running_loop().time() + patience_s(asked.timeout_s)
        async with self.arrivals.waiting(
            queue.name, side, takes_any=asked.takes_any, request_id=place.request_id
        ) as waiter:
            found = await self._read(place, asked)
            while not found and await waiter.wait(until):
                found = await self._read(place, asked)
            waiter.found()
            return found

    async def _read(self, place: Place, asked: Get) -> list[Item]:
        """What is there now. Another reader may be quicker with all that is found: then what comes behind it."""
        if asked.takes_any:
            return await self._taking.take(place, asked.length)
        if asked.index == NEWEST:
            found = await self._newest(place)
            return await self._taken(place, found) if asked.is_deleting else found
        index = asked.index
        while True:
            found = await self._look(place, asked, index)
            if not found or not asked.is_deleting:
                return found
            taken = await self._taken(place, found)
            if taken:
                return taken
            index = found[-1].index + 1

    async def _look(self, place: Place, asked: Get, index: int) -> list[Item]:
        if place.needs_scan:
            return await self._scan(place, asked, index)
        most = max(1, min(asked.length, MOST_ITEMS))
        return [item_of(stored) for stored in await head(self._bus, place, index, most, MOST_BYTES)]

    async def _scan(self, place: Place, asked: Get, index: int) -> list[Item]:
        """Items with all of the tags, from an index on."""
        matching: list[Item] = []
        seen = size = 0
        async for found in pages(self._bus, place, index):
            for item in map(item_of, found):
                if not item.matches(place.tags):
                    continue
                if matching and size + item.size > MOST_BYTES:
                    return matching
                matching.append(item)
                size += item.size
                if len(matching) >= min(asked.length, MOST_ITEMS):
                    return matching
            seen += len(found)
            if seen >= MOST_SCANNED and matching:
                return matching
            if seen >= MOST_SCANNED:
                raise _too_many(found[-1].seq + 1)
        return matching

    async def _newest(self, place: Place) -> list[Item]:
        """The newest item, with all of the tags where there are some."""
        if not place.needs_scan:
            stored = await self._bus.leader_get(place.stream, place.subject)
            return [item_of(stored)] if stored is not None else []
        last = (await state_of(self._bus, place.stream))["last_seq"]
        newest: list[Item] = []
        async for found in pages(self._bus, place, last - MOST_SCANNED):
            newest = [item for item in map(item_of, found) if item.matches(place.tags)][-1:] or newest
        return newest

    async def _taken(self, place: Place, found: Sequence[Item]) -> list[Item]:
        """Those of the items that are removed by this call."""
        removed = await removal.remove(self._bus, place.stream, [item.index for item in found])
        return [item for item in found if item.index in removed]


def patience_s(timeout_s: float) -> float:
    """Seconds until an empty answer to one who waits so long."""
    longest_s = min(timeout_s, LONGEST_S)
    return longest_s - min(_MARGIN_S, _MARGIN * longest_s)


def _too_many(index: int) -> InvalidRequest:
    return InvalidRequest(
        f"None of {MOST_SCANNED} items has these tags, and one call looks through no more. Go on with _index_={index}, "
        "or ask by requestId.",
        index=index,
        limit=MOST_SCANNED,
    )
