"""Reports to the console once a minute which keys are in use: a sample, at no cost to a request.

The report is a core message with the ids. If one is lost, the next one names the keys that are still in use.
"""

import asyncio
from typing import Final

import msgspec

from signalbox.bus.client import Bus
from signalbox.program.tasks import Background
from signalbox.wire import names

EVERY_S: Final = 60.0
_AT_ONCE: Final = 5_000


class KeyUse:
    """Collects ids and tells them every ``every_s`` seconds."""

    def __init__(self, bus: Bus, *, every_s: float = EVERY_S) -> None:
        self._bus = bus
        self._every_s = every_s
        self._used: set[str] = set()
        self.note = self._used.add
        """``note(key id)``: this key was used."""
        self._telling = Background()

    def start(self) -> None:
        """Tell from now on."""
        self._telling.start(self._tell_often(), name="key use")

    async def close(self) -> None:
        """Tell what is left and stop. Idempotent."""
        await self._telling.cancel()
        await self.tell()

    async def tell(self) -> None:
        """Tell what was used since the last time."""
        used = sorted(self._used)
        self._used.clear()
        for start in range(0, len(used), _AT_ONCE):
            part = msgspec.json.encode(used[start : start + _AT_ONCE])
            await self._bus.publish(names.KEY_USE, part)

    async def _tell_often(self) -> None:
        while True:
            await asyncio.sleep(self._every_s)
            await self.tell()
