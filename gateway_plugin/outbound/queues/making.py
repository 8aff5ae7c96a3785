"""Makes, changes and removes the streams of queues, as their documents say."""

import asyncio
import contextlib
from collections.abc import Iterable
from typing import Final

from signalbox.bus import queues
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, remove
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire import names, queuenames
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES
from signalbox.wire.queues import MOST_QUEUES, Queue, QueueMark

RETRY_S: Final = 10.0
"""How long after NATS refused something it is asked again."""
_TOO_MANY: Final = f"There are {MOST_QUEUES} queues already, which is the most: remove one."


class QueueMaker:
    """Keeps the streams of queues as :attr:`table` says. bus, queue_bus: to the account of documents, and of queues.

    stirred: set whenever the streams of one were made, changed, refused or removed.
    """

    def __init__(
        self,
        bus: Bus,
        queue_bus: Bus,
        table: Table[Queue],
        marks: Table[QueueMark],
        stirred: asyncio.Event,
    ) -> None:
        self._bus = bus
        self._queue_bus = queue_bus
        self._table = table
        self._marks = marks
        self._stirred = stirred
        self._made: dict[str, Queue] = {}
        self._there: set[str] = set()
        self._is_told_rear = False
        self._refused: dict[str, str] = {}
        self._changed = asyncio.Event()

    def is_made(self, key: str) -> bool:
        """Whether the streams of a queue are there, though perhaps as an earlier document of it said."""
        return key in self._there

    def why(self, key: str) -> str:
        """Why NATS has not what a queue's document says; empty where it has."""
        return self._refused.get(key, "")

    def notice(self) -> None:
        """A document has changed."""
        self._changed.set()

    async def start(self) -> None:
        """Ask which streams there are. Raises :class:`Unavailable`."""
        listed = await self._queue_bus.listed("$JS.API.STREAM.NAMES", "streams")
        self._there = {key for name in listed if (key := _key_of(name)) is not None}

    async def keep(self) -> None:
        """Until cancelled: follow the documents. Streams are looked at again after each reconnect, which may lead to a
        NATS that has lost some."""
        self._queue_bus.on_reconnect(self._doubt)
        try:
            while True:
                self._changed.clear()
                is_whole = await self._make_all()
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(None if is_whole else RETRY_S):
                        await self._changed.wait()
        finally:
            self._queue_bus.forget_reconnect(self._doubt)

    def _doubt(self) -> None:
        self._made.clear()
        self._is_told_rear = False
        self._changed.set()

    async def _make_all(self) -> bool:
        """Whether NATS has all that it should."""
        try:
            nodes = await self._nodes()
            if not self._is_told_rear:
                await queues.declare_rear(self._queue_bus, nodes)
                self._is_told_rear = True
            for key in self._gone():
                await self._remove(key)
        except SignalboxError as error:
            log.warning("queues.not_removed", reason=error.public_message)
            return False
        documents = dict(self._table.items())
        for key in sorted(documents, key=lambda key: (key not in self._there, key)):
            await self._make(key, documents[key], nodes)
        return not self._refused

    async def _nodes(self) -> int:
        """How many nodes NATS has, as the operator told with the streams' copies."""
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Bucket.QUEUES.stream}")
        return int(info["config"].get("num_replicas", 1))

    def _gone(self) -> Iterable[str]:
        """Queues that the console removed; not those whose documents cannot be read here, or are lost."""
        known = self._there | self._made.keys() | self._refused.keys()
        return [key for key in known if self._table.get(key) is None and self._table.is_removed(key)]

    async def _make(self, key: str, queue: Queue, nodes: int) -> None:
        if self._made.get(key) == queue:
            return
        is_new = key not in self._there
        try:
            if is_new and len(self._there) >= MOST_QUEUES:
                self._refuse(key, _TOO_MANY)
                return
            await queues.declare(self._queue_bus, queue, nodes)
            for side in SIDES:
                await self._open(queue, queuenames.queue_mark(queue.name, side))
        except SignalboxError as error:
            self._refuse(key, error.public_message)
            return
        self._there.add(key)
        self._made[key] = queue
        self._refused.pop(key, None)
        log.info("queue.made" if is_new else "queue.changed", queue=queue.name)
        self._stirred.set()

    def _refuse(self, key: str, why: str) -> None:
        log.warning("queue.refused", queue=names.untoken(key), reason=why)
        self._made.pop(key, None)
        self._refused[key] = why
        self._stirred.set()

    async def _open(self, queue: Queue, mark_key: str) -> None:
        """Take away the end of an earlier queue of the same name."""
        mark = self._marks.get(mark_key)
        if mark is not None and mark.ended_at < queue.created_at:
            await remove(self._bus, Bucket.QUEUE_MARKS, mark_key)

    async def _remove(self, key: str) -> None:
        name = names.untoken(key)
        await queues.remove(self._queue_bus, name)
        for side in SIDES:
            if self._marks.get(queuenames.queue_mark(name, side)) is not None:
                await remove(self._bus, Bucket.QUEUE_MARKS, queuenames.queue_mark(name, side))
        self._there.discard(key)
        self._made.pop(key, None)
        self._refused.pop(key, None)
        log.info("queue.removed", queue=name)
        self._stirred.set()


def _key_of(stream: str) -> str | None:
    """Key in ``queues`` of the queue whose stream this is."""
    name, _, side = stream.removeprefix("Q_").rpartition("_")
    return name if stream.startswith("Q_") and side in SIDES else None
