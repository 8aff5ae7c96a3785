"""The parts of the queue service in one program: made, started and closed together."""

import time
from collections.abc import Callable

from gateway_plugin.queues.accountbytes import AccountBytes
from gateway_plugin.queues.made import Made
from gateway_plugin.queues.reading import Reader
from gateway_plugin.queues.store import Store
from gateway_plugin.queues.tables import QueueTables
from gateway_plugin.queues.watching.presence import Presence
from gateway_plugin.queues.watching.watches import Watches
from signalbox.bus.client import Bus


class QueueParts:
    """What a program needs to serve queues. bus: of the main account. queue_bus: to the account of the queue service,
    None = it is the same account. The rest as :class:`Store` has it."""

    def __init__(
        self,
        bus: Bus,
        queue_bus: Bus | None = None,
        *,
        check: Callable[[], None] = lambda: None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self.bus = queue_bus or bus
        self.tables = QueueTables(bus)
        self.bytes = AccountBytes(bus, self.tables)
        self.made = Made(self.bus)
        self.store = Store(self.bus, self.tables, check=check, wall=wall)
        self.reader = Reader(self.bus)
        self.presence = Presence(self.bus)
        self.watches = Watches(self.bus, self.tables, self.presence)

    async def start(self) -> None:
        """Read the documents of all queues, and follow them and the watches of others. Raises :class:`Unavailable`."""
        self.bus.on_reconnect(self.made.forget)
        await self.tables.start()
        await self.bytes.start()
        await self.watches.start()

    async def close(self) -> None:
        """End all watches, and follow nothing more. Idempotent."""
        await self.watches.close()
        await self.reader.close()
        await self.store.close()
        await self.bytes.close()
        await self.tables.close()
        self.bus.forget_reconnect(self.made.forget)
