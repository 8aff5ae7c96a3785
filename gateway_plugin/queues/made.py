"""Whether a queue's streams are there whole, and its own: not those of an earlier queue of the same name."""

from typing import Final

from gateway_plugin.queues.scanning import BEING_MADE
from signalbox.bus.client import Bus
from signalbox.bus.queues import created_at
from signalbox.program.errors import NotFound, Unavailable
from signalbox.wire import queuenames
from signalbox.wire.queuenames import RANKS, Side
from signalbox.wire.queues import DEFAULT_GROUP, Queue

_RETRY_AFTER_S: Final = 1.0


class Made:
    """What was seen of streams. bus: to the account of the queue service.

    A stream that nobody consumes yet keeps nothing of what is put into it, though it answers with an index. And a name
    may be another account's from one moment to the next, whose document comes here before the outbound program has
    thrown away what is in the streams: nobody gets the one's items as the other, and none is put where it is thrown
    away.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._seen: dict[str, float] = {}

    async def require(self, queue: Queue, side: Side) -> None:
        """Return where the stream of a side is that queue's, and its default group is there; NATS is asked once for
        each queue and connection.

        Raises :class:`Unavailable` where one of them is not there, or it is another queue's.
        """
        stream = queuenames.queue_stream(queue.name, side)
        if self._seen.get(stream) == queue.created_at:
            return
        try:
            found = created_at(await self._bus.request_json(f"$JS.API.STREAM.INFO.{stream}"))
            for rank in RANKS:
                consumer = queuenames.queue_consumer(DEFAULT_GROUP, rank)
                await self._bus.request_json(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}")
        except NotFound:
            found = None
        if found != round(queue.created_at, 3):
            raise Unavailable(BEING_MADE, retry_after_s=_RETRY_AFTER_S)
        self._seen[stream] = queue.created_at

    def forget(self) -> None:
        """After a reconnect: NATS may have come back without its disk."""
        self._seen.clear()
