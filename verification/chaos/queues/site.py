"""NATS, three gateways that reach it through a proxy each, five queues of three groups, and one key."""

import asyncio
import os
import random
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Final

from gateway_plugin.queues.watching.groups import group_states
from signalbox.bus import queues, table, topology
from signalbox.bus.client import Bus
from signalbox.ops.ports import HOST, free_port
from signalbox.program import keys
from signalbox.program.settings import Wire
from signalbox.wire import names, queuenames
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.names import Bucket
from signalbox.wire.queues import Queue, QueueSide, rear_config
from tests.rigs.logged import LoggedServer
from tests.rigs.natsserver import NatsServer
from verification.chaos.environment.proxy import Proxy

ROOT: Final = Path(__file__).parents[3]
GROUPS: Final = ("eas", "copies", "others")
QUEUES: Final = tuple(f"queue-{number}" for number in range(5))
GATEWAYS: Final = 3
ACCOUNT: Final = "shop"
_PEPPER: Final = "pepper of the queues"
_SCOPES: Final = ("queues:put", "queues:get", "queues:watch", "queues:manage")
_ROOM: Final = QueueSide(max_length=100_000, max_payload_kb=0)
_REAR_BYTES: Final = 1 << 26


class Gateway:
    """One gateway process and the proxy between it and NATS. address: of its edge, the same after each start."""

    def __init__(self, number: int, folder: Path, proxy: Proxy) -> None:
        self.name = f"gateway-{number}"
        self.address = f"{HOST}:{free_port()}"
        self.proxy = proxy
        clean = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
        env = {
            **clean,
            "PYTHONPATH": str(ROOT),
            "SIGNALBOX_NATS_URL": proxy.url,
            "SIGNALBOX_KEY_PEPPER": _PEPPER,
            "SIGNALBOX_METRICS_PORT": "0",
            "SIGNALBOX_GATEWAY_LISTEN": f"unix://{folder}/{self.name}.sock",
            "SIGNALBOX_GATEWAY_EDGE_LISTEN": self.address,
        }
        argv = [sys.executable, "-m", "gateway_plugin"]
        self._process = LoggedServer(argv, "gateway.ready", ROOT, {**env, "PYTHONUNBUFFERED": "1"})

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    async def start(self) -> None:
        """Return when it serves."""
        await asyncio.to_thread(self._process.start)

    async def kill(self) -> None:
        """SIGKILL. Idempotent."""
        await asyncio.to_thread(self._process.stop)


class Site:
    """What a run strikes. key: text of one that may do everything with queues. bus: the rig's own, past the proxies."""

    def __init__(self, nats: NatsServer, bus: Bus, gateways: list[Gateway], key: str) -> None:
        self.nats = nats
        self.bus = bus
        self.gateways = gateways
        self.key = key

    def any_address(self, rng: random.Random) -> str:
        """Of one gateway, as a front that shares out calls would choose one."""
        return rng.choice(self.gateways).address

    async def left(self) -> dict[str, int]:
        """Items that groups have not got or not committed, by queue; only those with any."""
        found = {}
        for queue in QUEUES:
            states = await group_states(self.bus, queue, "source")
            found[queue] = sum(state.left + state.pending for state in states)
        return {queue: count for queue, count in found.items() if count}

    async def stored(self) -> int:
        """Messages in the streams of all queues."""
        streams = [queuenames.queue_stream(queue, "source") for queue in QUEUES]
        infos = [await self.bus.request_json(f"$JS.API.STREAM.INFO.{stream}") for stream in streams]
        return sum(info["state"]["messages"] for info in infos)


@asynccontextmanager
async def site(folder: Path) -> AsyncIterator[Site]:
    """All of it, ended with the block."""
    async with AsyncExitStack() as stack:
        nats = await stack.enter_async_context(NatsServer(folder / "nats"))
        bus = await stack.enter_async_context(await Bus.connect(Wire(nats_url=nats.url), role="admin"))
        await topology.apply(bus)
        text = await _furnished(bus)
        gateways = []
        for number in range(GATEWAYS):
            proxy = await stack.enter_async_context(Proxy((nats.host, nats.port)))
            gateway = Gateway(number, folder, proxy)
            stack.push_async_callback(gateway.kill)
            await gateway.start()
            gateways.append(gateway)
        yield Site(nats, bus, gateways, text)


async def _furnished(bus: Bus) -> str:
    """Queues with all groups, so that each has all items, and a key."""
    await bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, _REAR_BYTES))
    for name in QUEUES:
        queue = Queue(name=name, account_id=ACCOUNT, max_delivery=0, source=_ROOM)
        await queues.declare(bus, queue)
        for group in GROUPS:
            await queues.make_group(bus, queue, "source", group)
        await table.put(bus, Bucket.QUEUES, names.token(name), queue)
    text, kid = keys.mint("test")
    key = ApiKey(id=kid, account_id=ACCOUNT, hmac=keys.digest(_PEPPER, text), scopes=_SCOPES, updated_at=1.0)
    await table.put(bus, Bucket.KEYS, kid, key)
    return text
