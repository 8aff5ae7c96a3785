"""UTC as NATS has it: one clock for all programs, so that a machine with a wrong clock ends no job early or late.

It is measured at the start and every half minute, and continued by CLOCK_BOOTTIME in between, which has no steps. An
answer bounds it by when it was asked for and when it came; the clock moves no further than those bounds make it, so a
slow answer moves nothing, and two programs differ by the fastest answers that each has seen.
What must be exclusive never uses it, but CLOCK_BOOTTIME alone (ADR 0145).
"""

import asyncio
import time
from contextlib import suppress
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.jetstream import unix_time
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire.names import Stream

PERIOD_S: Final = 30.0
_WRONG_S: Final = 2.0
"""A machine's clock that is off by more is reported."""


class SharedClock:
    """:meth:`now` is UTC, seconds, as the leader of ``JOBS`` has it; until :meth:`start`, as this machine has it.

    queued: how many messages that answer told of.
    """

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self.queued = 0
        self._offset = time.time() - time.clock_gettime(time.CLOCK_BOOTTIME)
        self._is_measured = False
        self._is_wrong = False
        self._keeping = Background()

    def now(self) -> float:
        """UTC, seconds."""
        return time.clock_gettime(time.CLOCK_BOOTTIME) + self._offset

    async def start(self) -> None:
        """Measure, and go on measuring. Raises :class:`Unavailable` when NATS does not answer."""
        await self._measure()
        self._keeping.start(self._keep(), name="shared clock")

    async def close(self) -> None:
        """Measure no more. Idempotent."""
        await self._keeping.cancel()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(PERIOD_S)
            with suppress(SignalboxError):  # until it is back the clock runs on
                await self._measure()

    async def _measure(self) -> None:
        asked_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        answered_at = time.clock_gettime(time.CLOCK_BOOTTIME)
        self.queued = info["state"]["messages"]
        least, most = (unix_time(info["ts"]) - at for at in (answered_at, asked_at))
        self._offset = min(max(self._offset, least), most) if self._is_measured else (least + most) / 2
        self._is_measured = True
        self._compare()

    def _compare(self) -> None:
        by_s = time.time() - self.now()
        was_wrong, self._is_wrong = self._is_wrong, abs(by_s) > _WRONG_S
        if self._is_wrong and not was_wrong:
            log.warning("clock.wrong", by_s=round(by_s, 1))
