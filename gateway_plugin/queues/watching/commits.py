"""Commits and what consumers give back, whichever plugin holds the item."""

import asyncio
import re
from collections.abc import Sequence
from typing import Final

from gateway_plugin.queues.scanning import state_of
from gateway_plugin.queues.watching.feeder import Feeder
from gateway_plugin.queues.watching.groups import Place
from signalbox.bus.client import Bus
from signalbox.program.errors import Conflict, InvalidRequest, NotFound, SignalboxError, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire import queuenames
from signalbox.wire.messages import decode, encode
from signalbox.wire.queues import WatchAsk, WatchDone

MOST_TOLD: Final = 20
"""Indexes that an error names."""
REASON_BYTES: Final = 256
_AT_ONCE: Final = 32
"""Items of one call that are committed at the same time."""
_CODE: Final = re.compile(r"(?:[A-Z][A-Za-z0-9]{0,19}|[0-9]{1,20})\Z")


def require_code(code: str) -> None:
    """Raise :class:`InvalidRequest` for a code of a negative commit that is neither CamelCase nor digits, or long."""
    if code and _CODE.match(code) is None:
        raise InvalidRequest("A code is of CamelCase words or of digits, at most 20 characters.", field="_code_")


async def commit(bus: Bus, place: Place, indexes: Sequence[int], feeder: Feeder | None) -> None:
    """Commit items of a group; feeder: that holds some of them, if any. Raises as :meth:`Watches.commit`."""
    slots = asyncio.Semaphore(_AT_ONCE)
    missing: list[int] = []
    failed: list[SignalboxError] = []

    async def one(index: int) -> None:
        try:
            async with slots:
                is_held = feeder is not None and await feeder.commit(index)
                if not is_held and not await _commit_by_index(bus, place, index):
                    missing.append(index)
        except SignalboxError as error:  # the others are committed all the same
            failed.append(error)

    wanted = list(dict.fromkeys(indexes))
    if len(wanted) == 1:
        await one(wanted[0])
    else:
        async with TaskGroup() as group:
            for index in wanted:
                group.create_task(one(index))
    if failed:
        raise failed[0]
    if missing:
        raise Conflict("These items were not given to this group.", indexes=sorted(missing)[:MOST_TOLD])


async def ask(bus: Bus, instance: str, asked: WatchAsk) -> WatchDone:
    """What another plugin has taken back; nothing where it is gone by now."""
    try:
        _, body = await bus.request(queuenames.ask_watch(instance), encode(asked))
    except Unavailable:
        return WatchDone()
    return decode(WatchDone, body)


async def _commit_by_index(bus: Bus, place: Place, index: int) -> bool:
    """Commit what another plugin holds; False where the group has not got it yet.

    The server answers to every index up to where a consumer is, so the consumer must be that of the item's rank; and
    to none behind that.
    """
    if index < 1:
        return False
    subject = await _subject(bus, place, index)
    if subject is None:
        return await _was_there(bus, place, index)
    consumer = place.consumer(queuenames.rank_of(subject))
    reply = queuenames.queue_ack(place.queue, place.side, consumer, str(index))
    try:
        await bus.request(reply, b"+ACK")
    except Unavailable:
        if not bus.is_connected:
            raise
        if not await _is_given(bus, place, consumer, index):
            return False
        await bus.request(reply, b"+ACK")  # it was given out while the first one waited for its answer
    return True


async def _subject(bus: Bus, place: Place, index: int) -> str | None:
    """Of a stored item, as the leader knows it; None where it is gone, or never was."""
    try:
        answer = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{place.stream}", {"seq": index})
    except NotFound:
        return None
    subject: str = answer["message"]["subject"]
    return subject


async def _was_there(bus: Bus, place: Place, index: int) -> bool:
    return index <= (await state_of(bus, place.stream))["last_seq"]


async def _is_given(bus: Bus, place: Place, consumer: str, index: int) -> bool:
    try:
        info = await bus.consumer_info(consumer, place.stream)
    except NotFound:  # there is no such group
        return False
    return index <= info.delivered_stream_seq
