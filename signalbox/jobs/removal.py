"""Removes one message from the queue."""

from typing import Final

from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.wire.names import Stream

_GONE: Final = frozenset({10043, 10057})
"""The server's codes for deleting what is not there: within the stream, and before its first message."""


async def remove(bus: Bus, seq: int) -> None:
    """Remove one message of ``JOBS`` whose job has ended, or that is none. Idempotent."""
    try:
        await bus.request_json(f"$JS.API.STREAM.MSG.DELETE.{Stream.JOBS}", {"seq": seq, "no_erase": True})
    except SignalboxError as error:
        if error.facts.get("err_code") not in _GONE:
            raise
