"""Up to when the tables tell all that happened."""

from console.projector.models import Cursor
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.program.errors import NotFound
from signalbox.wire.names import QUEUED, RECORDS, Stream


async def complete_until(bus: Bus, place: Cursor, now: float) -> float:
    """All that was accepted or written by then is in the tables that were at ``place``; UTC seconds, at most ``now``.

    now: before NATS is asked. Raises as the connection does.
    """
    return min(
        now,
        await _first_after(bus, Stream.STATE, place.seq, RECORDS, now),
        await _first_after(bus, Stream.JOBS, place.queue_seq, QUEUED, now),
    )


async def _first_after(bus: Bus, stream: Stream, seq: int, subjects: str, otherwise: float) -> float:
    """When the first message after this sequence was stored; ``otherwise`` where there is none."""
    asked = {"seq": seq + 1, "next_by_subj": subjects}
    try:
        answer = await bus.request_json(f"$JS.API.STREAM.MSG.GET.{stream}", asked)
    except NotFound:
        return otherwise
    return unix_time(answer["message"]["time"])
