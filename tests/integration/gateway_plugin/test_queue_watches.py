"""Watches of queues over a real nats-server: windows, commits, what comes back; two plugins, one of which dies."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from gateway_plugin.queues import rear
from gateway_plugin.queues.items import Consumer, Item, item_of
from gateway_plugin.queues.watching import feeder, groups, watches
from gateway_plugin.queues.watching.openwatch import AHEAD, OpenWatch, Watch, WatchMoved
from gateway_plugin.queues.watching.presence import Presence
from gateway_plugin.queues.watching.watches import Watches
from signalbox.bus import queues, topology
from signalbox.bus.client import Bus
from signalbox.jobs.commits import persist
from signalbox.program.errors import Conflict, InvalidRequest, LimitExceeded, NotFound, QueueFull, SignalboxError
from signalbox.program.settings import Wire
from signalbox.wire import names, queuenames
from signalbox.wire import queues as documents
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import MOST_GROUPS, Queue, QueueMark, rear_config
from signalbox.wire.roles import USERS
from tests.rigs import outage
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import PATIENT_S
from verification.chaos.environment.proxy import CALM, Proxy, Weather
from verification.chaos.environment.routes import NodeRoutes


class Tables:
    """What a plugin knows of queues."""

    def __init__(self, queue: Queue) -> None:
        self.queues = {queue.name: queue}
        self.marks: dict[tuple[str, Side], QueueMark] = {}
        self._callbacks: list[Callable[[str], None]] = []

    def find(self, name: str) -> Queue | None:
        return self.queues.get(name)

    def mark(self, name: str, side: Side) -> QueueMark | None:
        return self.marks.get((name, side))

    def on_change(self, callback: Callable[[str], None]) -> None:
        self._callbacks.append(callback)

    def tell(self, name: str) -> None:
        for callback in self._callbacks:
            callback(name)


class Plugin:
    """A connection and its watches; a consumer's name is its uid."""

    def __init__(self, bus: Bus, tables: Tables, queue: Queue) -> None:
        self.bus = bus
        self.queue = queue
        self.watches = Watches(bus, tables, Presence(bus))

    async def watch(self, uid: str, group: str = "eas", **asked: Any) -> OpenWatch:
        return await self.watches.watch(self.queue, "source", Consumer(group, uid), Watch(**asked))

    async def commit(self, *indexes: int, group: str = "eas") -> None:
        await self.watches.commit(self.queue, "source", group, indexes)

    async def negative(self, uid: str, *indexes: int, code: str = "", group: str = "eas") -> None:
        await self.watches.negative(self.queue, "source", Consumer(group, uid), indexes, code, "no reason")

    async def die(self) -> None:
        """As a killed process: the server sees its connection go, and nothing is said."""
        await self.bus.connection.close()


class Rig:
    """A queue and its plugins."""

    def __init__(self, wire: Wire, stack: AsyncExitStack, bus: Bus) -> None:
        self._wire = wire
        self._stack = stack
        self.bus = bus
        self.queue = Queue(name="my.queue", account_id="mine")
        self.tables = Tables(self.queue)

    async def change(self, nodes: int = 1, **fields: Any) -> None:
        self.queue = Queue(name="my.queue", account_id="mine", **fields)
        self.tables.queues["my.queue"] = self.queue
        await queues.declare(self.bus, self.queue, nodes)

    async def plugin(self, request_timeout_s: float = PATIENT_S, url: str = "") -> Plugin:
        wire = replace(self._wire, request_timeout_s=request_timeout_s, nats_url=url or self._wire.nats_url)
        bus = await Bus.connect(wire, role="gateway")
        self._stack.push_async_callback(bus.close)
        made = Plugin(bus, self.tables, self.queue)
        await made.watches.start()
        self._stack.push_async_callback(made.watches.close)
        return made

    async def put(self, *texts: str, is_high: bool = False, tags: str = "") -> list[int]:
        subject = queuenames.queue_item("my.queue", "source", "hi" if is_high else "lo")
        headers = {str(names.Header.TAGS): tags} if tags else {}
        return [await self.bus.write(subject, text.encode(), headers=headers) for text in texts]

    async def rear_count(self) -> int:
        return await rear.rear_count(self.bus, "my.queue", "source")

    async def length(self) -> int:
        info = await topology.stream_info(self.bus, queuenames.queue_stream("my.queue", "source"))
        assert info is not None
        return int(info["state"]["messages"])

    async def forgets(self, plugin: Plugin, group: str) -> bool:
        """Whether a plugin has the group forgotten: False where somebody watches for it, as far as it knows."""
        try:
            await plugin.watches.forget(self.queue, "source", group)
        except Conflict:
            return False
        return True

    async def pending(self, group: str = "eas") -> int:
        found = await groups.group_states(self.bus, "my.queue", "source")
        return next(state.pending for state in found if state.name == group)


@pytest.fixture
async def at(nats: NatsServer, bus: Bus) -> AsyncIterator[Rig]:
    async with AsyncExitStack() as stack:
        made = Rig(Wire(nats_url=nats.url), stack, bus)
        await made.change()
        yield made
    await queues.remove(bus, "my.queue")


@pytest.fixture
def hasty(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is done every few seconds, or waited for, takes a second at most."""
    monkeypatch.setattr(documents, "ACK_WAIT_S", 1)
    monkeypatch.setattr(feeder, "ACK_WAIT_S", 1)
    monkeypatch.setattr(watches, "_EXTEND_S", 0.25)
    monkeypatch.setattr(watches, "TELL_S", 0.25)


async def given(watch: OpenWatch) -> Item:
    """The next item, which must come."""
    async with asyncio.timeout(20):
        item = await watch.next()
    assert item is not None
    return item


async def test_a_watch_gets_what_its_window_takes_and_one_more_for_each_commit(at: Rig) -> None:
    first, second, third, _ = await at.put("a", "b", "c", "d")
    plugin = await at.plugin()
    watch = await plugin.watch("me", window=2)
    assert [(await given(watch)).data for _ in range(2)] == [b"a", b"b"]
    assert await at.pending() == 2, "the server gave no more than fits"
    assert (watch.state.pending, watch.state.slots, watch.state.index) == (2, 0, second)
    await plugin.commit(first)
    assert (await given(watch)).index == third
    assert await at.pending() == 2
    await watch.close()


async def test_connections_that_read_nothing_hold_little_of_a_queue_in_memory_however_many_they_are(
    at: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feeder, "ALL_UNSENT_BYTES", 4 * 8192)  # four items
    plugin = await at.plugin()
    opened = [await plugin.watch(f"u{number}", window=20) for number in range(4)]
    await at.put(*map(str, range(20)))
    waiting = 4 + 2 + 1 + 1
    await becomes(lambda: sum(watch.state.pending for watch in opened) == waiting)
    item = await given(opened[3])
    await becomes(lambda: opened[3].state.pending == 2)  # what is sent makes room for the next
    await plugin.commit(item.index)
    assert await at.pending() == waiting
    for watch in opened:
        await watch.close()


async def test_nobody_gives_back_what_another_consumer_holds(at: Rig) -> None:
    (index,) = await at.put("a")
    plugin, other = await at.plugin(), await at.plugin()
    holder, idle = await plugin.watch("me"), await plugin.watch("you")
    await becomes(lambda: holder.state.pending + idle.state.pending == 1)
    has, has_not = ("me", "you") if holder.state.pending else ("you", "me")
    for asked in (plugin, other):
        with pytest.raises(Conflict):
            await asked.negative(has_not, index)
    await plugin.negative(has, index)
    async with asyncio.TaskGroup() as group:  # it is given out again, to either
        nexts = [group.create_task(watch.next()) for watch in (holder, idle)]
        done, waiting = await asyncio.wait(nexts, timeout=20, return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
    assert [item.deliveries for task in done if (item := task.result()) is not None] == [2]


async def test_a_commit_of_a_group_that_is_not_there_says_no_more_than_that(at: Rig) -> None:
    (index,) = await at.put("a")
    plugin = await at.plugin()
    with pytest.raises(Conflict, match="not given to this group"):
        await plugin.commit(index, group="nobody")


async def test_what_a_closed_watch_has_not_committed_goes_to_the_next_at_once(at: Rig) -> None:
    await at.put("a", "b", "c")
    plugin, other = await at.plugin(), await at.plugin()
    watch = await plugin.watch("me", window=3)
    items = [await given(watch) for _ in range(3)]
    await plugin.commit(items[1].index)
    next_one = await other.watch("you", window=3)
    await watch.close()
    again = [await given(next_one) for _ in range(2)]
    assert sorted((item.data, item.deliveries) for item in again) == [(b"a", 2), (b"c", 2)]
    with pytest.raises(Conflict, match="closed"):
        await watch.next()


async def test_high_items_come_before_those_that_wait_and_at_once_to_a_watch_that_waits(at: Rig) -> None:
    await at.put("low 1", "low 2")
    await at.put("high 1", "high 2", is_high=True)
    plugin = await at.plugin()
    watch = await plugin.watch("me")

    async def handle() -> bytes:
        item = await given(watch)
        await plugin.commit(item.index)
        return item.data

    assert [await handle() for _ in range(4)] == [b"high 1", b"high 2", b"low 1", b"low 2"]
    waiting = asyncio.create_task(handle())
    await becomes(lambda: watch.feeder._pulling.is_parked)
    await at.put("high 3", is_high=True)
    assert await waiting == b"high 3"
    await at.put("low 3")
    assert await handle() == b"low 3"
    assert await at.pending() == 0


async def test_a_high_item_whose_event_was_lost_comes_all_the_same(at: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watches, "TELL_S", 0.25)
    plugin = await at.plugin()
    watch = await plugin.watch("me")
    await becomes(lambda: watch.feeder._pulling.is_parked)
    await watch.feeder._subscriptions[0].close()
    await at.put("high", is_high=True)
    assert (await given(watch)).data == b"high"


async def test_items_are_shared_out_within_a_group_and_each_group_gets_all(at: Rig) -> None:
    plugin, other = await at.plugin(), await at.plugin()
    ones = [await plugin.watch("a", window=2), await plugin.watch("b", window=2), await other.watch("c", window=2)]
    apart = await other.watch("a", group="apart", window=6)
    indexes = await at.put(*"123456")
    shared = [(await given(watch)).index for watch in ones for _ in range(2)]
    assert sorted(shared) == indexes
    assert [(await given(apart)).index for _ in range(6)] == indexes
    await plugin.commit(*indexes)
    assert (await at.bus.request_json(f"$JS.API.STREAM.INFO.{apart.place.stream}"))["state"]["messages"] == 6
    await other.commit(*indexes, group="apart")
    assert (await at.bus.request_json(f"$JS.API.STREAM.INFO.{apart.place.stream}"))["state"]["messages"] == 0


@pytest.mark.parametrize(("asked", "seen"), [(0, b"a"), (2, b"b"), (-1, b"d")])
async def test_a_new_group_begins_where_it_asks_for_and_a_known_one_where_it_stood(
    at: Rig, asked: int, seen: bytes
) -> None:
    first, *_ = await at.put("a", "b", "c")
    plugin = await at.plugin()
    watch = await plugin.watch("me", group="new", index=first + asked - 1 if asked > 0 else asked, window=1)
    await at.put("d")
    item = await given(watch)
    assert item.data == seen
    await plugin.commit(item.index, group="new")
    if seen == b"a":
        assert (await given(watch)).data == b"b"
        await watch.close()
        again = await plugin.watch("me", group="new", index=-1, window=1)
        assert (await given(again)).data == b"b", "where it stood"


async def test_a_watch_for_indexes_gets_no_data_and_its_items_are_there_for_others(at: Rig) -> None:
    plugin = await at.plugin()
    watch = await plugin.watch("me", is_index_only=True)
    (index,) = await at.put("data", tags='{"colour":"red"}')
    item = await given(watch)
    assert (item.index, item.data, item.tags) == (index, b"", {"colour": "red"})
    assert (await given(await plugin.watch("me", group="other"))).data == b"data"


async def test_a_watch_that_commits_itself_has_committed_what_it_sent_and_no_more(at: Rig) -> None:
    indexes = await at.put(*(str(number) for number in range(200)))
    plugin = await at.plugin()
    watch = await plugin.watch("me", is_auto_commit=True)
    assert [(await given(watch)).index for _ in range(150)] == indexes[:150]
    await watch.close()
    other = await plugin.watch("you", window=60)
    left = sorted([(await given(other)).index for _ in range(51)])
    assert left == indexes[149:], "the last one that it took was perhaps not sent"


async def test_what_a_watch_has_sent_is_committed_though_it_is_closed_in_the_same_moment(at: Rig) -> None:
    indexes = await at.put(*(str(number) for number in range(AHEAD + 1)))
    plugin = await at.plugin()
    watch = await plugin.watch("me", is_auto_commit=True)
    await becomes(lambda: len(watch.held) == AHEAD)  # nothing is asked for, so that closing waits for nothing
    assert [(await given(watch)).index for _ in range(2)] == indexes[:2]
    await watch.close()
    other = await plugin.watch("you", window=AHEAD)
    assert sorted([(await given(other)).index for _ in range(AHEAD)]) == indexes[1:]


async def test_what_a_group_does_not_ask_for_is_committed_for_it_alone(at: Rig) -> None:
    indexes = await at.put(*"1234", tags='{"colour":"red"}')
    (blue,) = await at.put("5", tags='{"colour":"blue"}')
    plugin = await at.plugin()
    everything = await plugin.watch("me", group="other", window=5)
    item = await given(await plugin.watch("me", tags={"colour": "blue"}))
    assert item.index == blue
    assert await at.pending() == 1
    assert [(await given(everything)).index for _ in range(5)] == [*indexes, blue]


async def test_a_commit_that_comes_before_its_item_is_given_out_is_one_all_the_same(at: Rig) -> None:
    (index,) = await at.put("a")
    plugin, other = await at.plugin(), await at.plugin(1.0)
    asked = asyncio.Event()
    await at.bus.subscribe(queuenames.queue_ack("my.queue", "source"), lambda _: asked.set())
    commit = asyncio.create_task(other.commit(index))
    await asked.wait()  # the server answers to no item that it has not given out yet
    assert (await given(await plugin.watch("me"))).index == index
    await commit
    assert await at.pending() == 0


async def test_a_commit_at_another_plugin_frees_a_slot(at: Rig) -> None:
    await at.put("a", is_high=True)
    await at.put("b")
    plugin, other = await at.plugin(), await at.plugin()
    watch = await plugin.watch("me")
    for data in (b"a", b"b"):
        item = await given(watch)
        assert item.data == data
        await other.commit(item.index)
        await other.commit(item.index)  # again is fine
    assert await at.pending() == 0
    await becomes(lambda: watch.state.slots == 1)


async def test_a_commit_of_what_a_group_was_not_given_is_a_conflict(at: Rig) -> None:
    low, later = await at.put("a", "b")
    plugin = await at.plugin(request_timeout_s=2.0)  # no acknowledgement of what was not given out is answered
    watch = await plugin.watch("me", window=2)
    assert (await given(watch)).index == low
    assert (await given(watch)).index == later
    (high,) = await at.put("c", is_high=True)
    for index in (high, high + 1, 0):
        with pytest.raises(Conflict, match="not given to this group") as raised:
            await plugin.commit(index)
        assert raised.value.facts["indexes"] == [index]
    with pytest.raises(Conflict):
        await plugin.commit(later, high + 1)
    assert (await given(watch)).index == high


async def test_of_two_watches_of_one_consumer_the_later_goes_on_with_what_the_other_had(at: Rig) -> None:
    await at.put("a", "b")
    plugin, other = await at.plugin(), await at.plugin()
    watch = await plugin.watch("me", window=2)
    assert {(await given(watch)).data for _ in range(2)} == {b"a", b"b"}
    for here in (other, plugin, plugin):
        later = await here.watch("me", window=2)
        with pytest.raises(WatchMoved):
            await given(watch)
        assert watch.ended.is_set()
        assert {(await given(later)).data for _ in range(2)} == {b"a", b"b"}
        await watch.close()
        watch = later
    await becomes(lambda: [state.pending for state in other.watches._presence.of("my.queue", "source")] == [2])


async def test_a_clock_that_is_behind_does_not_keep_a_consumer_from_moving(at: Rig) -> None:
    plugin, other = await at.plugin(), await at.plugin()
    other.watches._presence._clock = lambda: 1.0
    watch = await plugin.watch("me")
    await becomes(lambda: bool(other.watches._presence.of("my.queue", "source")))
    later = await other.watch("me")
    with pytest.raises(WatchMoved):
        await given(watch)
    await at.put("a")
    assert (await given(later)).data == b"a"


async def test_an_item_is_given_back_at_any_plugin(at: Rig) -> None:
    first, second = await at.put("a", "b")
    plugin, other = await at.plugin(), await at.plugin()
    watch = await plugin.watch("me", window=2)
    assert [(await given(watch)).index for _ in range(2)] == [first, second]
    await becomes(lambda: bool(other.watches._presence.of("my.queue", "source")))
    await other.negative("me", first, code="TooHard")
    again = await given(watch)
    assert (again.index, again.deliveries) == (first, 2)
    await plugin.negative("me", first, second, code="Shutdown")
    assert (watch.state.status, watch.state.pending) == ("Leaving", 0)
    next_one = await other.watch("you", window=2)
    assert sorted([(await given(next_one)).deliveries for _ in range(2)]) == [2, 3]
    with pytest.raises(Conflict, match="does not hold"):
        await plugin.negative("me", first)
    with pytest.raises(Conflict, match="No watch"):
        await plugin.negative("nobody", first)
    with pytest.raises(InvalidRequest, match="CamelCase"):
        await plugin.negative("me", first, code="not one")


async def test_what_is_out_for_longer_than_max_idle_goes_to_another(at: Rig) -> None:
    await at.change(max_idle_s=0.2, max_delivery=0)
    (index,) = await at.put("a")
    plugin = await at.plugin()
    slow = await plugin.watch("slow")
    assert (await given(slow)).index == index
    other = await plugin.watch("other")
    again = await given(other)
    assert (again.index, again.deliveries) == (index, 2)
    await plugin.commit(index)
    assert await at.pending() == 0


async def test_an_item_that_was_given_out_too_often_is_dead_and_can_be_redriven(at: Rig) -> None:
    await at.change(max_delivery=2)
    await at.bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 1 << 20))
    (index,) = await at.put("a", is_high=True, tags='{"colour":"red"}')
    plugin = await at.plugin()
    watch = await plugin.watch("me")
    for number in (1, 2):
        assert (await given(watch)).deliveries == number
        await plugin.negative("me", index)
    (later,) = await at.put("b")
    assert (await given(watch)).index == later, "the dead one is not given out again"
    await plugin.commit(later)
    await becomes_so(at.rear_count, 1)
    assert await at.pending() == 0
    stored = await at.bus.leader_next(queuenames.REAR, 1)
    assert stored is not None
    dead = item_of(stored)
    assert (dead.data, dead.tags) == (
        b"a",
        {
            "colour": "red",
            "_index_": str(index),
            "_reason_": "given out 2 times without a commit",
            "_deliveries_": "3",
            "_group_": "eas",
            "_priority_": "1",
        },
    )
    assert await rear.redrive(at.bus, "my.queue", "source", 0) == 1
    item = await given(watch)
    assert (item.data, item.tags, item.is_high, item.deliveries) == (b"a", {"colour": "red"}, True, 1)
    assert await at.rear_count() == 0


async def test_a_dead_item_stays_in_its_queue_until_the_rear_queue_has_it(at: Rig) -> None:
    await at.change(max_delivery=1)
    (index,) = await at.put("a")
    plugin = await at.plugin()
    watch = await plugin.watch("me")
    assert (await given(watch)).index == index
    await plugin.negative("me", index)  # there is no rear queue
    (later,) = await at.put("b")
    assert (await given(watch)).index == later
    assert await at.pending() == 2


async def test_a_dead_item_is_dropped_where_its_queue_says_so(at: Rig) -> None:
    await at.change(max_delivery=1, dead_message_policy="Drop")
    (index,) = await at.put("a")
    plugin = await at.plugin()
    watch = await plugin.watch("me")
    assert (await given(watch)).index == index
    await plugin.negative("me", index)
    await becomes_so(at.pending, 0)
    assert watch.state.slots == 1


async def test_rear_items_and_items_are_purged_by_number_or_all(at: Rig) -> None:
    await at.bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 1 << 20))
    for number in range(5):
        dead = Item(index=number + 1, tags={}, data=b"%d" % number, request_id=f"r{number % 2}")
        await rear.bury(at.bus, "my.queue", "source", dead, why="tried")
        await rear.bury(at.bus, "my.queue", "source", dead, why="tried")  # after a crash in between
    await at.put(*"12345")
    assert await at.rear_count() == 5
    assert await rear.purge(at.bus, "my.queue", "source", is_rear=True, most=2) == 2
    assert await at.rear_count() == 3
    assert await rear.purge(at.bus, "my.queue", "source", is_rear=False, most=2) == 2
    watch = await (await at.plugin()).watch("me")
    assert (await given(watch)).data == b"3"
    assert await rear.purge(at.bus, "my.queue", "source", is_rear=True) == 3
    assert await rear.purge(at.bus, "my.queue", "source", is_rear=False) == 3


async def test_a_full_queue_ends_a_redrive_and_loses_nothing(at: Rig) -> None:
    await at.change(source=documents.QueueSide(max_length=2, max_payload_kb=0))
    await at.bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 1 << 20))
    for number in range(3):
        await rear.bury(at.bus, "my.queue", "source", Item(index=number + 1, tags={}, data=b"x"), why="tried")
    with pytest.raises(QueueFull) as raised:
        await rear.redrive(at.bus, "my.queue", "source", 0)
    assert raised.value.facts["done"] == 2
    assert await at.rear_count() == 1


async def test_a_stream_that_ended_is_complete_when_the_group_has_committed_all(at: Rig) -> None:
    first, second = await at.put("a", "b")
    plugin, other = await at.plugin(), await at.plugin()
    ones = [await plugin.watch("a"), await other.watch("b")]
    assert sorted([(await given(watch)).index for watch in ones]) == [first, second]
    at.tables.marks["my.queue", "source"] = QueueMark(ended_at=1.0, index=second)
    at.tables.tell("my.queue")
    waiting = [asyncio.create_task(watch.next()) for watch in ones]
    await plugin.commit(first)
    await at.bus.flush()
    assert not any(task.done() for task in waiting), "the other may give its item back"
    await other.commit(second)
    async with asyncio.timeout(20):
        assert await asyncio.gather(*waiting) == [None, None]
    assert {watch.state.status for watch in ones} == {"Complete"}


async def test_what_a_dead_plugin_had_comes_again_and_what_a_live_one_has_does_not(
    at: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ACK_WAIT_S", 1)
    monkeypatch.setattr(watches, "_EXTEND_S", 0.25)
    first, second = await at.put("a", "b")
    plugin, other = await at.plugin(), await at.plugin()
    dead = await plugin.watch("dead", group="new")
    live = await other.watch("live", group="new", window=3)
    assert sorted([(await given(dead)).index, (await given(live)).index]) == [first, second]
    lost = first if dead.state.index == first else second
    await plugin.die()
    again = await given(live)
    assert (again.index, again.deliveries) == (lost, 2)
    (third,) = await at.put("c")  # of which the live one has had its own for longer than a dead one would
    item = await given(live)
    assert (item.index, item.deliveries) == (third, 1)


@pytest.mark.usefixtures("hasty")
async def test_commits_that_a_plugin_did_not_hear_of_do_not_keep_its_watch_from_what_comes_again(
    at: Rig, nats: NatsServer
) -> None:
    dying, other = await at.plugin(), await at.plugin()
    dead = await dying.watch("dead", group="new")
    (first,) = await at.put("a")
    assert (await given(dead)).index == first
    async with Proxy((nats.host, nats.port)) as proxy:
        plugin = await at.plugin(url=proxy.url)
        watch = await plugin.watch("live", group="new", window=2)
        rest = await at.put("b", "c")
        assert [(await given(watch)).index for _ in rest] == rest
        proxy.change(Weather(is_refusing=True))
        proxy.reset()
        await becomes(lambda: not plugin.bus.is_connected)
        await dying.die()
        await other.commit(*rest, group="new")
        proxy.change(CALM)
        assert (await given(watch)).index == first
        await plugin.commit(first, group="new")
        await becomes(lambda: watch.state.pending == 0)
        assert watch.state.slots == 2


@pytest.mark.usefixtures("hasty")
async def test_commits_that_passed_by_a_node_that_was_cut_off_keep_its_watch_from_nothing(
    three: tuple[list[NatsServer], NodeRoutes],
) -> None:
    servers, routes = three
    async with AsyncExitStack() as stack:
        wire = Wire(nats_url=servers[1].url, request_timeout_s=PATIENT_S)
        bus = await stack.enter_async_context(await Bus.connect(wire, role="admin"))
        at = Rig(wire, stack, bus)
        await persist(lambda: at.change(nodes=3, instances=3))
        dying, other = await at.plugin(request_timeout_s=2), await at.plugin(request_timeout_s=2)
        dead = await dying.watch("dead", group="new")
        (first,) = await at.put("a")
        assert (await given(dead)).index == first
        plugin = await at.plugin(request_timeout_s=0.5, url=servers[0].url)
        lost = asyncio.Event()
        plugin.bus.on_disconnect(lost.set)
        watch = await persist(lambda: plugin.watch("live", group="new"))
        (second,) = await at.put("b")
        assert (await given(watch)).index == second
        routes.cut(0)
        await dying.die()
        await persist(lambda: other.commit(second, group="new"))
        await asyncio.sleep(1.0)  # in which the plugin asks how its group stands, and is not answered
        routes.heal(is_late=False)
        async with asyncio.timeout(60):
            item = await watch.next()
        assert item is not None
        assert item.index == first
        assert not lost.is_set(), "a reconnect would have told"


@pytest.mark.usefixtures("hasty")
async def test_a_commit_that_a_plugin_did_not_hear_of_hides_no_high_item_that_comes_again(
    at: Rig, nats: NatsServer
) -> None:
    dying, other = await at.plugin(), await at.plugin()
    dead = await dying.watch("dead", group="new")
    (first,) = await at.put("a", is_high=True)
    assert (await given(dead)).index == first
    async with Proxy((nats.host, nats.port)) as proxy:
        plugin = await at.plugin(url=proxy.url)
        watch = await plugin.watch("live", group="new", window=2)
        (second,) = await at.put("b", is_high=True)
        assert (await given(watch)).index == second
        proxy.change(Weather(is_refusing=True))
        proxy.reset()
        await becomes(lambda: not plugin.bus.is_connected)
        await other.commit(second, group="new")
        proxy.change(CALM)
        await becomes(lambda: plugin.bus.is_connected)
        await becomes(lambda: watch.feeder._pulling.is_parked)
        await dying.die()  # of whose item no event tells, once it waits to be given again
        assert (await given(watch)).index == first


async def test_what_a_watch_commits_by_itself_is_committed_when_nats_is_back(at: Rig, nats: NatsServer) -> None:
    async with Proxy((nats.host, nats.port)) as proxy:
        plugin = await at.plugin(url=proxy.url)
        watch = await plugin.watch("me", is_auto_commit=True)
        (first,) = await at.put("a")
        assert (await given(watch)).index == first
        proxy.change(Weather(is_refusing=True))
        proxy.reset()
        await becomes(lambda: not plugin.bus.is_connected)
        following = asyncio.create_task(given(watch))  # which says that the first one is sent
        await asyncio.sleep(0)
        proxy.change(CALM)
        (second,) = await at.put("b")
        assert (await following).index == second
        await becomes(lambda: watch.state.pending == 1)
        assert await at.pending() == 1


async def test_what_a_plugin_had_that_was_stopped_for_long_is_not_kept_by_it(
    at: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(documents, "ACK_WAIT_S", 1)
    await at.put("a")
    plugin, other = await at.plugin(), await at.plugin()
    watch = await plugin.watch("me", group="new")
    item = await given(watch)
    later = await other.watch("you", group="new")
    assert (await given(later)).index == item.index, "it had not told the server for a second"
    plugin.watches._feeders._extended_at -= 60
    watch.feeder._giving.held[item.index].since -= 60
    await plugin.watches._feeders.extend()
    assert (watch.state.pending, watch.state.slots) == (0, 1)
    await plugin.commit(item.index, group="new")
    await becomes(lambda: later.state.pending == 0)


async def test_watches_go_on_after_nats_was_killed(own_nats: NatsServer) -> None:
    async with AsyncExitStack() as stack:
        bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=PATIENT_S), role="admin")
        stack.push_async_callback(bus.close)
        at = Rig(Wire(nats_url=own_nats.url), stack, bus)
        await at.change()
        plugin = await at.plugin(request_timeout_s=3.0)  # what the killed server has forgotten is answered in time
        watch, idle = await plugin.watch("me", window=3), await plugin.watch("idle", group="idle")
        indexes = await at.put("a", "b")
        assert [(await given(watch)).index for _ in range(2)] == indexes
        await own_nats.kill()
        await own_nats.start()
        await becomes(lambda: bus.is_connected and plugin.bus.is_connected)
        await plugin.commit(*indexes)
        (third,) = await at.put("c", is_high=True)
        assert (await given(watch)).index == third
        seen = {(await given(idle)).index}
        while len(seen) < 3:
            await plugin.commit(*seen, group="idle")
            seen.add((await given(idle)).index)
        assert seen == {*indexes, third}


async def test_the_user_of_gateways_may_do_all_that_watches_need(tmp_path: Path) -> None:
    passwords: dict[str, str] = {role: f"secret of {role}" for role in USERS}
    async with NatsServer(tmp_path / "nats", users=passwords) as server, AsyncExitStack() as stack:

        def user(name: str) -> Wire:
            return Wire(nats_url=server.url, nats_user=name, nats_password=passwords[name])

        bus = await Bus.connect(user("admin-queues"), role="admin-queues")
        stack.push_async_callback(bus.close)
        at = Rig(user("gateway-queues"), stack, bus)
        await at.change(max_delivery=3)
        await at.bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 1 << 20))
        plugin, other = await at.plugin(), await at.plugin()
        watch = await plugin.watch("me", group="new")
        idle = await other.watch("you", group="new")
        await becomes(lambda: idle.feeder._pulling.is_parked and watch.feeder._pulling.is_parked)
        await becomes(lambda: all(len(one.watches._presence.of("my.queue", "source")) == 2 for one in (plugin, other)))
        (index,) = await at.put("a", is_high=True)
        for _ in range(3):
            await becomes(lambda: watch.state.pending + idle.state.pending == 1)
            there, uid = (other, "me") if watch.state.pending else (plugin, "you")
            await there.negative(uid, index, group="new")
        await becomes_so(at.rear_count, 1)
        (later,) = await at.put("b")
        await becomes(lambda: watch.state.pending + idle.state.pending == 1)
        there = other if watch.state.pending else plugin
        await there.commit(later, group="new")
        await becomes(lambda: watch.state.pending + idle.state.pending == 0)
        moved = await other.watch("me", group="new")
        with pytest.raises(WatchMoved):
            await given(watch)
        assert await groups.is_watched(plugin.bus, moved.place)
        await moved.close()


async def test_a_watch_ends_with_its_queue(at: Rig) -> None:
    watch = await (await at.plugin()).watch("me")
    del at.tables.queues["my.queue"]
    at.tables.tell("my.queue")
    with pytest.raises(NotFound):
        await given(watch)


async def test_a_group_that_is_gone_is_made_again(at: Rig) -> None:
    plugin = await at.plugin()
    watch = await plugin.watch("me")
    for rank in ("hi", "lo"):
        await at.bus.request_json(f"$JS.API.CONSUMER.DELETE.{watch.place.stream}.eas-{rank}")
    await becomes(lambda: bool(watch.feeder._pulling.refusal))
    await watch.feeder.tend()
    await at.put("a")
    assert (await given(watch)).data == b"a"


async def test_what_nats_has_forgotten_to_have_given_out_is_committed_and_given_to_nobody_else(at: Rig) -> None:
    await queues.make_group(at.bus, at.queue, "source", "other")  # for which items are kept meanwhile
    first, second = await at.put("a", "b")
    plugin = await at.plugin(request_timeout_s=2.0)  # the first acknowledgement is not answered
    watch = await plugin.watch("me", window=2)
    assert [(await given(watch)).index for _ in range(2)] == [first, second]
    for rank in ("hi", "lo"):
        await at.bus.request_json(f"$JS.API.CONSUMER.DELETE.{watch.place.stream}.eas-{rank}")

    async def is_made() -> bool:
        with suppress(SignalboxError):  # nats-server may still be at the files of the deleted one
            await queues.make_group(at.bus, at.queue, "source", "eas")
            return True
        return False

    await outage.becomes(is_made, limit_s=20)
    await plugin.commit(second)
    (third,) = await at.put("c")
    assert (await given(watch)).index == third
    await plugin.commit(first, third)
    assert watch.state.pending == await at.pending() == 0


async def test_what_was_committed_while_nobody_here_heard_frees_its_slot(at: Rig) -> None:
    (index,) = await at.put("a")
    plugin = await at.plugin()
    watch = await plugin.watch("me")
    await given(watch)
    for subscription in watch.feeder._subscriptions:
        await subscription.close()
    await (await at.plugin()).commit(index)
    watch.feeder._giving.held[index].since -= 60
    await watch.feeder.tend()
    assert watch.state.slots == 1


async def test_no_more_watches_than_a_program_takes(at: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    plugin = await at.plugin()
    for window in (0, 1025):
        with pytest.raises(InvalidRequest, match="window"):
            await plugin.watch("me", window=window)
    monkeypatch.setattr(watches, "MOST_WATCHES", 1)
    await plugin.watch("me")
    with pytest.raises(LimitExceeded):
        await plugin.watch("you")


async def becomes(is_so: Callable[[], bool]) -> None:
    """Wait for what no event tells of."""

    async def check() -> bool:
        return is_so()

    await outage.becomes(check, limit_s=20)


async def becomes_so(found: Callable[[], Coroutine[Any, Any, int]], wanted: int) -> None:
    """Wait until the server says so."""

    async def check() -> bool:
        return await found() == wanted

    await outage.becomes(check, limit_s=20)


async def test_a_side_has_so_many_groups_and_one_more_is_refused(at: Rig) -> None:
    plugin = await at.plugin()
    for number in range(MOST_GROUPS - 1):  # beside the default one
        await queues.make_group(at.bus, at.queue, "source", f"g{number}")
    with pytest.raises(LimitExceeded, match="groups"):
        await plugin.watch("a", "one-more")
    await plugin.watch("a", "g0")
    await plugin.watches.forget(at.queue, "source", "g1")
    await plugin.watch("a", "one-more")


async def test_a_group_that_nobody_watches_is_forgotten_with_what_was_kept_for_it_alone(at: Rig) -> None:
    plugin, other = await at.plugin(), await at.plugin()
    watch, mine = await plugin.watch("a", "old", window=1), await plugin.watch("b")
    (index,) = await at.put("x")
    assert (await given(watch)).index == (await given(mine)).index == index
    await plugin.commit(index)
    await becomes(lambda: len(other.watches._presence.of("my.queue", "source")) == 2)
    assert not await at.forgets(other, "old")
    with pytest.raises(Conflict, match="end its watches first"):
        await plugin.watches.forget(at.queue, "source", "old")
    assert await at.length() == 1
    await watch.close()
    await outage.becomes(lambda: at.forgets(other, "old"), limit_s=20)
    assert await at.forgets(plugin, "old"), "again"
    assert await at.length() == 0
    assert [state.name for state in await groups.group_states(at.bus, "my.queue", "source")] == ["eas"]
    with pytest.raises(InvalidRequest, match="stays"):
        await plugin.watches.forget(at.queue, "source", "eas")
    (later,) = await at.put("y")
    assert (await given(await other.watch("a", "old"))).index == later


@pytest.mark.parametrize("has_items", [False, True], ids=["waits for items", "has what its window takes"])
async def test_a_group_is_not_forgotten_whose_watch_no_plugin_has_told_of_yet(
    at: Rig, monkeypatch: pytest.MonkeyPatch, has_items: bool
) -> None:
    monkeypatch.setattr(watches, "_TELL_AFTER_S", 3600.0)
    plugin, other = await at.plugin(), await at.plugin()
    if has_items:
        await at.put("x", "y")
    watch = await plugin.watch("a", "young", window=1)
    assert not await at.forgets(other, "young"), "as soon as it is open"
    if has_items:
        await given(watch)
        assert not await at.forgets(other, "young")
    assert other.watches._presence.of("my.queue", "source") == []
    await watch.close()
    assert await at.forgets(other, "young"), "as soon as it is closed"
    assert [state.name for state in await groups.group_states(at.bus, "my.queue", "source")] == ["eas"]
