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
            listed = (await storage.list_streams(bus)).late_replicas()
        except SignalboxError:
            return set()
        assert asked.keys() == {config["name"] for config in STREAMS}
        return {*asked.values(), *listed.values()}

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


async def test_a_stream_whose_only_node_is_away_keeps_no_other_one_from_being_told_of(
    three: tuple[list[NatsServer], NodeRoutes],
) -> None:
    """NATS waits 4 s for that node before it lists the others: longer than programs wait for other answers."""
    servers, _ = three
    bus = await Bus.connect(Wire(nats_url=servers[0].url, request_timeout_s=1.0), role="admin")
    made, answers = set[str](), list[storage.Streams]()

    async def is_one_on_the_last() -> bool:
        name = f"ALONE{len(made)}"
        try:
            info = await bus.request_json(f"$JS.API.STREAM.CREATE.{name}", {"name": name, "subjects": [name]})
        except SignalboxError:
            return False
        made.add(name)
        return bool(info["cluster"]["leader"] == servers[2].name)

    async def is_told() -> bool:
        try:
            answers.append(await storage.list_streams(bus))
        except SignalboxError:
            return False
        return bool(answers[-1].leaderless)

    try:
        await becomes(is_one_on_the_last, limit_s=LIMIT_S)
        await servers[2].kill()
        await becomes(is_told, limit_s=LIMIT_S)
        found = answers[-1]
        assert f"ALONE{len(made) - 1}" in found.leaderless
        assert found.leaderless | found.infos.keys() == made
        assert {found.late_replicas()[name] for name in found.leaderless} == {1}
    finally:
        await bus.close()
