"""A node whose routes are cut is alone, also when it has been cut off and healed before."""

from contextlib import AsyncExitStack, suppress
from functools import partial

import pytest

from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from verification.chaos.environment.routes import NodeRoutes

STREAM = {"name": "S", "subjects": ["s.>"], "storage": "file", "num_replicas": 3}


@pytest.mark.parametrize("is_late", [True, False], ids=["arrives late", "is lost"])
async def test_a_node_that_is_cut_off_writes_nothing_and_the_others_go_on(
    three: tuple[list[NatsServer], NodeRoutes], is_late: bool
) -> None:
    servers, routes = three
    async with AsyncExitStack() as stack:
        buses = []
        for server in servers:
            bus = await Bus.connect(Wire(nats_url=server.url, request_timeout_s=1.0), role="admin")
            stack.push_async_callback(bus.close)
            buses.append(bus)

        async def is_declared() -> bool:
            with suppress(SignalboxError):
                await buses[0].request_json("$JS.API.STREAM.CREATE.S", STREAM)
                return True
            return False

        async def writes(number: int) -> bool:
            with suppress(SignalboxError):
                await buses[number].write("s.x", b"x")
                return True
            return False

        await becomes(is_declared)
        for number in (0, 0):  # again: nobody has learnt a way around us
            for each in range(3):
                await becomes(partial(writes, each))
            routes.cut(number)
            assert not await writes(number)
            for each in {0, 1, 2} - {number}:
                await becomes(partial(writes, each))
            assert not await writes(number)
            routes.heal(is_late=is_late)
            await becomes(partial(writes, number))
