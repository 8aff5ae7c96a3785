"""Does a task while this copy of the program has its lease, and ends it when the lease is lost."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from signalbox.bus.client import Bus
from signalbox.bus.leader import LeaderLease
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background
from signalbox.wire.outboundnames import OUTBOUND

_OFTEN: Final = 3
"""The lease is written so many times before it would end."""
_PAUSE_S: Final = 1.0
"""Before a task that failed begins anew."""


class Duty:
    """One task under one lease. name: of its key in ``duties``, below ``outbound.``. owner, boot: of this process."""

    def __init__(
        self, bus: Bus, name: str, work: Callable[[], Awaitable[None]], *, owner: str, boot: str, ttl_s: int
    ) -> None:
        self._name = name
        self._work = work
        self._ttl_s = ttl_s
        self._lease = LeaderLease(bus, f"{OUTBOUND}.{name}", owner=owner, boot=boot, ttl_s=ttl_s)

    async def keep(self) -> None:
        """Until cancelled: take the lease as soon as it is free, and work while it is ours.

        The work runs until it is cancelled; one that returns or fails begins anew a moment later, from what is stored.
        """
        working = Background()
        known_s = 0.0
        loop = asyncio.get_running_loop()
        try:
            while True:
                try:
                    is_ours = await self._lease.take()
                    known_s = loop.time()
                except SignalboxError as error:
                    log.warning("outbound.lease_failed", duty=self._name, reason=error.public_message)
                    is_ours = bool(working) and loop.time() - known_s < self._ttl_s
                if is_ours and not working:
                    log.info("outbound.duty_taken", duty=self._name)
                    working.start(self._run(), name=f"outbound {self._name}")
                elif not is_ours and working:
                    log.warning("outbound.duty_lost", duty=self._name)
                    await working.cancel()
                await asyncio.sleep(self._ttl_s / _OFTEN)
        finally:
            if working:
                await working.cancel()
                await self._lease.give_up()

    async def _run(self) -> None:
        while True:
            try:
                await self._work()
            except SignalboxError as error:
                log.warning("outbound.duty_failed", duty=self._name, reason=error.public_message)
            except Exception:  # noqa: BLE001  the edge of a task
                log.exception("outbound.duty_failed", duty=self._name)
            await asyncio.sleep(_PAUSE_S)
