"""The rear queue: dead items are kept there until somebody reads, redrives or purges them."""

from collections.abc import AsyncIterator
from typing import Final

from gateway_plugin.queues.items import Item, headers_of, item_of, subject_id
from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.wire import names, queuenames
from signalbox.wire.queuenames import Rank, Side

PRIORITY_TAG: Final = "_priority_"
"""Of a dead item that was a high one."""
_NO_MESSAGE: Final = 10043
_FAR: Final = 1 << 62


async def bury(bus: Bus, queue: str, side: Side, item: Item, *, why: str, code: str = "", group: str = "") -> None:
    """Store a dead item in the rear queue; tags ``_..._`` say where it came from. The same one again is one.

    Raises as :meth:`Bus.write`: :class:`QueueFull` where the rear queue is full.
    """
    told = {
        "_index_": str(item.index),
        "_reason_": why,
        "_code_": code,
        "_deliveries_": str(item.deliveries),
        "_group_": group,
        PRIORITY_TAG: "1" if item.is_high else "",
    }
    tags = dict(item.tags) | {key: value for key, value in told.items() if value}
    await bus.write(
        queuenames.rear_item(queue, side, subject_id(item.tags, item.request_id)),
        item.data,
        headers=headers_of(tags, item.request_id, item.trace),
        msg_id=f"{queuenames.queue_stream(queue, side)}-{item.index}-{names.token(group)}-{int(item.time * 1e3)}",
    )


async def rear_count(bus: Bus, queue: str, side: Side) -> int:
    """How many dead items a side has."""
    subject, offset, found = queuenames.rear_items(queue, side), 0, 0
    while True:
        asked = {"subjects_filter": subject, "offset": offset}
        info = await bus.request_json(f"$JS.API.STREAM.INFO.{queuenames.REAR}", asked)
        page = info["state"].get("subjects") or {}
        offset += len(page)
        found += sum(int(count) for count in page.values())
        if not page or offset >= info.get("total", 0):
            return found


async def redrive(bus: Bus, queue: str, side: Side, most: int) -> int:
    """Put dead items back into their side, the oldest first, for all of its groups; at most so many, 0 = all.

    Returns how many. Each is stored again before it leaves the rear queue; redriven twice within two minutes, as after
    a crash, it is one item. Raises as :meth:`Bus.write`, with ``done`` among the facts.
    """
    done = 0
    try:
        async for item in _items(bus, queue, side, most):
            tags = {key: value for key, value in item.tags.items() if not key.startswith("_")}
            rank: Rank = "hi" if item.tags.get(PRIORITY_TAG) else "lo"
            await bus.write(
                queuenames.queue_item(queue, side, rank, subject_id(tags, item.request_id)),
                item.data,
                headers=headers_of(tags, item.request_id, item.trace),
                msg_id=f"{queuenames.REAR}-{item.index}-{int(item.time * 1e3)}",
            )
            await _delete(bus, queuenames.REAR, item.index)
            done += 1
    except SignalboxError as error:
        error.facts["done"] = done
        raise
    return done


async def purge(bus: Bus, queue: str, side: Side, *, is_rear: bool, most: int = 0) -> int:
    """Remove the oldest items of a side, or of its rear queue; at most so many, 0 = all. Returns how many."""
    stream = queuenames.REAR if is_rear else queuenames.queue_stream(queue, side)
    subject = queuenames.rear_items(queue, side) if is_rear else queuenames.queue_items(queue, side)
    if not most:
        answer = await bus.request_json(f"$JS.API.STREAM.PURGE.{stream}", {"filter": subject})
        return int(answer.get("purged", 0))
    done, index = 0, 1
    while done < most:
        stored = await bus.leader_next(stream, index, subject)
        if stored is None:
            break
        index = stored.seq + 1
        done += await _delete(bus, stream, stored.seq)
    return done


async def _items(bus: Bus, queue: str, side: Side, most: int) -> AsyncIterator[Item]:
    """Dead items, the oldest first, as the leader knows them; what is buried meanwhile may be among them."""
    index, left = 1, most or _FAR
    while (
        left
        and (stored := await bus.leader_next(queuenames.REAR, index, queuenames.rear_items(queue, side))) is not None
    ):
        index, left = stored.seq + 1, left - 1
        yield item_of(stored)


async def _delete(bus: Bus, stream: str, index: int) -> bool:
    """Whether it was there until now."""
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": index})
    except SignalboxError as error:
        if error.facts.get("err_code") == _NO_MESSAGE:
            return False
        raise
    return True
