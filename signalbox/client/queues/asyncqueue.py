"""A queue for asyncio: :class:`signalbox.client.queues.Queue`, awaited."""

from collections.abc import AsyncGenerator
from functools import cached_property

from signalbox.client.queues.calls import QueueCalls, Tags
from signalbox.client.queues.items import Found, Item, Receipt
from signalbox.client.transport import AsyncTransport


class AsyncQueue:
    """One side of a queue, in one event loop. :meth:`AsyncClient.queue` makes it.

    Arguments, methods and errors are those of :class:`signalbox.client.queues.Queue`.
    """

    def __init__(self, calls: QueueCalls, transport: AsyncTransport) -> None:
        self._calls = calls
        self._transport = transport

    @property
    def uid(self) -> str:
        """Of this consumer in its group. Of two watches under the same one the newer goes on."""
        return self._calls.uid

    @cached_property
    def sink(self) -> "AsyncQueue":
        """The side that results are put into."""
        return AsyncQueue(self._calls.other(is_sink=True), self._transport)

    async def put(self, data: bytes, *, tags: Tags | None = None, high: bool = False) -> Receipt:
        """Put an item, which is durable when this returns: raises as :meth:`Queue.put`."""
        return await self._transport.run(self._calls.put(data, tags, is_high=high))

    async def get(
        self,
        *,
        index: int = 0,
        length: int = 1,
        timeout_s: float = 5.0,
        tags: Tags | None = None,
        request_id: str | None = None,
        delete: bool = True,
        rear: bool = False,
    ) -> list[Item]:
        """Up to so many items, as soon as there is one; none after ``timeout_s``. Raises as :meth:`Queue.get`."""
        return await self._transport.run(
            self._calls.get(index, length, timeout_s, tags, request_id, is_deleting=delete, is_rear=rear)
        )

    def watch(
        self,
        *,
        window: int = 1,
        index: int = 0,
        tags: Tags | None = None,
        index_only: bool = False,
        auto_commit: bool = False,
        commits: bool = True,
    ) -> AsyncGenerator[Item, None]:
        """Items as they are given out, each committed once the next is asked for. Raises as :meth:`Queue.watch`.

        With ``contextlib.aclosing`` around it, what is not committed is given back before that block is left; else
        soon after."""
        steps = self._calls.watch(
            index, window, tags, is_index_only=index_only, is_auto_commit=auto_commit, commits=commits
        )
        return self._transport.iterate(steps)

    async def commit(self, *items: Item | int) -> None:
        """The group is done with these items, or indexes. Idempotent. Raises :class:`Conflict`."""
        await self._transport.run(self._calls.commit(items))

    async def nack(self, *items: Item | int, code: str = "Failed", reason: str = "") -> None:
        """Give items back, to be given out again at once, or to be dead by the queue's ``max_delivery``."""
        await self._transport.run(self._calls.nack(items, code, reason))

    async def delete(self, *items: Item | int, rear: bool = False) -> None:
        """Take items away from every group. Idempotent. rear: dead ones."""
        await self._transport.run(self._calls.delete(items, is_rear=rear))

    async def truncate(self, below: int) -> None:
        """Take away all items with a lower index. Idempotent."""
        await self._transport.run(self._calls.truncate(below))

    async def forget_group(self) -> None:
        """Have the group forgotten, with what is kept for it alone: raises as :meth:`Queue.forget_group`."""
        await self._transport.run(self._calls.forget_group())

    async def end(self, *, force: bool = False) -> None:
        """Take no more items: watches end once all is committed. force: what is left is thrown away."""
        await self._transport.run(self._calls.end(is_forced=force))

    async def search(self, index: int) -> Found:
        """Where an item is, for this consumer's group."""
        return await self._transport.run(self._calls.search(index))

    async def count(self, *, tags: Tags | None = None, high: bool | None = None) -> int:
        """How many items there are with these tags, of one priority or both."""
        return await self._transport.run(self._calls.count(tags, high))

    async def attributes(self) -> dict[str, str]:
        """How the queue stands, in the product's words (docs/queues.md)."""
        return await self._transport.run(self._calls.attributes())
