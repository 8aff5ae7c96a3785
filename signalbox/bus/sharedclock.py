"""UTC as NATS has it: one clock for all programs, so that a machine with a wrong clock ends no job early or late.

It is measured at the start and every half minute, and continued by CLOCK_BOOTTIME in between, which has no steps.
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
_PAUSE_S: Final = 2.0
"""An answer that took longer is not used: it says too little about when it was given."""
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
        if answered_at - asked_at < _PAUSE_S or not self._is_measured:
            self._offset = unix_time(info["ts"]) - (asked_at + answered_at) / 2
            self._is_measured = True
            self._compare()

    def _compare(self) -> None:
        by_s = time.time() - self.now()
        was_wrong, self._is_wrong = self._is_wrong, abs(by_s) > _WRONG_S
        if self._is_wrong and not was_wrong:
            log.warning("clock.wrong", by_s=round(by_s, 1))
