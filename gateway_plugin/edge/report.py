"""Reports to the operators' board that the edge turns connections away, as long as it does.

The report is a header of the message that lists the keys in use; a console that does not know the header ignores it.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.messages import RefusedConnections, header
from signalbox.wire.names import Header

EVERY_S: Final = 10.0


class RefusedConnectionsReport:
    """Asks ``refused_connections`` every ``every_s`` seconds, and tells what it says."""

    def __init__(
        self, bus: Bus, refused_connections: Callable[[], RefusedConnections | None], *, every_s: float = EVERY_S
    ) -> None:
        self._bus = bus
        self._refused_connections = refused_connections
        self._every_s = every_s
        self._telling = Background()

    def start(self) -> None:
        """Tell from now on."""
        self._telling.start(self._tell_often(), name="refused connections")

    async def close(self) -> None:
        """Tell no more. Idempotent."""
        await self._telling.cancel()

    async def _tell_often(self) -> None:
        while True:
            found = self._refused_connections()
            if found is not None:
                told = header(replace(found, name=self._bus.instance))
                await self._bus.publish(names.KEY_USE, b"[]", headers={Header.FRONT: told})
            await asyncio.sleep(self._every_s)
