"""Depth and age of a model's queue, read from its consumers: correct whenever this process started."""

import asyncio
from collections.abc import Collection
from typing import Final, NamedTuple

from console.board.queues import Gauge
from console.feed import census
from signalbox.bus.client import Bus, ConsumerInfo
from signalbox.jobs import delivery
from signalbox.wire.names import Stream, jobs_of
from signalbox.wire.workerdocs import Worker

OLDEST_EVERY_S: Final = 1.0
"""How often the oldest waiting job of one priority is looked up, at most."""


class _Oldest(NamedTuple):
    """The first job after a sequence, when it was stored, until when it may begin, and when it was asked for."""

    after: int
    seq: int
    at: float
    deadline_at: float
    asked_at: float


class Gauges:
    """Reads the gauges of models. Remembers the oldest waiting job: no earlier one comes after it."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._oldest: dict[str, _Oldest] = {}
        self._queue = ("", 0)
        self.round_trip_s = 0.0

    async def read(self, model: str, workers: Collection[Worker], now: float, *, is_attended: bool) -> Gauge:
        """The gauge of one model. Raises :class:`Unavailable`.

        workers: those that are present. is_attended: one of them says something of the model; else, and
        where a consumer may count what was delivered or ended before, its jobs are counted by themselves.
        """
        if not is_attended:
            return await census.count(self._bus, model, workers)
        found = await delivery.states(self._bus, model, delivery.generation_of(workers))
        if any(info.num_pending and info.delivered_stream_seq < info.examined_to for info in found.values()):
            gauge = await census.count(self._bus, model, workers)
            if gauge.is_whole:
                return gauge
        waiting = [(info, jobs_of(model, priority)) for priority, info in found.items() if info.num_pending]
        firsts = await asyncio.gather(*(self._first(info, subject, now) for info, subject in waiting))
        oldest = min((first for first in firsts if first is not None), key=lambda first: first.at, default=None)
        total = sum(info.num_pending for info, _ in waiting)
        return Gauge(total, oldest.at, deadline_at=oldest.deadline_at) if oldest is not None else Gauge(total, None)

    async def queued(self, models: Collection[str]) -> set[str]:
        """Those of the models that may have jobs waiting. Raises :class:`Unavailable`."""
        return await delivery.queued_models(self._bus, models)

    async def accepted(self) -> int:
        """How many jobs of all models were accepted since this was last asked. Raises :class:`Unavailable`."""
        loop = asyncio.get_running_loop()
        began = loop.time()
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        self.round_trip_s = loop.time() - began
        (created, before), self._queue = self._queue, (info["created"], int(info["state"]["last_seq"]))
        # Of a stream that was made anew nothing is known: its numbers do not go on where those of the last one ended.
        return self._queue[1] - before if created == self._queue[0] and before else 0

    async def _first(self, info: ConsumerInfo, subject: str, now: float) -> _Oldest | None:
        """The first job that waits."""
        after = info.delivered_stream_seq
        known = self._oldest.get(info.name)
        is_still_there = known is not None and after < known.seq  # else it was delivered, and nothing may ask later
        if known is not None and is_still_there and now < known.asked_at + OLDEST_EVERY_S:
            return known
        # It may have left without a delivery, cancelled. From its place on the server need not search for it.
        start = max(after + 1, known.seq) if known is not None and known.after <= after else after + 1
        stored = await self._bus.leader_next(Stream.JOBS, start, subject)
        if stored is None:
            self._oldest.pop(info.name, None)
            return None
        self._oldest[info.name] = found = _Oldest(after, stored.seq, stored.time, census.deadline_of(stored), now)
        return found
