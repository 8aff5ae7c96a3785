"""What a group's feeder asks NATS for: never more than it may give on, and high items before all others."""

import asyncio
from collections.abc import Callable
from typing import Final

from gateway_plugin.queues.watching.groups import Place
from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.program.errors import SignalboxError
from signalbox.program.tasks import Background

_PARK_S: Final = 30.0
"""How long the server keeps a request for low items before it is made again."""
_AGAIN_S: Final = 0.05
"""The server tells of an item before its consumer knows of it, and may say that there is none: asked again after so
long."""


class Pulling:
    """The two consumers of a group. free: how many items may be taken now, those that are asked for included.

    High items are asked for without waiting; when there are none, low ones are, and that request stays at the server.
    When a high item comes while all that is free is asked for of the low, that request is taken back first: so no item
    comes for which there is no slot, which would be given back with its delivery count raised for nothing.
    """

    def __init__(
        self, bus: Bus, place: Place, on_delivery: Callable[[Delivery], None], free: Callable[[], int]
    ) -> None:
        self._bus = bus
        self._place = place
        self._on_delivery = on_delivery
        self._free = free
        self._loop = asyncio.get_running_loop()
        self._high = bus.puller(place.consumer("hi"), on_delivery, stream=place.stream)
        self._high.on_idle = self._high_idle
        self._low = self._low_puller()
        self._withdrawn: Puller | None = None
        self._withdrawing = Background()
        self._is_high_empty = False
        self._events = 0
        self._asked_at = 0
        self._is_announced = False
        self._is_due = False
        self._is_closed = False

    @property
    def owed(self) -> int:
        """Items that are asked for and not there yet."""
        leaving = self._withdrawn.outstanding if self._withdrawn is not None else 0
        return self._high.outstanding + self._low.outstanding + leaving

    @property
    def is_parked(self) -> bool:
        """Whether it waits for low items, as there were no high ones."""
        return self._is_high_empty and self._low.outstanding > 0

    @property
    def refusal(self) -> str:
        """Why the server gives nothing, for people; empty where it does."""
        return self._high.last_refusal or self._low.last_refusal

    def high_came(self) -> None:
        """There may be a high item."""
        self._is_announced = True
        self._look_for_high()

    def advance(self) -> None:
        """Ask for what is free, once in this turn of the loop however often it is called."""
        if not self._is_due and not self._is_closed:
            self._is_due = True
            self._loop.call_soon(self._ask)

    async def settle(self) -> None:
        """Take back what is asked for beyond what is free, so that nothing comes here that is given back now."""
        if self._low.outstanding and self._withdrawn is None and self.owed > self._free():
            self._withdraw()
        await self._withdrawing.finish()

    async def close(self) -> None:
        """Take back what is asked for; what was on its way has been delivered on return. Idempotent."""
        self._is_closed = True
        await self._withdrawing.finish()
        for puller in (self._high, self._low):
            await _end(puller)

    def _low_puller(self) -> Puller:
        puller = self._bus.puller(self._place.consumer("lo"), self._on_delivery, stream=self._place.stream)
        puller.on_idle = self.advance
        return puller

    def _ask(self) -> None:
        self._is_due = False
        if self._is_closed or self._withdrawn is not None:
            return
        free = self._free()
        spare = free - self.owed
        is_wanted_by_high = not self._is_high_empty and free > 0 and spare <= 0 and not self._high.outstanding
        if self._low.outstanding and (spare < 0 or is_wanted_by_high):
            self._withdraw()
        elif spare > 0 and not self._is_high_empty:
            if not self._high.outstanding:
                self._asked_at = self._events
                self._high.ask(spare, expires_s=0)
        elif spare > 0:
            self._low.ask(spare, expires_s=_PARK_S)

    def _look_for_high(self) -> None:
        self._events += 1
        self._is_high_empty = False
        self.advance()

    def _high_idle(self) -> None:
        """The server has no high items left, unless one has come since it was asked."""
        if not self._high.outstanding and not self._high.last_refusal and self._bus.is_connected:
            self._is_high_empty = not self._high.is_unanswered and self._events == self._asked_at
            if self._is_high_empty and self._is_announced:
                self._is_announced = False
                self._loop.call_later(_AGAIN_S, self._look_for_high)
        self.advance()

    def _withdraw(self) -> None:
        self._withdrawn, self._low = self._low, self._low_puller()
        self._withdrawing.start(self._end_withdrawn(self._withdrawn), name="queue request taken back")

    async def _end_withdrawn(self, puller: Puller) -> None:
        try:
            await _end(puller)
        finally:
            self._withdrawn = None
            self.advance()


async def _end(puller: Puller) -> None:
    try:
        await puller.drain()
    except SignalboxError:
        pass  # without a connection nothing is asked for
    finally:
        await puller.close()
