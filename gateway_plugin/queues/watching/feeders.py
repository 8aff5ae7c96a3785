"""The feeders of all groups that are watched here: each is made for its first watch, and closed with its last."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Protocol

from gateway_plugin.queues.scanning import BEING_MADE
from gateway_plugin.queues.watching.feeder import Feeder
from gateway_plugin.queues.watching.groups import Place
from signalbox.bus.client import Bus
from signalbox.program import log
from signalbox.program.errors import NotFound, SignalboxError, Unavailable
from signalbox.program.tasks import SingleFlight
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import ACK_WAIT_S, Queue, QueueMark


class Tables(Protocol):
    """What is known of queues (:class:`gateway_plugin.queues.tables.QueueTables`)."""

    def find(self, name: str) -> Queue | None:
        """A queue, None if there is none of that name."""

    def mark(self, name: str, side: Side) -> QueueMark | None:
        """Where a side's stream has ended, None if it has not."""

    def on_change(self, callback: Callable[[str], None]) -> None:
        """Call ``callback(name of the queue)`` after each change."""


class Feeders:
    """By group. bus: to the account of the queue service. :class:`Watches` has :meth:`extend` and :meth:`tend` run."""

    def __init__(self, bus: Bus, tables: Tables) -> None:
        self._bus = bus
        self._tables = tables
        self._loop = asyncio.get_running_loop()
        self._feeders: dict[Place, Feeder] = {}
        self._starting: SingleFlight[Place, Feeder] = SingleFlight()
        self._extended_at = self._loop.time()

    def __contains__(self, place: Place) -> bool:
        """Whether there is one, or it is being made."""
        return place in self._feeders or place in self._starting

    def __iter__(self) -> Iterator[Feeder]:
        return iter(list(self._feeders.values()))

    async def close(self) -> None:
        """Close all. Idempotent."""
        await self._starting.close()
        for feeder in self:
            await feeder.close()

    def find(self, place: Place) -> Feeder | None:
        """The feeder of a group, None where nobody watches for it here."""
        return self._feeders.get(place)

    async def open(self, place: Place, queue: Queue, index: int) -> Feeder:
        """The feeder of a group, made where there is none; index: where a group that nobody knows yet begins.

        Raises as :meth:`Feeder.start`, and :class:`Unavailable` while there is that of an earlier queue of the name.
        """
        feeder = await self._open(place, queue, index)
        while feeder.is_closed:  # its last watch ended just now
            feeder = await self._open(place, queue, index)
        if feeder.created_at != queue.created_at:  # its watches end just now
            raise Unavailable(BEING_MADE, retry_after_s=1.0)
        return feeder

    async def close_idle(self, feeder: Feeder) -> None:
        """Close one that has no watch."""
        if not len(feeder.sharing):
            if self._feeders.get(feeder.place) is feeder:
                del self._feeders[feeder.place]
            await feeder.close()

    def changed(self, name: str) -> None:
        """A queue has another document, or a side of it has ended."""
        queue = self._tables.find(name)
        for feeder in [one for place, one in self._feeders.items() if place.queue == name]:
            feeder.changed()
            is_there = queue is not None and queue.created_at == feeder.created_at
            for watch in [] if is_there else feeder.sharing:
                watch.end(NotFound("The queue was removed."))

    async def extend(self) -> None:
        """Keep what is given out here. What the server has not heard of for long it has given to others by now."""
        began = self._loop.time()
        if began - self._extended_at > ACK_WAIT_S:
            for feeder in self._feeders.values():
                feeder.forget(began - ACK_WAIT_S)
        for feeder in self._feeders.values():
            feeder.extend()
        await self._bus.flush()
        self._extended_at = began

    async def tend(self) -> None:
        """Find what no event tells of, see :meth:`Feeder.tend`."""
        for feeder in self:
            try:
                await self._tend_one(feeder)
            except SignalboxError as error:  # the others are tended all the same
                log.warning("queue.group_not_tended", **feeder.place._asdict(), reason=error.public_message)

    async def _tend_one(self, feeder: Feeder) -> None:
        if len(feeder.sharing):
            await feeder.tend()
        else:  # whoever asked for it has gone meanwhile
            await self.close_idle(feeder)

    async def _open(self, place: Place, queue: Queue, index: int) -> Feeder:
        feeder = self._feeders.get(place)
        if feeder is not None:
            return feeder
        return await self._starting.ask(place, lambda: self._make(place, queue, index))

    async def _make(self, place: Place, queue: Queue, index: int) -> Feeder:
        def newest() -> Queue:
            """Its document; once that is removed, as the queue was when its first watch was opened."""
            return self._tables.find(place.queue) or queue

        feeder = Feeder(self._bus, place, newest, lambda: self._tables.mark(place.queue, place.side))
        try:
            await feeder.start(index)
        except BaseException:
            await feeder.close()
            raise
        self._feeders[place] = feeder
        return feeder
