"""Reports to the operators' board that callers' connections are turned away, as long as they are.

The report is a header of the message that lists the keys in use; a console that does not know the header ignores it.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec.structs import replace

from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.wire import names
from signalbox.wire.messages import header
from signalbox.wire.names import Header
from signalbox.wire.refused import RefusedConnections

EVERY_S: Final = 10.0


async def report(bus: Bus, refused_connections: Callable[[], RefusedConnections | None]) -> None:
    """Ask ``refused_connections`` every :data:`EVERY_S` seconds, and tell what it says, until cancelled."""
    while True:
        found = refused_connections()
        if found is not None:
            reported = header(replace(found, name=bus.instance))
            with suppress(SignalboxError):
                await bus.publish(names.KEY_USE, b"[]", headers={Header.FRONT: reported})
        await asyncio.sleep(EVERY_S)
