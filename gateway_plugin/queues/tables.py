"""Queues and the ends of their streams as they were last published: in memory, and current."""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from signalbox.bus import table
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program.errors import StaleRevision, Unavailable
from signalbox.wire import names, queuenames
from signalbox.wire.events import is_removal
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import Queue, QueueMark

_TRIES: Final = 10
_KNOWN_S: Final = 2.0
"""How long a call waits until its own mark has come back, before it answers all the same."""
OnQueue = Callable[[str], None]


class QueueTables:
    """The documents of all queues and marks of their sides. bus: of the main account. ``await start()`` once."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._queues = Table(bus, Bucket.QUEUES, Queue)
        self._marks = Table(bus, Bucket.QUEUE_MARKS, QueueMark)
        self._callbacks: list[OnQueue] = []
        self._queues.on_change(lambda key, *_: self._changed(names.untoken(key)))
        self._awaited: set[asyncio.Event] = set()
        self._marks.on_change(lambda key, *_: self._mark_changed(key))

    async def start(self) -> None:
        """Read both buckets and follow them from then on. Raises :class:`Unavailable`."""
        await self._queues.start()
        await self._marks.start()

    async def close(self) -> None:
        """Stop following. Idempotent; what was read stays readable."""
        await self._queues.close()
        await self._marks.close()

    def find(self, name: str) -> Queue | None:
        """A queue, None if there is none of that name."""
        return self._queues.get(names.token(name))

    def mark(self, name: str, side: Side) -> QueueMark | None:
        """Where a side's stream has ended, None if it has not."""
        return self._marks.get(queuenames.queue_mark(name, side))

    def on_change(self, callback: OnQueue) -> None:
        """Call ``callback(name of the queue)`` after each change of a document or a mark, also while starting."""
        self._callbacks.append(callback)

    async def write_mark(self, name: str, side: Side, mark: QueueMark) -> QueueMark:
        """Mark a side as ended, and know it here. Returns the mark that holds: an earlier one keeps its time, and has
        the higher index of the two. Raises as :meth:`Bus.write`."""
        subject = names.key(Bucket.QUEUE_MARKS, queuenames.queue_mark(name, side))
        for _ in range(_TRIES):
            stored = await self._bus.leader_get(Bucket.QUEUE_MARKS.stream, subject)
            wanted = mark
            if stored is not None and not is_removal(stored.headers):
                before = decode(QueueMark, stored.data)
                wanted = replace(
                    before,
                    index=max(before.index, mark.index),
                    is_forced=before.is_forced or mark.is_forced,
                )
                if wanted == before:
                    return before
            try:
                await self._put_mark(queuenames.queue_mark(name, side), wanted, stored.seq if stored is not None else 0)
            except StaleRevision:
                continue
            return wanted
        raise Unavailable("The end of the stream is marked by others at the same time; try again.", retry_after_s=1.0)

    async def remove_mark(self, name: str, side: Side) -> None:
        """Open a side that has ended again, and know it here. Idempotent. Raises as :meth:`Bus.write`."""
        key = queuenames.queue_mark(name, side)
        await self._known(key, await table.remove(self._bus, Bucket.QUEUE_MARKS, key))

    async def _put_mark(self, key: str, mark: QueueMark, expect: int) -> None:
        await self._known(key, await table.put(self._bus, Bucket.QUEUE_MARKS, key, mark, expect=expect))

    async def _known(self, key: str, revision: int) -> None:
        """Return when a change of a mark is known here, so that a call after this one is told of it."""
        known = asyncio.Event()
        self._awaited.add(known)
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_KNOWN_S):
                    while self._marks.revision(key) < revision:
                        await known.wait()
                        known.clear()
        finally:
            self._awaited.discard(known)

    def _mark_changed(self, key: str) -> None:
        for known in self._awaited:
            known.set()
        self._changed(names.untoken(key.partition(".")[0]))

    def _changed(self, name: str) -> None:
        for callback in self._callbacks:
            callback(name)
