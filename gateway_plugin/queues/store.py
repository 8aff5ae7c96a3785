"""What changes and describes one side of a queue: put, delete, truncate, end, search, count, attributes."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from msgspec.structs import replace

from gateway_plugin.queues import items, removal
from gateway_plugin.queues.attributes import described
from gateway_plugin.queues.evicting import Evictions
from gateway_plugin.queues.scanning import (
    MOST_SCANNED,
    Place,
    consumer_of_group,
    count_from,
    pages,
    state_of,
)
from gateway_plugin.queues.tables import QueueTables
from signalbox.bus.client import Bus
from signalbox.program import metrics
from signalbox.program.errors import Ambiguous, Conflict, InvalidRequest, NotFound, QueueFull, TooLarge, Unavailable
from signalbox.wire import queuenames
from signalbox.wire.queuenames import Rank, Side
from signalbox.wire.queues import HEAD_BYTES, GroupState, Queue, QueueMark, WatchState

ITEMS: Final = metrics.counter("queue_items", "Items of queues, by verb: put, get, delete, truncate.", "verb")
BYTES: Final = metrics.counter("queue_bytes", "Bytes of those items' data, where the verb has them.", "verb")
REFUSED: Final = metrics.counter(
    "queue_refused",
    "Puts that were refused: full, account_bytes, too_large, ended, storing (NATS stores nothing).",
    "reason",
)
_UNSURE: Final = "NATS has not answered in time: the item may be stored. Putting it again may put it twice."
_NO_ITEM: Final = "There is no data in the stream with this index: it was committed or removed, or never put."


class Found(NamedTuple):
    """Where an item is. is_pending: given out and not committed. wait_count: items that are given out before it."""

    is_pending: bool
    wait_count: int


class Store:
    """The items of all queues. bus: to the account of the queue service. check: raises where nothing may be stored.

    wall: UTC clock, seconds. Each call raises :class:`Unavailable` where NATS does not answer.
    """

    def __init__(
        self,
        bus: Bus,
        tables: QueueTables,
        *,
        check: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._tables = tables
        self._check = check
        self._wall = wall
        self._evictions = Evictions(bus)

    async def close(self) -> None:
        """Wait for what is done beside callers. Idempotent."""
        await self._evictions.close()

    async def put(
        self,
        queue: Queue,
        side: Side,
        data: bytes,
        tags: Mapping[str, str],
        *,
        is_high: bool = False,
        request_id: str = "",
        msg_id: str | None = None,
        trace: str = "",
    ) -> int:
        """Store an item; returns its index. msg_id: of two puts with the same one within two minutes one is stored.

        trace: see :class:`gateway_plugin.queues.items.Item`.

        Raises :class:`QueueFull`, :class:`TooLarge`, :class:`Conflict` where the side's stream has ended,
        :class:`Unavailable` (it is not stored) or :class:`Ambiguous` (it may be).
        """
        self._require_open(queue, side)
        self._require_size(queue, side, data)
        headers = items.headers_of(tags, request_id, trace)
        rank: Rank = "hi" if is_high else "lo"
        subject = queuenames.queue_item(queue.name, side, rank, items.subject_id(tags, request_id))
        try:
            self._check()
            index = await self._bus.write(subject, data, headers=headers, msg_id=msg_id)
        except QueueFull as error:
            raise _full(queue, side) from error
        except TooLarge as error:
            raise _too_large(queue.room(side).item_bytes, data) from error
        except Ambiguous as error:
            REFUSED.labels("storing").inc()
            raise Ambiguous(_UNSURE, retry_after_s=error.retry_after_s) from error
        except Unavailable:
            REFUSED.labels("storing").inc()
            raise
        ITEMS.labels("put").inc()
        BYTES.labels("put").inc(len(data))
        self._evictions.noted(queue, side)
        return index

    async def delete(self, queue: Queue, side: Side, indexes: Iterable[int], *, is_rear: bool = False) -> int:
        """Remove items from all groups; returns how many were there. Those that are gone are passed over."""
        if is_rear:
            removed = await removal.remove_rear(self._bus, queue, side, indexes)
        else:
            removed = await removal.remove(self._bus, queuenames.queue_stream(queue.name, side), indexes)
        ITEMS.labels("delete").inc(len(removed))
        return len(removed)

    async def truncate(self, queue: Queue, side: Side, below: int) -> int:
        """Remove all items with an index below this; returns how many there were.

        A side that had ended is open again where nothing can be left in it.
        """
        last = (await self._state(queue, side))["last_seq"]
        count = await self._purge(queue, side, min(below, last + 1))
        if below > last and self._tables.mark(queue.name, side) is not None:
            await self._tables.remove_mark(queue.name, side)
        ITEMS.labels("truncate").inc(count)
        return count

    async def end(self, queue: Queue, side: Side, *, is_forced: bool = False) -> QueueMark:
        """End a side's stream: later puts are refused, and its consumers are complete once they have what is in it.

        is_forced: what is in it goes at once. Idempotent. What another plugin accepts in the same moment may come to
        lie behind the end; ending again takes it in.
        """
        mark = QueueMark(ended_at=self._wall(), index=await self._last(queue, side), is_forced=is_forced)
        mark = await self._tables.write_mark(queue.name, side, mark)
        last = await self._last(queue, side)  # of what was being put meanwhile
        if last > mark.index:
            mark = await self._tables.write_mark(queue.name, side, replace(mark, index=last))
        if mark.is_forced:
            ITEMS.labels("truncate").inc(await self._purge(queue, side, mark.index + 1))
        return mark

    async def search(self, queue: Queue, side: Side, group: str, index: int) -> Found:
        """Where an item stands in a group.

        Raises :class:`NotFound` where there is no such item, none of that group's, or it is committed. Where several
        groups read, one that this group has committed before others that are older may still count as given out.
        """
        stored = await self._bus.leader_next(queuenames.queue_stream(queue.name, side), max(1, index))
        if stored is None or stored.seq != index:
            raise NotFound(_NO_ITEM)
        rank = queuenames.rank_of(stored.subject)
        about = await self._group(queue, side, group, rank)
        if index <= about["ack_floor"]["stream_seq"]:
            raise NotFound(_NO_ITEM)
        if index <= about["delivered"]["stream_seq"]:
            return Found(is_pending=True, wait_count=0)
        behind = await count_from(self._bus, Place(queue, side, {}, rank=rank), index)
        ahead = about["num_pending"] - behind
        if rank == "lo":
            ahead += (await self._group(queue, side, group, "hi"))["num_pending"]
        return Found(is_pending=False, wait_count=max(0, ahead))

    async def count(
        self, queue: Queue, side: Side, tags: Mapping[str, str] | None = None, is_high: bool | None = None
    ) -> int:
        """How many items are there with all of these tags. is_high: of one priority, None = of both.

        Raises :class:`InvalidRequest` where more would have to be looked through than one call may.
        """
        rank = "*" if is_high is None else "hi" if is_high else "lo"
        place = Place(queue, side, tags or {}, rank=rank)
        if not place.needs_scan:
            return await count_from(self._bus, place, 1)
        seen = matching = 0
        async for found in pages(self._bus, place, 1):
            seen += len(found)
            if seen > MOST_SCANNED:
                raise InvalidRequest(
                    f"More than {MOST_SCANNED} items would have to be looked through for these tags. Count without "
                    f"tags, or by {items.REQUEST_TAG}.",
                    limit=MOST_SCANNED,
                )
            matching += sum(items.item_of(stored).matches(place.tags) for stored in found)
        return matching

    async def attributes(
        self, queue: Queue, side: Side, watches: Sequence[WatchState] = (), groups: Sequence[GroupState] = ()
    ) -> dict[str, str]:
        """What a side is and how it stands, in the product's words. watches, groups: of this side."""
        state = await self._state(queue, side)
        most_bytes = self._bus.connection.max_body_bytes - HEAD_BYTES
        return described(queue, side, state, self._tables.mark(queue.name, side), watches, groups, most_bytes)

    def _require_open(self, queue: Queue, side: Side) -> None:
        if self._tables.mark(queue.name, side) is not None:
            REFUSED.labels("ended").inc()
            raise Conflict(
                f"The stream of the {side} of this queue has ended (_eos_). Truncate all of it to open it again.",
                bound="ended",
            )

    def _require_size(self, queue: Queue, side: Side, data: bytes) -> None:
        most = min(queue.room(side).item_bytes, self._bus.connection.max_body_bytes - HEAD_BYTES)
        if len(data) > most:
            raise _too_large(most, data)

    async def _state(self, queue: Queue, side: Side) -> dict[str, int]:
        return await state_of(self._bus, queuenames.queue_stream(queue.name, side))

    async def _last(self, queue: Queue, side: Side) -> int:
        return (await self._state(queue, side))["last_seq"]

    async def _purge(self, queue: Queue, side: Side, below: int) -> int:
        """Remove what is below an index, which must not be above the next one: the server would go on from there."""
        if below <= 1:  # the server takes this for all
            return 0
        asked = f"$JS.API.STREAM.PURGE.{queuenames.queue_stream(queue.name, side)}"
        return int((await self._bus.request_json(asked, {"seq": below}))["purged"])

    async def _group(self, queue: Queue, side: Side, group: str, rank: Rank) -> dict[str, Any]:
        name = queuenames.queue_consumer(group, rank)
        return await consumer_of_group(self._bus, queuenames.queue_stream(queue.name, side), name)


def _full(queue: Queue, side: Side) -> QueueFull:
    REFUSED.labels("full").inc()
    most = queue.room(side).length
    return QueueFull(
        f"The {side} of this queue holds {most} items, and takes no more until some are committed or removed; nothing "
        "was stored.",
        retry_after_s=1.0,
        bound="items",
        limit=most,
    )


def _too_large(most: int, data: bytes) -> TooLarge:
    REFUSED.labels("too_large").inc()
    return TooLarge(f"An item of this queue may have {most} bytes, and this one has {len(data)}.", limit=most)
