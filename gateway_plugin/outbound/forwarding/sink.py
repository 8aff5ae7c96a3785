"""Where a queue's results go: each item's once, under an id of its own."""

from typing import Final

from gateway_plugin.outbound.forwarding.itemjobs import ItemResult, job_id
from gateway_plugin.queues.items import REQUEST_TAG, Item
from gateway_plugin.queues.made import Made
from gateway_plugin.queues.store import Store
from signalbox.bus.client import Bus
from signalbox.wire import queuenames
from signalbox.wire.names import Header
from signalbox.wire.queuenames import RANKS, Side
from signalbox.wire.queues import Queue

SINK: Final[Side] = "sink"
ERROR_TAG: Final = "_error_"
"""Tag of an item in a sink that holds no result: the code of the error that its data tells of."""


class Sink:
    """The sink of one queue. bus: to the account of the queue service. made: whether it is there whole. stream: see
    :func:`job_id`.

    An item in it has the tags of the item that it came of, with ``requestId``; header ``Sb-Request`` is the id of that
    item's first job, which no other item has.
    """

    def __init__(self, bus: Bus, store: Store, made: Made, stream: str) -> None:
        self._bus = bus
        self._store = store
        self._made = made
        self._stream = stream

    async def put(self, queue: Queue, item: Item, result: ItemResult, *, is_bare: bool = False) -> None:
        """Store an item's result; nothing for one that has none. Within two minutes a second call stores none.

        is_bare: without the item's own tags. Raises as :meth:`Store.put` and :meth:`Made.require`,
        :class:`InvalidRequest` where the tags are too large with those that are added.
        """
        if result.data is None:
            return
        own = job_id(self._stream, item)
        tags = {**({} if is_bare else item.tags), REQUEST_TAG: self._request_id(item)}
        if result.error:
            tags[ERROR_TAG] = result.error
        await self._made.require(queue, SINK)
        await self._store.put(queue, SINK, result.data, tags, is_high=item.is_high, request_id=own, msg_id=own)

    async def has(self, queue: Queue, item: Item) -> bool:
        """Whether an item's result is there. Raises :class:`Unavailable`."""
        own, request_id = job_id(self._stream, item), self._request_id(item)
        for rank in RANKS:
            subject = queuenames.queue_item(queue.name, SINK, rank, request_id)
            stored = await self._bus.leader_get(queuenames.queue_stream(queue.name, SINK), subject)
            if stored is not None and stored.headers.get(Header.REQUEST) == own:
                return True
        return False

    def _request_id(self, item: Item) -> str:
        return item.tags.get(REQUEST_TAG) or item.request_id or job_id(self._stream, item)
