"""The faults of the model: each does what its name says, and the same seed does it again."""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs import delivery
from signalbox.program.errors import Ambiguous, StaleRevision, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.events import is_removal
from signalbox.wire.names import Bucket, Stream
from verification.simulation.loop import EPOCH, running
from verification.simulation.nats.bus import ModelBus
from verification.simulation.nats.link import Link
from verification.simulation.nats.server import Server

LEASES = Bucket.LEASES.stream
LEASE = "$KV.leases.g"


class World:
    """A server whose clock can be set, and connections to it."""

    def __init__(self, seed: int = 1) -> None:
        self.loop = asyncio.get_running_loop()
        self.error_s = 0.0
        self.server = Server(clock=lambda: EPOCH + self.loop.time() + self.error_s, rng=random.Random(seed))
        self.server.declare()
        self.buses: list[Bus] = []

    async def join(self, **wire: float) -> ModelBus:
        bus = ModelBus(
            self.server,
            Link(self.server),
            settings=Wire(**{"request_timeout_s": 1.0, **wire}),  # type: ignore[arg-type]  # all of them floats
        )
        self.buses.append(await bus.open())
        return bus

    async def close(self) -> None:
        for bus in self.buses:
            await bus.close()


def play(script: Callable[[World], Awaitable[Any]], seed: int = 1) -> Any:
    async def run() -> Any:
        world = World(seed)
        try:
            return await script(world)
        finally:
            await world.close()

    with running(seed) as loop:
        return loop.run_until_complete(run())


# ------------------------------------------------------------------------------------- the whole


def test_the_declared_topology_is_what_apply_would_make() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        assert await topology.check(bus) == []

    play(script)


# ------------------------------------------------------------------------------------- the link


def test_a_link_held_one_way_lets_the_other_pass() -> None:
    async def script(world: World) -> None:
        bus, other = await world.join(), await world.join()
        received: list[bytes] = []
        await bus.subscribe("p.a", lambda message: received.append(message.data))
        bus.link.hold(down=False)
        await other.publish("p.a", b"1")
        await asyncio.sleep(0.1)
        assert received == [b"1"]
        with pytest.raises(Unavailable):
            await bus.flush()
        bus.link.release()
        bus.link.hold(up=False)
        with pytest.raises(Ambiguous):
            await bus.write("st.a", b"x", expect=0)
        assert await other.leader_get(Stream.STATE, "st.a") is not None

    play(script)


def test_a_cut_loses_what_was_on_its_way_or_delivers_it_long_after() -> None:
    async def script(world: World) -> None:
        for subject, late_s in (("st.lost", None), ("st.late", 30.0)):
            bus = await world.join()
            bus.link.hold(down=False)
            writing = asyncio.ensure_future(bus.write(subject, b"x", expect=0))
            await asyncio.sleep(0.1)
            bus.link.cut(late_s)
            with pytest.raises(Ambiguous):
                await writing
            bus.link.release()
        await asyncio.sleep(29)
        other = await world.join()
        assert await other.leader_get(Stream.STATE, "st.late") is None
        await asyncio.sleep(2)
        assert await other.leader_get(Stream.STATE, "st.late") is not None
        assert await other.leader_get(Stream.STATE, "st.lost") is None

    play(script)


def test_what_a_proxy_repeats_is_acted_on_twice() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        bus.link.duplicates = 1.0
        first = await bus.write("st.a", b"x", expect=0)
        await bus.write("pl.a.j.in", b"x")
        await asyncio.sleep(2)
        bus.link.duplicates = 0.0
        assert world.server.streams["PAYLOADS"].last_seq == 2
        assert world.server.streams["STATE"].last_seq == first

    play(script)


def test_a_killed_client_leaves_no_interest_behind() -> None:
    async def script(world: World) -> None:
        bus, other = await world.join(), await world.join()
        queue = (await delivery.find(bus, "m", "hi", 0)).name
        puller = await bus.pull(queue, lambda _: None)
        puller.ask(5)
        await asyncio.sleep(0.1)
        assert (await other.consumer_info(queue)).num_waiting == 1
        bus.link.die()
        await asyncio.sleep(0.1)
        assert (await other.consumer_info(queue)).num_waiting == 0

    play(script)


def test_the_server_gives_up_a_client_it_no_longer_receives() -> None:
    async def script(world: World) -> None:
        bus = await world.join(ping_interval_s=1000.0)
        assert len(world.server.sessions) == 1
        bus.link.hold()
        await asyncio.sleep(70)
        assert not world.server.sessions

    play(script)


# ------------------------------------------------------------------------------------- the server


def test_a_lost_request_changes_nothing_and_a_lost_answer_everything() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        world.server.lost_requests = 1.0
        with pytest.raises(Ambiguous):
            await bus.write("st.a", b"x", expect=0)
        world.server.lost_requests, world.server.lost_answers = 0.0, 1.0
        with pytest.raises(Ambiguous):
            await bus.write("st.b", b"x", expect=0)
        world.server.lost_answers = 0.0
        assert await bus.leader_get(Stream.STATE, "st.a") is None
        assert await bus.leader_get(Stream.STATE, "st.b") is not None

    play(script)


def test_a_late_request_is_overtaken() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        world.server.late_requests = (1.0, 30.0)
        with pytest.raises(Ambiguous):
            await bus.write("st.a", b"early")
        world.server.late_requests = (0.0, 0.0)
        await bus.write("st.a", b"new")
        await asyncio.sleep(31)
        found = await bus.leader_get(Stream.STATE, "st.a")
        assert found is not None
        assert found.data == b"early"

    play(script)


def test_direct_reads_of_a_lagging_replica_show_what_was() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        world.server.stale_s = 5.0
        stale = 0
        last = await bus.write("st.a", b"0")
        await asyncio.sleep(10)
        for number in range(50):
            last = await bus.write("st.a", b"%d" % number)
            found = await bus.direct_get(Stream.STATE, "st.a")
            assert found is not None
            stale += found.seq != last
            leader = await bus.leader_get(Stream.STATE, "st.a")
            assert leader is not None
            assert leader.seq == last
            listed = await bus.list_latest(Stream.STATE, ["st.*"])
            assert [stored.subject for stored in listed] == ["st.a"]
        assert stale > 10
        await asyncio.sleep(6)
        found = await bus.direct_get(Stream.STATE, "st.a")
        assert found is not None
        assert found.seq == last

    play(script)


def test_without_a_leader_writes_vanish_first_and_are_refused_then() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        await bus.write("st.a", b"x")
        world.server.lose_leader(6.0, silent_s=2.0)
        with pytest.raises(Ambiguous):
            await bus.write("st.b", b"x", expect=0)
        await asyncio.sleep(1.5)
        with pytest.raises(Unavailable) as refused:
            await bus.write("st.b", b"x", expect=0)
        assert not isinstance(refused.value, Ambiguous)
        with pytest.raises(Unavailable):
            await bus.leader_get(Stream.STATE, "st.a")
        assert await bus.direct_get(Stream.STATE, "st.a") is not None
        await asyncio.sleep(4)
        await bus.write("st.b", b"x", expect=0)

    play(script)


def test_both_ends_of_a_write_in_flight_happen() -> None:
    async def script(world: World) -> bool:
        bus = await world.join()
        world.server.commit_s = 60.0
        writing = asyncio.ensure_future(bus.write("st.a", b"x", expect=0))
        await asyncio.sleep(0.01)
        world.server.lose_leader(5.0)
        with pytest.raises(Ambiguous):
            await writing
        await asyncio.sleep(6)
        return await bus.leader_get(Stream.STATE, "st.a") is not None

    assert {play(script, seed) for seed in range(20)} == {True, False}


@pytest.mark.parametrize("is_away", [False, True])
def test_a_consumer_outlives_its_streams_leader_unless_it_was_there(is_away: bool) -> None:
    async def script(world: World) -> list[str]:
        bus = await world.join()
        taken: list[str] = []
        queue = (await delivery.find(bus, "m", "hi", 0)).name
        puller = await bus.pull(queue, lambda each: taken.append(each.subject))
        puller.ask(9, expires_s=100)
        await bus.write("jobs.m.hi.1", b"x")
        world.server.lose_leader(5.0, away_s=20.0 if is_away else 0.0)
        await asyncio.sleep(6)
        await bus.write("jobs.m.hi.2", b"x")
        try:
            await bus.consumer_info(queue)
        except Unavailable:  # nobody says that there is no leader: the question just gets no answer
            assert is_away
            other = (await delivery.find(bus, "m", "hi", 1)).name
            assert (await bus.consumer_info(other)).num_pending == 2
            await asyncio.sleep(20)
            reported = await bus.consumer_info(queue)
            assert (reported.num_pending, reported.num_waiting, taken) == (2, 0, ["jobs.m.hi.1"])
            return ["away"]
        assert (await bus.consumer_info(queue)).num_waiting == 1
        return taken

    outcomes = {tuple(play(script, seed)) for seed in range(12)}
    stayed = ("jobs.m.hi.1", "jobs.m.hi.2")
    assert outcomes == ({stayed, ("away",)} if is_away else {stayed})


def test_a_lost_delivery_is_counted_and_comes_from_a_consumer_made_anew() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        taken: list[int] = []
        queue = (await delivery.find(bus, "m", "hi", 0)).name
        puller = await bus.pull(queue, lambda each: taken.append(each.seq))
        puller.ask(9)
        world.server.lost_deliveries = 1.0
        lost = await bus.write("jobs.m.hi.1", b"x")
        world.server.lost_deliveries = 0.0
        seen = await bus.write("jobs.m.hi.2", b"x")
        await asyncio.sleep(0.1)
        assert taken == [seen]
        anew = await delivery.make_anew(bus, "m", "hi", 0)
        assert (anew.num_pending, anew.examined_to) == (2, seen)
        puller.ask(9)
        await asyncio.sleep(0.1)
        assert taken == [seen, lost, seen]

    play(script)


def test_a_clock_set_forward_ends_leases_early_and_one_set_back_ends_them_late() -> None:
    async def script(world: World) -> tuple[bool, bool]:
        bus = await world.join()
        await bus.write(LEASE, b"x", expect=0, ttl_s=20)
        world.error_s = 3600.0
        # As on the server, a timer set before the step is waited for: anything that expires sooner brings it forward.
        await bus.write("$KV.leases.other", b"x", expect=0, ttl_s=1)
        await asyncio.sleep(2)
        found = await bus.leader_get(LEASES, LEASE)
        ended_early = found is not None and is_removal(found.headers)
        revision = await bus.write("$KV.leases.h", b"x", expect=0, ttl_s=20)
        world.error_s = 0.0
        await asyncio.sleep(100)
        found = await bus.leader_get(LEASES, "$KV.leases.h")
        return ended_early, found is not None and found.seq == revision

    assert play(script) == (True, True)


def test_a_renewal_between_expiry_and_marker_is_accepted_and_rolled_up() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        world.server.marker_late_s = 1000.0
        revision = await bus.write(LEASE, b"1", expect=0, ttl_s=2)
        await asyncio.sleep(3)
        renewed = await bus.write(LEASE, b"2", expect=revision, ttl_s=5000)
        marked = asyncio.get_running_loop().create_future()
        world.server.streams[LEASES].on_stored.append(marked.set_result)
        marker = await marked
        assert marker.is_marker
        assert marker.seq == renewed + 1
        with pytest.raises(StaleRevision):
            await bus.write(LEASE, b"3", expect=renewed, ttl_s=5000)

    play(script)


def test_an_expiry_may_leave_no_marker() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        world.server.marker_loss = 1.0
        await bus.write(LEASE, b"1", expect=0, ttl_s=2)
        await asyncio.sleep(3)
        assert await bus.leader_get(LEASES, LEASE) is None

    play(script)


def test_an_expiry_may_be_late() -> None:
    async def script(world: World) -> float:
        bus = await world.join()
        world.server.ttl_late_s = 10.0
        await bus.write(LEASE, b"1", expect=0, ttl_s=2)
        stored_at = world.loop.time()
        while True:
            found = await bus.leader_get(LEASES, LEASE)
            assert found is not None
            if is_removal(found.headers):
                return world.loop.time() - stored_at
            await asyncio.sleep(0.1)

    waits = [play(script, seed) for seed in range(8)]
    assert min(waits) >= 2.0
    assert max(waits) > 3.0


def test_a_power_cut_takes_the_end_of_a_stream_with_it() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        seqs = [await bus.write(f"st.{number}", b"x") for number in range(5)]
        world.server.kill(lost={"STATE": 2})
        await asyncio.sleep(1)
        world.server.start()
        other = await world.join()
        assert await other.leader_get(Stream.STATE, "st.2") is not None
        assert await other.leader_get(Stream.STATE, "st.3") is None
        assert await other.write("st.9", b"x") == seqs[2] + 1

    play(script)


def test_a_rolled_back_stream_gives_sequences_again() -> None:
    async def script(world: World) -> None:
        bus = await world.join()
        taken: list[str] = []
        queue = (await delivery.find(bus, "m", "hi", 0)).name
        puller = await bus.pull(queue, lambda each: taken.append(each.subject))
        puller.ask(9)
        seqs = [await bus.write(f"jobs.m.hi.{number}", b"x") for number in range(3)]
        world.server.roll_back("JOBS", 2)
        assert await bus.write("jobs.m.hi.new", b"x") == seqs[1]
        await asyncio.sleep(0.1)
        assert taken == [f"jobs.m.hi.{name}" for name in (0, 1, 2, "new")]

    play(script)
