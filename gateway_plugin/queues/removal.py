"""Removes single items for all groups, so that of all who remove one exactly one knows that it was the first."""

from collections.abc import Iterable
from typing import Final

import msgspec

from gateway_plugin.queues.scanning import BEING_MADE
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import ApiError, api_refused
from signalbox.bus.requests import Requests
from signalbox.program.errors import Ambiguous, NotFound, SignalboxError, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire import queuenames
from signalbox.wire.queuenames import REAR, Side
from signalbox.wire.queues import Queue

_AT_ONCE: Final = 64
_GONE: Final = frozenset({10043, 10057})
"""Errors for a sequence that is no longer there, and for one that has not been given yet."""
_encode: Final = msgspec.json.Encoder().encode


class _Answer(msgspec.Struct):
    error: ApiError | None = None
    success: bool = False


_decode: Final = msgspec.json.Decoder(_Answer).decode


async def remove(bus: Requests, stream: str, indexes: Iterable[int]) -> set[int]:
    """Remove messages; returns those that this call has removed, and none that others had removed before.

    One whose answer is lost is returned too: it may be given out twice, but is not lost. Raises :class:`Unavailable`
    where nothing was removed because NATS does not answer.
    """
    removed: set[int] = set()
    left = list(dict.fromkeys(indexes))
    while left:
        slice_, left = left[:_AT_ONCE], left[_AT_ONCE:]
        async with TaskGroup() as group:
            tasks = {index: group.create_task(_remove_one(bus, stream, index)) for index in slice_}
        outcomes = {index: task.result() for index, task in tasks.items()}
        removed.update(index for index, outcome in outcomes.items() if outcome is True)
        refusal = next((one for one in outcomes.values() if isinstance(one, SignalboxError)), None)
        if refusal is not None and removed:
            break
        if refusal is not None:
            raise refusal
    return removed


async def remove_rear(bus: Bus, queue: Queue, side: Side, indexes: Iterable[int]) -> set[int]:
    """Remove dead items of one side, as :func:`remove`; what belongs to another queue is as if it were not there."""
    subject = queuenames.rear_items(queue.name, side)
    mine = []
    for index in dict.fromkeys(indexes):
        stored = await bus.leader_next(REAR, index)
        if stored is not None and stored.seq == index and stored.subject.startswith(subject.removesuffix("*")):
            mine.append(index)
    return await remove(bus, REAR, mine)


async def _remove_one(bus: Requests, stream: str, index: int) -> bool | SignalboxError:
    """Whether this call has removed it; the error where that was certainly not carried out."""
    if index < 1:
        return False
    subject = f"$JS.API.STREAM.MSG.DELETE.{stream}"
    # Overwriting what was on the disk takes four times as long; the disk's room is free either way.
    asked = _encode({"seq": index, "no_erase": True})
    try:
        _, body = await bus.request(subject, asked, is_write=True)
    except Ambiguous:
        return True
    except SignalboxError as error:
        return error
    answer = _decode(body)
    if answer.error is None:
        return answer.success
    if answer.error.err_code in _GONE:
        return False
    refusal = api_refused(answer.error, subject)
    return Unavailable(BEING_MADE, retry_after_s=1.0) if isinstance(refusal, NotFound) else refusal
