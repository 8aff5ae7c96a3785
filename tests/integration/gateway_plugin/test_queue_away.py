"""The node of a queue that is kept once dies, and comes back, below a running outbound program."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from itertools import count

import pytest

from gateway_plugin.outbound.queues.runner import keep_queues
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.program.tasks import Background
from signalbox.wire import names, queuenames
from signalbox.wire.names import Bucket
from signalbox.wire.queuenames import SIDES
from signalbox.wire.queues import Queue, QueueState
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from verification.chaos.environment.routes import NodeRoutes

LIMIT_S = 60.0


class Queues:
    """The queues of a cluster, as its outbound program tells of them."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._states = Table(bus, Bucket.QUEUE_STATES, QueueState)
        self._changed = asyncio.Event()

    async def start(self) -> None:
        self._states.on_change(lambda *_: self._changed.set())
        await self._states.start()

    async def close(self) -> None:
        await self._states.close()

    def state(self, queue: str) -> QueueState:
        return self._states.get(names.token(queue)) or QueueState()

    async def until_running(self, queue: str) -> None:
        await put(self._bus, Bucket.QUEUES, names.token(queue), Queue(name=queue, account_id="a"))
        async with asyncio.timeout(LIMIT_S):
            while self.state(queue).state != "running":
                self._changed.clear()
                await self._changed.wait()

    async def nodes(self, queue: str) -> dict[str, str]:
        """Where each side lies."""
        infos = {
            side: await self._bus.request_json(f"$JS.API.STREAM.INFO.{queuenames.queue_stream(queue, side)}")
            for side in SIDES
        }
        return {side: info["cluster"]["leader"] for side, info in infos.items()}

    async def put_item(self, queue: str) -> None:
        await self._bus.write(queuenames.queue_item(queue, "source", "lo"), b"item")

    async def length_is(self, queue: str, length: int) -> bool:
        return self.state(queue).source.length == length

    async def is_away(self, queue: str, *, is_so: bool = True) -> bool:
        return self.state(queue).source.is_away is is_so


async def kept(bus: Bus) -> None:
    """What the program does under its lease."""
    while True:
        try:
            await keep_queues(bus, bus)
        except SignalboxError:
            await asyncio.sleep(0.1)


@asynccontextmanager
async def kept_by(server: NatsServer) -> AsyncIterator[Queues]:
    bus = await Bus.connect(Wire(nats_url=server.url, request_timeout_s=2.0), role="outbound")
    queues, running = Queues(bus), Background()

    async def is_made() -> bool:
        try:
            await topology.apply(bus, 3)
        except SignalboxError:
            return False
        return True

    try:
        await becomes(is_made, limit_s=LIMIT_S)
        await queues.start()
        running.start(kept(bus), name="queues")
        yield queues
    finally:
        await running.cancel()
        await queues.close()
        await bus.close()


async def on_and_off(queues: Queues, node: str) -> tuple[str, str]:
    """A queue whose source lies on a node, and one of which nothing does: NATS chooses."""
    on = off = ""
    for number in count():
        await queues.until_running(name := f"q{number}")
        found = await queues.nodes(name)
        if found["source"] == node:
            on = name
        elif node not in found.values():
            off = name
        if on and off:
            break
    return on, off


@pytest.mark.slow
async def test_its_sides_are_told_as_away_until_the_node_is_back_and_all_others_go_on(
    three: tuple[list[NatsServer], NodeRoutes],
) -> None:
    servers, _ = three
    lost = servers[2]
    async with kept_by(servers[0]) as queues:
        there, elsewhere = await on_and_off(queues, lost.name)
        for name in (there, elsewhere):
            await queues.put_item(name)
            await becomes(partial(queues.length_is, name, 1), limit_s=LIMIT_S)
        await lost.kill()
        await becomes(partial(queues.is_away, there), limit_s=LIMIT_S)
        state = queues.state(there)
        assert (state.state, state.source.length) == ("running", 1)
        await queues.put_item(elsewhere)
        await becomes(partial(queues.length_is, elsewhere, 2), limit_s=LIMIT_S)
        assert not queues.state(elsewhere).source.is_away
        await lost.start()
        await becomes(partial(queues.is_away, there, is_so=False), limit_s=LIMIT_S)
        await queues.put_item(there)
        await becomes(partial(queues.length_is, there, 2), limit_s=LIMIT_S)
