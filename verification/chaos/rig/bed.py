"""The base of a rig: NATS on one node or three, the proxies before it, and the recorders of its events."""

from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops.ports import HOST
from signalbox.ops.up.datadir import DataDir
from signalbox.program.errors import Unavailable
from signalbox.program.settings import Wire
from signalbox.wire import roles
from tests.rigs.natsserver import NatsServer
from tests.rigs.nodes import nodes, started
from tests.rigs.outage import House
from verification.chaos.environment.disk import Disk
from verification.chaos.environment.namespace import Namespace
from verification.chaos.environment.proxy import CALM, Proxy, Weather
from verification.chaos.environment.routes import NodeRoutes
from verification.chaos.environment.smalldisk import SmallDisk
from verification.chaos.evidence.recorder import Recorder
from verification.chaos.rig.site import Site

OURS: Final = "rig"
"""Whose proxies our own connection goes through, where it does."""
STORAGE_BYTES: Final = 4 * 1024**3


class Bed(House, Site):
    """NATS, and a proxy per program and node. history: folder of what happened. node_count: of NATS, 1 or 3.

    has_routes: the nodes call each other through us, and so do we call them. settings: further ones, by role.
    """

    def __init__(
        self,
        data: DataDir,
        history: Path,
        *,
        node_count: int,
        has_routes: bool,
        settings: Mapping[str, Mapping[str, str]],
    ) -> None:
        House.__init__(self, data, settings)
        Site.__init__(self, history, node_count=node_count)
        self.nodes: list[NatsServer] = []
        self.proxies: dict[str, list[Proxy]] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.routes = NodeRoutes() if has_routes else None
        self.disk: SmallDisk | None = None
        self.disks: list[Disk] = []
        self._wire = Wire()
        self._exits = AsyncExitStack()

    async def start_nats(self) -> None:
        """One node, or three that form a cluster; our own connection goes to them directly where they do so."""
        users = {str(role): self._password(role).read_text() for role in roles.USERS}
        folders = [self.data.path / f"nats-{number}" for number in range(self.node_count)]
        self.nodes += nodes(folders, users=users)
        if self.routes is not None:
            await self.routes.lay(self.nodes)
        await started(self.nodes)
        if self.routes is not None:
            await self._build_proxies(OURS)
        places = self.proxies.get(OURS) or self.nodes
        self._wire = Wire(
            nats_url=",".join(place.url for place in places),
            nats_user="admin",
            nats_password=users["admin"],
            request_timeout_s=5.0,
            ping_interval_s=1.0,
        )
        self._bus = await Bus.connect(self._wire, role="admin", name="chaos")
        await self.patiently(self.declare)
        self.recorder = await self._exits.enter_async_context(Recorder(self.bus, self.history))

    async def declare(self) -> None:
        """Every stream, as ``signalbox up`` does at each start."""
        await topology.apply(self.bus, len(self.nodes), storage_bytes=STORAGE_BYTES)

    async def start_node(self, node: NatsServer) -> None:
        """A node of NATS on what it had written; a busy machine may need more than one try."""
        for _ in range(5):
            try:
                await node.start()
            except Unavailable as error:
                self.said.append(error.public_message)
            else:
                return
        raise AssertionError(f"{node.name} does not start: {list(node.tail)[-3:]}")

    async def _build_proxies(self, name: str, host: str = HOST) -> None:
        self.proxies[name] = [
            await self._exits.enter_async_context(Proxy((HOST, node.port), host=host)) for node in self.nodes
        ]

    async def end_nats(self) -> None:
        """After every program."""
        await self._exits.aclose()
        for node in self.nodes:
            await node.stop()
        if self.routes is not None:
            await self.routes.close()

    # -- the network -----------------------------------------------------------------------------------

    async def calm(self) -> None:
        """End all network faults and thaw all processes."""
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.change(CALM)
        for space in self.namespaces.values():
            with suppress(OSError):
                space.heal()
        if self.routes is not None:
            self.routes.heal(is_late=True)

    def weather(self, name: str, weather: Weather) -> None:
        """Over every connection of one program."""
        for proxy in self.proxies[name]:
            proxy.change(weather)

    def bind(self, name: str, nodes: Collection[NatsServer]) -> None:
        """One program reaches these nodes and is refused by the others."""
        for node, proxy in zip(self.nodes, self.proxies[name], strict=True):
            if node in nodes:
                proxy.change(CALM)
            else:
                proxy.change(Weather(is_refusing=True))
                proxy.reset()

    async def leader_of(self, stream: str) -> NatsServer | None:
        """The node that leads a stream."""
        name = await self.leader_name(stream)
        return next((node for node in self.nodes if node.name == name), None)
