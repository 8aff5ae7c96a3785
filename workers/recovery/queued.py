"""Reads what is in ``JOBS``, for the reconciler, without holding up acceptances.

A consumer is quick and gives headers only. But the server counts what is left for each one that is made, and accepts
nothing meanwhile: up to 0.4 s of a million jobs of a thousand models (ADR 0210). Where very many wait each message is
asked for by itself, which takes 0.2 ms and holds up nothing.
"""

import asyncio
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Final

from signalbox.bus.client import Bus, Delivery, Stored
from signalbox.wire.names import Stream
from workers.recovery.walk import walk

DEEP: Final = 100_000
"""Messages in ``JOBS`` that are very many."""
MOST_SINGLY: Final = 5_000
"""Of them so many are read in one walk, in about a second, or what has so many bytes; it may be exceeded by a part."""
MOST_BYTES: Final = 64 * 1024 * 1024
_AT_ONCE: Final = 16
_PART: Final = 16
"""Sequences of which one request after the other asks for the messages."""


def is_deep(jobs: Mapping[str, Any]) -> bool:
    """Whether very many messages are in ``JOBS``. jobs: as the server has told of it."""
    return bool(jobs["state"]["messages"] >= DEEP)


class _Part:
    """A part of the sequences. found: its messages, without bodies. following: of the next message, or where it may be;
    0 = there is none."""

    __slots__ = ("_start", "following", "found", "size_bytes")

    def __init__(self, start: int) -> None:
        self._start = self.following = start
        self.found: list[Stored] = []
        self.size_bytes = 0

    async def read(self, bus: Bus) -> None:
        """Ask for one message after the other."""
        end = self._start + _PART
        while self.following < end:
            stored = await bus.leader_next(Stream.JOBS, self.following)
            if stored is None:
                self.following = 0
                return
            if stored.seq >= end:
                self.following = stored.seq
                return
            self.size_bytes += len(stored.data)
            self.found.append(stored._replace(data=b""))
            self.following = stored.seq + 1


async def walk_jobs(
    bus: Bus, jobs: Mapping[str, Any], seq: int, limit: int, visit: Callable[[Delivery | Stored], bool]
) -> int:
    """Call ``visit`` with at most ``limit`` messages of ``JOBS`` from ``seq`` on; returns where to go on.

    jobs: as the server has told of it. visit: False ends the walk before that message. Raises as
    :meth:`Bus.request_json` and :meth:`StreamCursor.sweep`.
    """
    if not is_deep(jobs):
        return await walk(bus, Stream.JOBS, seq, limit, visit)
    left, left_bytes = min(limit, MOST_SINGLY), MOST_BYTES
    following = max(seq, jobs["state"]["first_seq"])
    while left > 0 and left_bytes > 0:
        starts = [following + number * _PART for number in range(_AT_ONCE)]
        parts = [_Part(start) for start in starts]
        await asyncio.gather(*(part.read(bus) for part in parts))
        found = list(chain.from_iterable(part.found for part in parts))
        for stored in found[:left]:
            if not visit(stored):
                return seq
            seq = stored.seq + 1
        if len(found) > left or not parts[-1].following:
            return seq
        seq = following = parts[-1].following
        left -= len(found)
        left_bytes -= sum(part.size_bytes for part in parts)
    return seq
