"""A leader that is cut off from the other nodes goes on answering; no program takes its word for the majority's."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from functools import partial

import pytest

from signalbox.bus import table, topology
from signalbox.bus.client import Bus
from signalbox.bus.majority import Majority
from signalbox.bus.table import Table
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.names import Bucket, Stream, state
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from verification.chaos.environment.routes import NodeRoutes

LIMIT_S = 60.0


async def leads(bus: Bus, server: NatsServer, stream: str) -> bool:
    """Whether ``server`` leads the stream; it is asked to."""
    with suppress(SignalboxError):
        info = await bus.request_json(f"$JS.API.STREAM.INFO.{stream}")
        if info["cluster"].get("leader") == server.name:
            return True
        ask = {"placement": {"preferred": server.name}}
        await bus.request_json(f"$JS.API.STREAM.LEADER.STEPDOWN.{stream}", ask)
    return False


def done(act: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[bool]]:
    """Whether ``act`` succeeds."""

    async def is_done() -> bool:
        with suppress(SignalboxError):
            await act()
            return True
        return False

    return is_done


async def test_a_leader_that_is_cut_off_proves_neither_absence_nor_a_table(
    three: tuple[list[NatsServer], NodeRoutes],
) -> None:
    servers, routes = three
    loop = asyncio.get_running_loop()
    async with AsyncExitStack() as stack:
        buses = []
        for server in servers[:2]:
            bus = await Bus.connect(Wire(nats_url=server.url, request_timeout_s=1.0), role="admin")
            stack.push_async_callback(bus.close)
            buses.append(bus)
        alone, other = buses
        await becomes(done(lambda: topology.apply(other, 3)), limit_s=LIMIT_S)
        for stream in (Stream.STATE, Bucket.KEYS.stream):
            await becomes(partial(leads, alone, servers[0], stream), limit_s=LIMIT_S)
        majority, keys = Majority(alone), Table(alone, Bucket.KEYS, ApiKey, asks_leader=True)
        stack.push_async_callback(majority.close)
        await keys.start()
        stack.push_async_callback(keys.close)
        await majority.require(Stream.STATE)

        routes.cut(0)
        cut_at = loop.time()
        await becomes(done(lambda: other.write(state("j"), b"x", expect=0)), limit_s=LIMIT_S)
        with pytest.raises(Unavailable):
            await majority.require(Stream.STATE)
        revoked = ApiKey(id="k", account_id="k", hmac="", revoked_at=1.0)
        await becomes(done(lambda: table.put(other, Bucket.KEYS, "k", revoked)), limit_s=LIMIT_S)
        assert keys.get("k") is None
        assert keys.synced_age_s > loop.time() - cut_at - 0.5

        routes.heal(is_late=True)
        await becomes(done(lambda: majority.require(Stream.STATE)), limit_s=LIMIT_S)

        async def is_known() -> bool:
            return keys.get("k") is not None and keys.synced_age_s < 4.0

        await becomes(is_known, limit_s=LIMIT_S)
