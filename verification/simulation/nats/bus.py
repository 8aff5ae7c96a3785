"""The real bus on a model of a connection: everything above the transport is production code."""

from functools import partial

from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from verification.simulation.nats.link import Link, ModelConnection
from verification.simulation.nats.server import Server


class ModelBus(Bus):
    """A :class:`Bus` whose server is a :class:`Server`. Call :meth:`open` where a program calls :meth:`Bus.connect`."""

    def __init__(
        self, server: Server, link: Link | None = None, *, role: str = "admin", settings: Wire | None = None
    ) -> None:
        self.server = server
        self.link = link or Link(server)
        instance = f"{self.link.rng.getrandbits(48):012x}"
        super().__init__(
            settings or Wire(), role, transport=partial(ModelConnection, link=self.link), instance=instance
        )

    async def open(self, name: str = "") -> "ModelBus":
        """Connect, as :meth:`Bus.connect` does and with its errors; returns itself."""
        await self._connect(name)
        return self
