"""Reads the headers of a stream's messages from a sequence on, a bounded number at a time, for the reconciler.

Its consumer lives for one walk; a worker has no right to ask whose it is, so two reconcilers at once tell by numbers.
"""

from collections.abc import Callable
from datetime import datetime
from typing import Final

from signalbox.bus.client import Bus, Delivery
from signalbox.jobs.cursor import StreamCursor
from signalbox.wire.names import RECONCILER, Stream

ROUND: Final = 500
"""Messages asked for at once; between two rounds the event loop does its other work."""


async def walk(bus: Bus, stream: Stream, seq: int, limit: int, visit: Callable[[Delivery], bool]) -> int:
    """Call ``visit`` with at most ``limit`` messages from ``seq`` on, headers only; returns where to go on.

    visit: False ends the walk before that message. Raises as :meth:`Bus.request_json` and :meth:`StreamCursor.sweep`.
    """
    cursor = _cursor(bus, stream)
    try:
        left = min(await cursor.open(seq), limit)
        while left > 0 and (found := await cursor.sweep(min(left, ROUND))):
            for delivery in found:
                if not visit(delivery):
                    return seq
                seq = delivery.seq + 1
            left -= len(found)
    finally:
        await cursor.close()
        await cursor.forget()
    return seq


async def first_since(bus: Bus, stream: Stream, at: datetime) -> int:
    """Sequence of the first message stored at or after an instant; above the last one where there is none."""
    cursor = _cursor(bus, stream)
    made = await cursor.make({"deliver_policy": "by_start_time", "opt_start_time": at.isoformat()})
    await cursor.forget()
    return int(made["delivered"]["stream_seq"]) + 1


def _cursor(bus: Bus, stream: Stream) -> StreamCursor:
    return StreamCursor(bus, stream, RECONCILER, is_watched=False)
