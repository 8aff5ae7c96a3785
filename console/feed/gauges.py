"""Depth and age of each model's queue, read from JetStream's consumers: correct whenever this process started."""

import asyncio
from typing import Any, Final

from console.board.queues import Gauge
from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.program.errors import NotFound
from signalbox.wire.names import PRIORITIES, Priority, Stream, consumer, jobs_of, untoken

OLDEST_EVERY_S: Final = 1.0
"""How often the oldest waiting job of one priority is looked up, at most."""


class Gauges:
    """Reads the gauges of models. Remembers the oldest waiting job, which changes only when it is taken."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._oldest: dict[str, tuple[int, float, float]] = {}
        self.round_trip_s = 0.0

    async def read(self, model: str, now: float, *, has_prefetched: bool = False) -> Gauge | None:
        """The gauge of one model, None if it has no consumers. Raises :class:`Unavailable`.

        has_prefetched: a worker has jobs of it that have not begun, so the oldest in flight is asked for too.
        """
        began = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            asked = [
                group.create_task(self._consumer(model, p, now, has_prefetched=has_prefetched)) for p in PRIORITIES
            ]
        self.round_trip_s = asyncio.get_running_loop().time() - began
        parts = [part for task in asked if (part := task.result())]
        if not parts:
            return None
        oldest = [part.oldest_at for part in parts if part.oldest_at is not None]
        return Gauge(
            waiting=sum(p.waiting for p in parts),
            in_flight=sum(p.in_flight for p in parts),
            redelivered=sum(p.redelivered for p in parts),
            oldest_at=min(oldest, default=None),
            started=sum(p.started for p in parts),
            ended=sum(p.ended for p in parts),
            oldest_in_flight_at=min(
                (p.oldest_in_flight_at for p in parts if p.oldest_in_flight_at is not None), default=None
            ),
        )

    async def models(self) -> set[str]:
        """Every model that has a consumer, whether the console knows it or not."""
        names = await self._bus.listed(f"$JS.API.CONSUMER.NAMES.{Stream.JOBS}", "consumers")
        return {untoken(n.rpartition("_")[0]) for n in names if n.rpartition("_")[2] in PRIORITIES}

    async def _consumer(self, model: str, priority: Priority, now: float, *, has_prefetched: bool) -> Gauge | None:
        name = consumer(model, priority)
        try:
            info = await self._bus.request_json(f"$JS.API.CONSUMER.INFO.{Stream.JOBS}.{name}")
        except NotFound:
            return None
        delivered: dict[str, Any] = info.get("delivered", {})
        waiting, in_flight = info.get("num_pending", 0), info.get("num_ack_pending", 0)
        oldest_at = oldest_in_flight_at = None
        subject = jobs_of(model, priority)
        if waiting:
            oldest_at = await self._oldest_at(name, subject, delivered.get("stream_seq", 0), now)
        if in_flight and has_prefetched:
            ended: int = info.get("ack_floor", {}).get("stream_seq", 0)
            oldest_in_flight_at = await self._oldest_at(f"{name} in flight", subject, ended, now)
        return Gauge(
            waiting,
            in_flight,
            info.get("num_redelivered", 0),
            oldest_at,
            started=delivered.get("consumer_seq", 0),
            ended=delivered.get("consumer_seq", 0) - in_flight,
            oldest_in_flight_at=oldest_in_flight_at,
        )

    async def _oldest_at(self, name: str, subject: str, after: int, now: float) -> float | None:
        """When the first job after the sequence ``after`` was stored."""
        known = self._oldest.get(name)
        if known is not None and (known[0] > after or now < known[2] + OLDEST_EVERY_S):
            return known[1]
        try:
            answer = await self._bus.request_json(
                f"$JS.API.STREAM.MSG.GET.{Stream.JOBS}", {"seq": after + 1, "next_by_subj": subject}
            )
        except NotFound:
            return None
        message = answer["message"]
        at = unix_time(message["time"])
        self._oldest[name] = (message["seq"], at, now)
        return at
