"""What operators ask to be done with a queue: purge, redrive, open again. Asked and answered over core messages."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

import msgspec

from gateway_plugin.outbound.queues import gauges
from gateway_plugin.queues import rear
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.bus.table import Table, remove
from signalbox.program import log
from signalbox.program.errors import Conflict, NotFound, SignalboxError
from signalbox.program.tasks import Background
from signalbox.program.words import counted
from signalbox.wire import names, queuenames
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket
from signalbox.wire.queues import Queue, QueueAsk, QueueDone, QueueMark

ACT_S: Final = 20.0
"""An act is answered within so long, with what was done until then."""
_AT_ONCE: Final = 4
_WAITING: Final = 32
_PIECE: Final = 100
"""Items that are redriven or purged before the time is looked at."""


class QueueActs:
    """Does what is asked. bus, queue_bus: to the account of documents, and of queues."""

    def __init__(self, bus: Bus, queue_bus: Bus, table: Table[Queue], marks: Table[QueueMark]) -> None:
        self._bus = bus
        self._queue_bus = queue_bus
        self._table = table
        self._marks = marks
        self._loop = asyncio.get_running_loop()
        self._places = asyncio.Semaphore(_AT_ONCE)
        self._waiting = 0
        self._running = Background()
        self._subscription: Subscription | None = None

    async def start(self) -> None:
        """Listen from now on. Raises :class:`Unavailable`."""
        self._subscription = await self._bus.subscribe(queuenames.ask_queue(), self._take)

    async def close(self) -> None:
        """Listen no more; what is being done ends after the item it is at. Idempotent."""
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()
        await self._running.cancel()

    def _take(self, message: Message) -> None:
        self._waiting += 1
        self._running.start(self._answer(message), name="act on a queue")

    async def _answer(self, message: Message) -> None:
        try:
            if self._waiting > _WAITING:
                done = QueueDone(error=f"{counted(_WAITING, 'act')} are under way; try again.")
            else:
                async with self._places:
                    done = await self._done(message)
        finally:
            self._waiting -= 1
        if message.reply:
            await self._bus.publish(message.reply, encode(done))

    async def _done(self, message: Message) -> QueueDone:
        key = message.subject.rpartition(".")[2]
        try:
            ask = decode(QueueAsk, message.data)
        except msgspec.MsgspecError as error:
            return QueueDone(error=f"Not understood: {error}.")
        queue = self._table.get(key)
        try:
            if queue is None or ask.created_at not in {0.0, queue.created_at}:
                raise NotFound("There is no such queue.")
            done = await self._act(queue, ask)
        except SignalboxError as error:
            done = QueueDone(items=_done_before(error), error=error.public_message)
        gauges.ACTS.labels(ask.act).inc(done.items)
        log.info(
            f"queue.{ask.act}",
            queue=names.untoken(key),
            side=ask.side,
            is_rear=ask.is_rear,
            items=done.items,
            error=done.error,
        )
        return done

    async def _act(self, queue: Queue, ask: QueueAsk) -> QueueDone:
        if ask.act == "purge":
            return await self._purge(queue, ask)
        mark_key = queuenames.queue_mark(queue.name, ask.side)
        is_ended = self._marks.get(mark_key) is not None
        if ask.act == "reopen":
            await remove(self._bus, Bucket.QUEUE_MARKS, mark_key)
            return QueueDone(items=int(is_ended))
        if is_ended:
            raise Conflict("The stream has ended and takes nothing more. Open it again, then redrive.")
        return await self._redrive(queue, ask)

    async def _purge(self, queue: Queue, ask: QueueAsk) -> QueueDone:
        def piece(most: int) -> Awaitable[int]:
            return rear.purge(self._queue_bus, queue.name, ask.side, is_rear=ask.is_rear, most=most)

        if not ask.most:
            return QueueDone(items=await piece(0))
        return await self._in_pieces(piece, ask.most)

    async def _redrive(self, queue: Queue, ask: QueueAsk) -> QueueDone:
        """At most what is there now: an item that is dead again at once is not redriven for ever."""
        there = await rear.rear_count(self._queue_bus, queue.name, ask.side)

        def piece(most: int) -> Awaitable[int]:
            return rear.redrive(self._queue_bus, queue.name, ask.side, most)

        return await self._in_pieces(piece, min(ask.most or there, there))

    async def _in_pieces(self, piece: Callable[[int], Awaitable[int]], most: int) -> QueueDone:
        """Do an act piece by piece, until so many are done, nothing is left or the time is over.

        Raises what a piece does, with how many were done until then among its facts.
        """
        until, done = self._loop.time() + ACT_S, 0
        while done < most:
            size = min(_PIECE, most - done)
            try:
                now = await piece(size)
            except SignalboxError as error:
                error.facts["done"] = done + _done_before(error)
                raise
            done += now
            if now < size:
                break
            if done < most and self._loop.time() >= until:
                return QueueDone(items=done, error=f"{counted(most - done, 'item')} are left; ask again.")
        return QueueDone(items=done)


def _done_before(error: SignalboxError) -> int:
    """How many items an act was done with before it failed."""
    done = error.facts.get("done")
    return done if isinstance(done, int) else 0
