"""Those who wait for the next item of a side of a queue: one subscription a side, and no poll.

Each item wakes all who may want it, but of those who take whatever comes only one: it takes the item away from the
others. One that leaves without having looked passes its item on to the next.
"""

import asyncio
import contextlib
from collections import defaultdict, deque
from collections.abc import AsyncIterator
from typing import Final

from signalbox.bus.client import Bus, Message
from signalbox.bus.subscription import Subscription
from signalbox.bus.transport.interface import Transport
from signalbox.wire import names, queuenames
from signalbox.wire.queuenames import Side


class Waiter:
    """One who waits. Made by :meth:`Arrivals.waiting`."""

    __slots__ = ("_arrived", "_is_looking", "_side")

    def __init__(self, side: "_Side") -> None:
        self._side = side
        self._arrived = asyncio.Event()
        self._is_looking = False

    @property
    def is_woken(self) -> bool:
        """Whether an item has come that it has not looked for."""
        return self._arrived.is_set()

    def wake(self) -> None:
        """An item has come, or may have."""
        self._arrived.set()

    async def wait(self, until: float) -> bool:
        """Wait for an item until an instant of the loop's clock; False where none came."""
        self._is_looking = False
        if not self._arrived.is_set():
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(until):
                    await self._arrived.wait()
        if not self._arrived.is_set():
            return False
        self._arrived.clear()
        self._is_looking = True
        self._side.stand_in_line(self)  # what comes while it looks wakes it again where nobody else is free
        return True

    def found(self) -> None:
        """What woke it is taken, or is not there any more."""
        self._is_looking = False

    @property
    def owes(self) -> bool:
        """Whether an item that woke it may still lie there."""
        return self._is_looking or self._arrived.is_set()


class _Side:
    """One side of a queue that is waited for.

    takers: who take whatever comes and are not woken, the one first that was woken least lately. by_request: who wait
    for the item of one request, by its token in the subject. others: who want some items only.
    """

    def __init__(self, connection: Transport, subject: str) -> None:
        self.subscription = Subscription(connection, subject, self.receive)
        self.waiters: dict[Waiter, str | None] = {}
        self.takers: deque[Waiter] = deque()
        self.by_request: defaultdict[str, set[Waiter]] = defaultdict(set)
        self.others: set[Waiter] = set()

    def receive(self, message: Message) -> None:
        for waiter in self.by_request.get(message.subject.rpartition(".")[2], ()):
            waiter.wake()
        for waiter in self.others:
            waiter.wake()
        self.wake_next()

    def wake_next(self) -> None:
        while self.takers:
            waiter = self.takers.popleft()
            if waiter in self.waiters and not waiter.is_woken:
                waiter.wake()
                return

    def wake_all(self) -> None:
        self.takers.clear()
        for waiter in self.waiters:
            waiter.wake()

    def stand_in_line(self, waiter: Waiter) -> None:
        if self.waiters.get(waiter, _OTHER) is None and waiter not in self.takers:
            self.takers.append(waiter)

    def add(self, waiter: Waiter, wants: str | None) -> None:
        self.waiters[waiter] = wants
        if wants is None:
            self.takers.append(waiter)
        elif wants == _OTHER:
            self.others.add(waiter)
        else:
            self.by_request[wants].add(waiter)

    def discard(self, waiter: Waiter) -> None:
        wants = self.waiters.pop(waiter)
        self.others.discard(waiter)
        if wants:
            self.by_request[wants].discard(waiter)
            if not self.by_request[wants]:
                del self.by_request[wants]
        elif wants is None:
            with contextlib.suppress(ValueError):
                self.takers.remove(waiter)
            if waiter.owes:
                self.wake_next()


_OTHER: Final = ""


class Arrivals:
    """Who waits for items, of all queues. bus: to the account of the queue service."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._sides: dict[tuple[str, Side], _Side] = {}
        self._bus.on_reconnect(self._doubt)

    def close(self) -> None:
        """Follow the connection no more. Idempotent."""
        self._bus.forget_reconnect(self._doubt)

    @property
    def subscriptions(self) -> int:
        """Sides that are waited for."""
        return len(self._sides)

    @contextlib.asynccontextmanager
    async def waiting(
        self, queue: str, side: Side, *, takes_any: bool = False, request_id: str = ""
    ) -> AsyncIterator[Waiter]:
        """One who waits from now on: what is stored after this wakes it. takes_any: it takes whatever comes away from
        all others. request_id: it wants items with this one only. Raises :class:`Unavailable`."""
        of_side = self._sides.get((queue, side))
        if of_side is None:
            subject = queuenames.event_of_queue(queue, side)
            of_side = self._sides[queue, side] = _Side(self._bus.connection, subject)
        waiter = Waiter(of_side)
        of_side.add(waiter, names.token(request_id) if request_id else None if takes_any else _OTHER)
        try:
            await self._bus.flush()  # who comes second must not wait before the server knows of the subscription either
            yield waiter
        finally:
            of_side.discard(waiter)
            if not of_side.waiters:
                del self._sides[queue, side]
                await of_side.subscription.close()

    def _doubt(self) -> None:
        """After a reconnect: events may have been missed."""
        for side in self._sides.values():
            side.wake_all()
