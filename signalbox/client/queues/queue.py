"""A queue for plain code.

with Client("http://127.0.0.1:8080", key) as client:
    queue = client.queue("sums")
    queue.put(b"1 + 1")
    for item in queue.watch():
        queue.sink.put(work(item.data), tags={"requestId": item.request_id})
"""

from collections.abc import Generator
from functools import cached_property

from signalbox.client.queues.calls import QueueCalls, Tags
from signalbox.client.queues.items import Found, Item, Receipt
from signalbox.client.transport import SyncTransport


class Queue:
    """One side of a queue: what is put in or, as :attr:`sink`, what comes of it. :meth:`Client.queue` makes it.

    Threads may share it. Errors are those of :class:`Client`: NotFound, where there is no such queue, and Forbidden,
    where the key lacks the scope, are raised by each call.
    """

    def __init__(self, calls: QueueCalls, transport: SyncTransport) -> None:
        self._calls = calls
        self._transport = transport

    @property
    def uid(self) -> str:
        """Of this consumer in its group. Of two watches under the same one the newer goes on."""
        return self._calls.uid

    @cached_property
    def sink(self) -> "Queue":
        """The side that results are put into."""
        return Queue(self._calls.other(is_sink=True), self._transport)

    def put(self, data: bytes, *, tags: Tags | None = None, high: bool = False) -> Receipt:
        """Put an item, which is durable when this returns. tags: names that do not begin with an underscore.

        high: it is given out before all that are not. Raises :class:`QueueFull`, :class:`TooLarge`, :class:`Conflict`
        where the stream has ended, and :class:`Ambiguous` or :class:`DeadlineExceeded` where it may be in the queue:
        putting it again may put it twice."""
        return self._transport.run(self._calls.put(data, tags, is_high=high))

    def get(
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
        """Up to so many items, as soon as there is one; none after ``timeout_s``.

        index: from which on, 0 = the oldest, -1 = the newest. tags, request_id: only items that have these. delete:
        nobody else gets them, in any group. rear: of the dead items. Raises :class:`Ambiguous` where the connection
        broke while items were deleted: some may be lost. What must not be, is watched and committed."""
        return self._transport.run(
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
    ) -> Generator[Item, None, None]:
        """Items as they are given out to this consumer, for ever, or until the stream has ended and is drained.

        An item is committed once the next is asked for, unless it was committed or given back by then. One whose work
        raised, or left the loop, is given back at once with all that came ahead, and given out again. window: most
        items that are given out here and not committed. index: where a new group begins, -1 = behind what is there; a
        known one goes on where it stood. tags: only items that have these; all consumers of a group say the same.
        index_only: without data. auto_commit: they are committed as they are sent. commits: False = only
        :meth:`commit` does.

        A watch that breaks is opened again, at any front, for as long as it takes. Raises :class:`Conflict` where
        another watch has the same uid, and :class:`ImportError` without the extra ``queues``."""
        steps = self._calls.watch(
            index, window, tags, is_index_only=index_only, is_auto_commit=auto_commit, commits=commits
        )
        return self._transport.iterate(steps)

    def commit(self, *items: Item | int) -> None:
        """The group is done with these items, or indexes. Idempotent.

        Raises :class:`Conflict` for one that is not given out to the group."""
        self._transport.run(self._calls.commit(items))

    def nack(self, *items: Item | int, code: str = "Failed", reason: str = "") -> None:
        """Give items back, to be given out again at once, or to be dead by the queue's ``max_delivery``.

        code: words in CamelCase or digits, 20 characters at most; ``Shutdown``: this consumer gets no more."""
        self._transport.run(self._calls.nack(items, code, reason))

    def delete(self, *items: Item | int, rear: bool = False) -> None:
        """Take items away from every group. Idempotent. rear: dead ones."""
        self._transport.run(self._calls.delete(items, is_rear=rear))

    def truncate(self, below: int) -> None:
        """Take away all items with a lower index. Idempotent."""
        self._transport.run(self._calls.truncate(below))

    def forget_group(self) -> None:
        """Have the group forgotten, with what is kept for it alone; watched again it is a new one. Idempotent.

        Raises :class:`Conflict` where anybody watches for it, :class:`InvalidRequest` for ``eas``, which stays."""
        self._transport.run(self._calls.forget_group())

    def end(self, *, force: bool = False) -> None:
        """Take no more items: watches end once all is committed. force: what is left is thrown away."""
        self._transport.run(self._calls.end(is_forced=force))

    def search(self, index: int) -> Found:
        """Where an item is, for this consumer's group."""
        return self._transport.run(self._calls.search(index))

    def count(self, *, tags: Tags | None = None, high: bool | None = None) -> int:
        """How many items there are with these tags, of one priority or both."""
        return self._transport.run(self._calls.count(tags, high))

    def attributes(self) -> dict[str, str]:
        """How the queue stands, in the product's words (docs/queues.md)."""
        return self._transport.run(self._calls.attributes())
