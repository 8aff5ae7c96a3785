"""What a rig stands on: NATS, one node or three, every way to it, and what writes down what happens there."""

import asyncio
import time
from collections.abc import Collection, Mapping
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any, Final

from signalbox import roles, topology
from signalbox.bus import Bus
from signalbox.errors import SignalboxError, Unavailable
from signalbox.names import Bucket, key
from signalbox.natsserver import NatsServer
from signalbox.ports import HOST
from signalbox.settings import Wire
from signalbox.up.ground import DataDir
from tests.chaos.census import Census
from tests.chaos.disk import Disk
from tests.chaos.history import Journal, Recorder, now
from tests.chaos.link import Link
from tests.chaos.network import Namespace, SmallDisk
from tests.chaos.proxy import CALM, Proxy, Weather
from tests.chaos.routes import Routes
from tests.nodes import nodes, started
from tests.outagerig import House, becomes

OURS: Final = "rig"
"""Whose proxies our own connection goes through, where it does."""
STORAGE_BYTES: Final = 4 * 1024**3


class Bed(House):
    """NATS, and a proxy per program and node. history: folder of what happened. node_count: of NATS, 1 or 3.

    has_routes: the nodes call each other through us, and so do we call them. settings: further ones, by role.
    """

    def __init__(
        self, data: DataDir, history: Path, *, node_count: int, has_routes: bool,
        settings: Mapping[str, Mapping[str, str]],
    ) -> None:  # fmt: skip
        super().__init__(data, settings)
        self.history = history
        self.faults = Journal(history / "faults.jsonl")
        self.census = Census(str(history), history)
        self.nodes: list[NatsServer] = []
        self.proxies: dict[str, list[Proxy]] = {}
        self.namespaces: dict[str, Namespace] = {}
        self.links: dict[str, Link] = {}
        self.routes = Routes() if has_routes else None
        self.disk: SmallDisk | None = None
        self.disks: list[Disk] = []
        self.recorder: Recorder
        self._node_count = node_count
        self._wire = Wire()
        self._exits = AsyncExitStack()

    async def start_nats(self) -> None:
        """One node, or three that form a cluster; our own connection goes to them directly where they do so."""
        users = {str(role): self._password(role).read_text() for role in roles.ROLES}
        folders = [self.data.path / f"nats-{number}" for number in range(self._node_count)]
        self.nodes += nodes(folders, users=users)
        if self.routes is not None:
            await self.routes.lay(self.nodes)
        await started(self.nodes)
        if self.routes is not None:
            await self._build_proxies(OURS)
        places = self.proxies.get(OURS) or self.nodes
        self._wire = Wire(
            nats_url=",".join(place.url for place in places), nats_user="admin",
            nats_password=users["admin"], request_timeout_s=5.0, ping_interval_s=1.0,
        )  # fmt: skip
        self._bus = await Bus.connect(self._wire, role="admin", name="chaos")
        await self.patiently(self.declare)
        self.recorder = await self._exits.enter_async_context(Recorder(self.bus, self.history))
        await self._exits.enter_async_context(self.census)

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
            await self._exits.enter_async_context(Proxy((HOST, node.port), host=host))
            for node in self.nodes
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
        """No network fault, nobody frozen."""
        for proxies in self.proxies.values():
            for proxy in proxies:
                proxy.change(CALM)
        for link in self.links.values():
            link.heal()
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

    # -- who holds what --------------------------------------------------------------------------------

    def holder(self) -> str:
        """Who holds a GPU; empty where nobody does."""
        return next((str(h["owner"]) for h in self.recorder.holders.values()), "")

    def newest_token(self) -> int:
        """The newest token that was seen."""
        return max((int(h["token"]) for h in self.recorder.holders.values()), default=0)

    async def refresh(self) -> None:
        """Who holds what, by the leader: changes are not republished while NATS is dead."""
        with suppress(SignalboxError):
            for stored in await self.bus.list_latest(
                Bucket.LEASES.stream, [key(Bucket.LEASES, ">")]
            ):
                self.recorder.learn(stored)

    # -- conditions ------------------------------------------------------------------------------------

    async def patiently(self, act: Any, *, limit_s: float = 60.0) -> Any:
        """Repeat what NATS cannot do just now."""
        deadline = time.monotonic() + limit_s
        while True:
            try:
                return await act()
            except SignalboxError:
                if time.monotonic() > deadline:
                    raise
                await asyncio.sleep(0.1)

    async def until(self, condition: Any, *, limit_s: float = 60.0, what: str = "") -> float:
        """Seconds until ``condition()`` holds, looked at after each recorded change and every 50 ms."""
        began = now()
        while not condition():
            if now() - began > limit_s:
                raise AssertionError(f"not within {limit_s:g} s: {what}")
            with suppress(TimeoutError):
                async with asyncio.timeout(0.05):
                    await self.recorder.changed.wait()
        return now() - began

    async def new_holder(self, token_was: int, *, limit_s: float = 60.0) -> float:
        """Seconds until somebody holds a GPU under a newer token."""
        return await self.until(
            lambda: self.newest_token() > token_was,
            limit_s=limit_s,
            what=f"a holder after token {token_was}",
        )

    async def nats_serves(self, *, limit_s: float = 60.0) -> float:
        """Seconds until every stream that decisions rest on has a leader and answers."""

        async def answers() -> bool:
            try:
                for stream in ("JOBS", "STATE", "KV_leases", "KV_waiters", "KV_keys", "KV_workers"):
                    info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
                    if len(self.nodes) > 1 and not info["cluster"].get("leader"):
                        return False
            except SignalboxError:
                return False
            return True

        return await becomes(answers, limit_s=limit_s)

    async def leader_of(self, stream: str) -> NatsServer | None:
        """The node that leads a stream."""
        try:
            info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        except SignalboxError:
            return None
        return next((n for n in self.nodes if n.name == info["cluster"].get("leader")), None)

    async def is_replicated(self) -> bool:
        """Whether every replica of every stream is current, so that the next node may die."""
        try:
            listed = await self.bus.request_json("$JS.API.STREAM.LIST", {})
        except SignalboxError:
            return False
        return all(
            stream["cluster"].get("leader")
            and all(r.get("current") and not r.get("offline") for r in stream["cluster"].get("replicas", ()))
            for stream in listed["streams"]
        )  # fmt: skip
