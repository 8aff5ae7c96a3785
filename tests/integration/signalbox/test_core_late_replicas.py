"""A node of three that is away is told as a late replica, by what is asked of one stream and by the list of all."""

from signalbox.bus import storage, topology
from signalbox.bus.client import Bus
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire.assets import STREAMS
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from verification.chaos.environment.routes import NodeRoutes

LIMIT_S = 60.0


async def test_a_node_that_is_away_is_a_late_replica_of_every_stream(
    three: tuple[list[NatsServer], NodeRoutes],
) -> None:
    servers, _ = three
    bus = await Bus.connect(Wire(nats_url=servers[0].url, request_timeout_s=1.0), role="admin")

    async def are_made() -> bool:
        try:
            await topology.apply(bus, 3)
        except SignalboxError:
            return False
        return True

    async def late() -> set[int]:
        """Of all streams, as both ways tell it; empty while NATS does not answer."""
        try:
            asked = {one.stream: one.late_replicas for one in await storage.read(bus)} | await storage.read_late(bus)
            listed = await bus.listed("$JS.API.STREAM.LIST", "streams")
        except SignalboxError:
            return set()
        assert asked.keys() == {config["name"] for config in STREAMS}
        return {*asked.values(), *(storage.late_replicas(info) for info in listed)}

    async def is_none() -> bool:
        return await late() == {0}

    async def is_one() -> bool:
        return await late() == {1}

    try:
        await becomes(are_made, limit_s=LIMIT_S)
        await becomes(is_none, limit_s=LIMIT_S)
        await servers[2].kill()
        await becomes(is_one, limit_s=LIMIT_S)
    finally:
        await bus.close()
