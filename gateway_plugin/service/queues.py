"""Queues for their owners: which of them a key may use, and for what. Every dialect goes through here."""

from collections.abc import Mapping, Sequence
from typing import Final

from gateway_plugin.admission.keyring import require_scope
from gateway_plugin.queues.items import Consumer, Item, require_tags
from gateway_plugin.queues.parts import QueueParts
from gateway_plugin.queues.reading import Get
from gateway_plugin.queues.scanning import BEING_MADE
from gateway_plugin.queues.store import Found
from gateway_plugin.queues.watching.groups import group_states
from gateway_plugin.queues.watching.openwatch import OpenWatch, Watch
from signalbox.program.errors import Forbidden, InvalidRequest, NotFound, Unavailable
from signalbox.wire.access import is_among
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import Queue

PUT: Final = "queues:put"
GET: Final = "queues:get"
WATCH: Final = "queues:watch"
MANAGE: Final = "queues:manage"
MOST_INDEXES: Final = 1000
"""In one call."""


class Queues:
    """The queues of all accounts. Each verb takes the key first and the queue's name next, and raises what
    :meth:`find` raises and what the verb itself does."""

    def __init__(self, parts: QueueParts) -> None:
        self._parts = parts
        self._store = parts.store
        self._reader = parts.reader
        self._watches = parts.watches

    def find(self, key: ApiKey, name: str, scope: str) -> Queue:
        """A queue of the key's account.

        Raises :class:`NotFound` where it has none of that name, and :class:`Forbidden` where the key lacks the scope or
        is for other queues.
        """
        queue = self._parts.tables.find(name)
        if queue is None or queue.account_id != key.account_id:
            raise NotFound(f'There is no queue "{name[:100]}", or it is not yours.', queue=name[:100])
        require_scope(key, scope)
        if key.queues and not is_among(key.queues, name):
            raise Forbidden(f'This API key may not use the queue "{name}".', queue=name)
        return queue

    async def _of(self, key: ApiKey, name: str, side: Side, scope: str) -> Queue:
        """A queue of which a side is there: raises as :meth:`find` does, and as :meth:`Made.require`."""
        queue = self.find(key, name, scope)
        await self._parts.made.require(queue, side)
        return queue

    async def put(
        self,
        key: ApiKey,
        name: str,
        side: Side,
        data: bytes,
        tags: Mapping[str, str],
        *,
        is_high: bool = False,
        request_id: str = "",
        trace: str = "",
    ) -> int:
        """Store an item; returns its index. Raises as :meth:`Store.put` and :meth:`AccountBytes.require`."""
        queue = await self._of(key, name, side, PUT)
        require_tags(tags)
        self._parts.bytes.require(key, side, len(data))
        index = await self._store.put(queue, side, data, tags, is_high=is_high, request_id=request_id, trace=trace)
        if key.share.queue_bytes:
            self._parts.bytes.count(queue, side, len(data))
        return index

    async def get(self, key: ApiKey, name: str, side: Side, asked: Get) -> list[Item]:
        """Items from an index on. Raises as :meth:`Reader.get`."""
        queue = await self._of(key, name, side, GET)
        require_tags(asked.tags)
        return await self._reader.get(queue, side, asked)

    async def delete(self, key: ApiKey, name: str, side: Side, indexes: Sequence[int], *, is_rear: bool = False) -> int:
        """Remove items for all groups; returns how many were there. Raises as :meth:`Store.delete`, and
        :class:`InvalidRequest` for too many."""
        queue = await self._of(key, name, side, MANAGE)
        require_few(indexes)
        return await self._store.delete(queue, side, indexes, is_rear=is_rear)

    async def truncate(self, key: ApiKey, name: str, side: Side, below: int) -> int:
        """Remove what is below an index; returns how many items. Raises as :meth:`Store.truncate`."""
        return await self._store.truncate(await self._of(key, name, side, MANAGE), side, below)

    async def end(self, key: ApiKey, name: str, side: Side, *, is_forced: bool = False) -> None:
        """End a side's stream. Raises as :meth:`Store.end`."""
        await self._store.end(await self._of(key, name, side, MANAGE), side, is_forced=is_forced)

    async def search(self, key: ApiKey, name: str, side: Side, group: str, index: int) -> Found:
        """Where an item stands in a group. Raises as :meth:`Store.search`."""
        return await self._store.search(await self._of(key, name, side, GET), side, group, index)

    async def count(
        self, key: ApiKey, name: str, side: Side, tags: Mapping[str, str], *, is_high: bool | None = None
    ) -> int:
        """How many items have these tags. Raises as :meth:`Store.count`."""
        queue = await self._of(key, name, side, GET)
        require_tags(tags)
        return await self._store.count(queue, side, tags, is_high)

    async def attributes(self, key: ApiKey, name: str, side: Side) -> dict[str, str]:
        """What a side is and how it stands, with its consumers and groups. Raises as :meth:`Store.attributes`."""
        queue = await self._of(key, name, side, GET)
        try:
            groups = await group_states(self._parts.bus, name, side)
        except NotFound as error:
            raise Unavailable(BEING_MADE, retry_after_s=1.0) from error
        return await self._store.attributes(queue, side, self._parts.watches.of(name, side), groups)

    async def watch(self, key: ApiKey, name: str, side: Side, consumer: Consumer, asked: Watch) -> OpenWatch:
        """Open a watch. Raises as :meth:`Watches.watch`."""
        queue = self.find(key, name, WATCH)
        require_tags(asked.tags)
        return await self._watches.watch(queue, side, consumer, asked)

    async def commit(self, key: ApiKey, name: str, side: Side, group: str, indexes: Sequence[int]) -> None:
        """Commit items for a group. Raises as :meth:`Watches.commit`, and :class:`InvalidRequest` for too many."""
        queue = await self._of(key, name, side, WATCH)
        require_few(indexes)
        await self._watches.commit(queue, side, group, indexes)

    async def forget(self, key: ApiKey, name: str, side: Side, group: str) -> None:
        """Remove a group of consumers. Raises as :meth:`Watches.forget`."""
        await self._watches.forget(await self._of(key, name, side, MANAGE), side, group)

    async def negative(
        self,
        key: ApiKey,
        name: str,
        side: Side,
        consumer: Consumer,
        indexes: Sequence[int],
        code: str = "",
        reason: str = "",
    ) -> None:
        """Give items back. Raises as :meth:`Watches.negative`, and :class:`InvalidRequest` for too many."""
        queue = await self._of(key, name, side, WATCH)
        require_few(indexes)
        await self._watches.negative(queue, side, consumer, indexes, code, reason)


def require_few(indexes: Sequence[int]) -> None:
    """Raise :class:`InvalidRequest` for none, or for more indexes than one call takes."""
    if not 0 < len(indexes) <= MOST_INDEXES:
        raise InvalidRequest(f"Name 1 to {MOST_INDEXES} indexes.", limit=MOST_INDEXES)
