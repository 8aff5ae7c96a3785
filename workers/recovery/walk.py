"""Reads the headers of a stream's messages from a sequence on, a bounded number at a time.

Through a consumer that lives for one walk: it acknowledges nothing, so it takes nothing from anybody, and
the cursor is the caller's to keep.
"""

import asyncio
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from signalbox.bus.client import Bus, Delivery
from signalbox.program.errors import NotFound
from signalbox.wire.names import RECONCILER, Stream

ROUND: Final = 500
"""Messages asked for at once; between two rounds the event loop does its other work."""
_QUIET_S: Final = 2.0
_INACTIVE_NS: Final = 30_000_000_000


async def walk(bus: Bus, stream: Stream, seq: int, limit: int, look: Callable[[Delivery], bool]) -> int:
    """Call ``look`` with at most ``limit`` messages from ``seq`` on, headers only; returns where to go on.

    look: False ends the walk before that message. Raises as :meth:`Bus.request_json`.
    """
    place = f"{stream}.{RECONCILER}"
    await _forget(bus, place)
    config: dict[str, Any] = {
        "name": RECONCILER,
        "deliver_policy": "by_start_sequence",
        "opt_start_seq": max(1, seq),
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "headers_only": True,
        "inactive_threshold": _INACTIVE_NS,
    }
    info = await bus.request_json(
        f"$JS.API.CONSUMER.CREATE.{place}", {"stream_name": stream.value, "config": config, "action": "create"}
    )
    reading = _Reading(look, seq)
    puller = await bus.pull(RECONCILER, reading.take, stream=stream)
    puller.on_idle = reading.turned.set
    try:
        left = min(int(info.get("num_pending", 0)), limit)
        while left > 0 and not reading.is_over:
            wanted = min(left, ROUND)
            reading.seen = 0
            puller.ask(wanted, expires_s=_QUIET_S)
            while reading.seen < wanted and puller.outstanding and not reading.is_over:
                reading.turned.clear()
                await reading.turned.wait()
            if not reading.seen:
                break
            left -= reading.seen
    finally:
        await puller.close()
        await _forget(bus, place)
    return reading.seq


async def first_since(bus: Bus, stream: Stream, at: datetime) -> int:
    """Sequence of the first message stored at or after an instant; above the last one where there is none."""
    place = f"{stream}.{RECONCILER}"
    await _forget(bus, place)
    config: dict[str, Any] = {
        "name": RECONCILER,
        "deliver_policy": "by_start_time",
        "opt_start_time": at.isoformat(),
        "ack_policy": "none",
        "replay_policy": "instant",
        "mem_storage": True,
        "num_replicas": 1,
        "headers_only": True,
        "inactive_threshold": _INACTIVE_NS,
    }
    info = await bus.request_json(
        f"$JS.API.CONSUMER.CREATE.{place}", {"stream_name": stream.value, "config": config, "action": "create"}
    )
    await _forget(bus, place)
    return int(info["delivered"]["stream_seq"]) + 1


class _Reading:
    """What a walk has read. seq: of the next message. seen: messages of this round."""

    def __init__(self, look: Callable[[Delivery], bool], seq: int) -> None:
        self._look = look
        self.seq = seq
        self.seen = 0
        self.is_over = False
        self.turned = asyncio.Event()

    def take(self, delivery: Delivery) -> None:
        self.seen += 1
        if not self.is_over:
            if self._look(delivery):
                self.seq = delivery.seq + 1
            else:
                self.is_over = True
        self.turned.set()


async def _forget(bus: Bus, place: str) -> None:
    try:
        await bus.request_json(f"$JS.API.CONSUMER.DELETE.{place}")
    except NotFound:
        return
