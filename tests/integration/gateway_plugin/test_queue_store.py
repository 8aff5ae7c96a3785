"""Items of queues in a real nats-server: put, read, waited for, removed, found, counted; streams that end."""

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any

import pytest

from gateway_plugin.queues import evicting, reading, scanning, store
from gateway_plugin.queues.arrivals import Waiter
from gateway_plugin.queues.items import Consumer
from gateway_plugin.queues.parts import QueueParts
from gateway_plugin.queues.reading import Get
from gateway_plugin.queues.watching.openwatch import Watch
from gateway_plugin.service.queues import GET as GET_
from gateway_plugin.service.queues import MANAGE, PUT, WATCH, Queues
from signalbox.bus import queues, table
from signalbox.bus.acknowledgement import ack
from signalbox.bus.client import Bus, Delivery
from signalbox.jobs.commits import persist
from signalbox.program.errors import Ambiguous, Conflict, InvalidRequest, NotFound, QueueFull, TooLarge, Unavailable
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire
from signalbox.wire import names, queuenames
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.names import Bucket
from signalbox.wire.queues import Queue, QueueMark, QueueSide, rear_config, side_config
from tests.rigs.gateway import holds
from tests.rigs.natsserver import NatsServer


def evicted() -> float:
    """How many items were seen to be dropped for new ones."""
    value = REGISTRY.get_sample_value("signalbox_queue_evicted_total", {"side": "source"})
    return value or 0.0


KEPT = {"is_deleting": False}


class Rig:
    """The parts of one plugin, and one queue."""

    def __init__(self, bus: Bus, parts: QueueParts, queue: Queue) -> None:
        self.bus = bus
        self.parts = parts
        self.queue = queue

    async def put(self, *texts: str, is_high: bool = False, **tags: str) -> list[int]:
        return [
            await self.parts.store.put(self.queue, "source", text.encode(), tags, is_high=is_high) for text in texts
        ]

    async def get(self, **asked: Any) -> list[str]:
        return [item.data.decode() for item in await self.parts.reader.get(self.queue, "source", Get(**asked))]

    async def change(self, **fields: Any) -> None:
        """Make the queue, or change it."""
        self.queue = Queue(name="my.queue", account_id="mine", **fields)
        await queues.declare(self.bus, self.queue)
        await table.put(self.bus, Bucket.QUEUES, names.token("my.queue"), self.queue)
        await holds(self.parts.tables._queues, lambda: self.parts.tables.find("my.queue") == self.queue)


@pytest.fixture
async def at(bus: Bus) -> AsyncIterator[Rig]:
    parts = QueueParts(bus)
    await parts.start()
    made = Rig(bus, parts, Queue(name="my.queue", account_id="mine"))
    await made.change()
    try:
        yield made
    finally:
        await parts.close()
        await queues.remove(bus, "my.queue")


async def test_what_is_put_is_read_from_an_index_on_in_order(at: Rig) -> None:
    first, second, third = await at.put("a", "b", "c", colour="red")
    assert first < second < third
    assert await at.get(length=2, **KEPT) == ["a", "b"]
    assert await at.get(index=second, length=10, **KEPT) == ["b", "c"]
    assert await at.get(index=-1, length=10, **KEPT) == ["c"]
    assert await at.get(index=third + 1, **KEPT) == []
    (item,) = await at.parts.reader.get(at.queue, "source", Get(index=second, is_deleting=False))
    assert (item.index, item.data, item.tags, item.is_high) == (second, b"b", {"colour": "red"}, False)


async def test_each_item_that_is_deleted_is_given_to_one_reader(at: Rig) -> None:
    texts = [str(number) for number in range(60)]
    await at.put(*texts)
    got: list[str] = []

    async def read() -> None:
        while found := await at.get(length=7):
            got.extend(found)

    await asyncio.gather(*(read() for _ in range(5)))
    assert sorted(got, key=int) == texts


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> asyncio.Event:
    """Set once somebody waits for an item."""
    waiting = asyncio.Event()
    wait = Waiter.wait

    def noted(waiter: Waiter, until: float) -> Any:
        waiting.set()
        return wait(waiter, until)

    monkeypatch.setattr(Waiter, "wait", noted)
    return waiting


async def test_one_who_waits_is_answered_by_the_item_that_comes(at: Rig, waits: asyncio.Event) -> None:
    reading = asyncio.create_task(at.get(timeout_s=60, **KEPT))
    await waits.wait()
    await at.put("late")
    assert await reading == ["late"]
    assert at.parts.reader.arrivals.subscriptions == 0


async def test_one_who_waits_for_a_request_gets_its_item_and_no_other(at: Rig, waits: asyncio.Event) -> None:
    reading = asyncio.create_task(at.get(timeout_s=60, tags={"requestId": "r.2"}))
    await waits.wait()
    await at.put("other", requestId="r.1")
    await at.put("mine", requestId="r.2")
    assert await reading == ["mine"]
    assert await at.get(length=10, **KEPT) == ["other"]


async def test_an_item_can_be_asked_for_by_the_request_of_its_put(at: Rig) -> None:
    await at.parts.store.put(at.queue, "source", b"mine", {"a": "b"}, request_id="the put")
    await at.put("other", a="b")
    asked = Get(tags={"requestId": "the put", "a": "b"})
    (item,) = await at.parts.reader.get(at.queue, "source", asked)
    assert (item.data, item.request_id, item.tags) == (b"mine", "the put", {"a": "b", "requestId": "the put"})
    assert await at.parts.reader.get(at.queue, "source", asked) == []


async def test_readers_who_wait_share_out_what_comes(at: Rig) -> None:
    readings = [asyncio.create_task(at.get(timeout_s=60)) for _ in range(8)]
    await asyncio.gather(*(at.put(str(number)) for number in range(8)))
    assert sorted(text for texts in await asyncio.gather(*readings) for text in texts) == list("01234567")


async def test_tags_filter_what_is_read_and_counted(at: Rig) -> None:
    for number in range(600):
        await at.put(str(number), parity="even" if number % 2 == 0 else "odd", last=str(number % 10))
    assert await at.get(length=3, tags={"parity": "odd"}, **KEPT) == ["1", "3", "5"]
    assert await at.get(index=-1, tags={"parity": "even"}, **KEPT) == ["598"]
    assert await at.get(length=1000, tags={"parity": "odd", "last": "2"}, **KEPT) == []
    assert await at.parts.store.count(at.queue, "source", {"parity": "even", "last": "4"}) == 60
    assert await at.get(length=2, tags={"last": "7"}) == ["7", "17"]
    assert await at.parts.store.count(at.queue, "source", {"last": "7"}) == 58


async def test_a_call_says_where_to_go_on_when_it_may_look_no_further(at: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scanning, "_PAGE", 5)
    for module in (store, reading):
        monkeypatch.setattr(module, "MOST_SCANNED", 10)
    indexes = await at.put(*(str(number) for number in range(12)), a="b")
    (wanted,) = await at.put("wanted", a="c")
    with pytest.raises(InvalidRequest) as refused:
        await at.get(tags={"a": "c"}, **KEPT)
    assert refused.value.facts["index"] == indexes[9] + 1
    assert await at.get(index=indexes[10], tags={"a": "c"}, **KEPT) == ["wanted"]
    assert await at.get(index=-1, tags={"a": "c"}, **KEPT) == ["wanted"]
    assert await at.get(length=100, tags={"a": "b"}, **KEPT) == [str(number) for number in range(10)]
    with pytest.raises(InvalidRequest):
        await at.parts.store.count(at.queue, "source", {"a": "c"})
    assert await at.parts.store.count(at.queue, "source") == 13
    assert wanted


async def test_an_answer_is_bounded_by_its_bytes(at: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "MOST_BYTES", 10_000)
    await at.put(*("x" * 4000 for _ in range(5)), a="b")
    assert len(await at.get(length=5, **KEPT)) in {2, 3}
    assert len(await at.get(length=5, tags={"a": "b"}, **KEPT)) == 2


async def test_a_full_side_refuses_more_until_some_are_removed(at: Rig) -> None:
    await at.change(source=QueueSide(max_length=2, max_payload_kb=0))
    await at.put("a", "b")
    with pytest.raises(QueueFull):
        await at.put("c")
    assert await at.get() == ["a"]
    await at.put("d")
    assert await at.get(length=5) == ["b", "d"]


async def test_a_full_side_that_evicts_drops_its_oldest(at: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    await at.change(source=QueueSide(max_length=2, max_payload_kb=0, auto_evict=True))
    monkeypatch.setattr(evicting, "_LOOK_S", 0.0)
    for text in "abc":
        await at.put(text)
        await at.parts.store.close()  # which waits until the server was asked
    assert await at.get(length=5, **KEPT) == ["b", "c"]
    before = evicted()
    await at.put("d")
    assert evicted() == before + 1


async def test_an_item_has_the_size_of_the_queue_and_not_a_byte_more(at: Rig) -> None:
    await at.change(source=QueueSide(max_payload_kb=1))
    tags = {f"tag{number}": "é" * 128 for number in range(32)}
    await at.parts.store.put(at.queue, "source", b"x" * 1024, tags)
    with pytest.raises(TooLarge):
        await at.put("x" * 1025)


async def test_a_put_with_the_same_message_id_is_stored_once(at: Rig) -> None:
    put = partial(at.parts.store.put, at.queue, "sink", b"result", {}, msg_id="job-7")
    assert await put() == await put()
    assert await at.parts.store.count(at.queue, "sink") == 1


async def test_removed_items_are_gone_for_every_group(at: Rig) -> None:
    first, second, third = await at.put("a", "b", "c")
    await queues.make_group(at.bus, at.queue, "source", "other")
    assert await at.parts.store.delete(at.queue, "source", [first, third, third + 100]) == 2
    assert await at.parts.store.delete(at.queue, "source", [first, second]) == 1
    for group in ("eas", "other"):
        assert (
            await at.bus.consumer_info(f"{group}-lo", queuenames.queue_stream("my.queue", "source"))
        ).num_pending == 0


async def test_truncation_removes_what_is_below_an_index_and_skips_none(at: Rig) -> None:
    _, second, third = await at.put("a", "b", "c")
    assert await at.parts.store.truncate(at.queue, "source", 1) == 0
    assert await at.parts.store.truncate(at.queue, "source", second) == 1
    assert await at.get(length=5, **KEPT) == ["b", "c"]
    assert await at.parts.store.truncate(at.queue, "source", 10**15) == 2
    assert await at.put("d") == [third + 1]


async def test_an_ended_side_takes_no_more_at_any_plugin_until_it_is_truncated(at: Rig) -> None:
    other = QueueParts(at.bus)
    await other.start()
    try:
        (index,) = await at.put("a")
        mark = await at.parts.store.end(at.queue, "source")
        assert (mark.index, mark.is_forced) == (index, False)
        assert await at.parts.store.end(at.queue, "source") == mark
        await holds(other.tables._marks, lambda: other.tables.mark("my.queue", "source") == mark)
        for parts in (at.parts, other):
            with pytest.raises(Conflict):
                await parts.store.put(at.queue, "source", b"b", {})
        assert await other.store.put(at.queue, "sink", b"b", {}) == 1
        assert await at.get(**KEPT) == ["a"]
        assert await other.store.truncate(at.queue, "source", index) == 0
        with pytest.raises(Conflict):
            await other.store.put(at.queue, "source", b"b", {})
        assert await other.store.truncate(at.queue, "source", index + 1) == 1
        assert await other.store.put(at.queue, "source", b"b", {}) == index + 1
    finally:
        await other.close()


async def test_a_forced_end_throws_away_what_is_left(at: Rig) -> None:
    _, last = await at.put("a", "b")
    await at.parts.store.end(at.queue, "source")
    mark = await at.parts.store.end(at.queue, "source", is_forced=True)
    assert (mark.index, mark.is_forced) == (last, True)
    assert await at.get(**KEPT) == []


async def test_an_item_that_was_accepted_while_the_side_ended_is_before_its_end(at: Rig) -> None:
    (index,) = await at.put("a")
    await at.parts.tables.write_mark("my.queue", "source", QueueMark(ended_at=1.0, index=index - 1))
    mark = await at.parts.store.end(at.queue, "source")
    assert mark == QueueMark(ended_at=1.0, index=index)


async def test_a_search_tells_who_is_given_out_before(at: Rig) -> None:
    low = await at.put("a", "b", "c", "d")
    high = await at.put("e", "f", is_high=True)

    async def place(index: int, group: str = "eas") -> tuple[bool, int]:
        found = await at.parts.store.search(at.queue, "source", group, index)
        return found.is_pending, found.wait_count

    assert [await place(index) for index in low] == [(False, 2), (False, 3), (False, 4), (False, 5)]
    assert [await place(index) for index in high] == [(False, 0), (False, 1)]
    stream = queuenames.queue_stream("my.queue", "source")
    got: asyncio.Queue[Delivery] = asyncio.Queue()
    puller = await at.bus.pull("eas-lo", got.put_nowait, stream=stream)
    puller.ask(2)
    deliveries = [await got.get(), await got.get()]
    assert [await place(index) for index in low] == [(True, 0), (True, 0), (False, 2), (False, 3)]
    await ack(at.bus, deliveries[0])
    with pytest.raises(NotFound):
        await place(low[0])
    await queues.make_group(at.bus, at.queue, "source", "other")
    await ack(at.bus, deliveries[1])
    with pytest.raises(NotFound):
        await place(low[1])
    assert await place(low[1], "other") == (False, 2)
    for index, group in ((high[-1] + 1, "eas"), (low[2], "nobody")):
        with pytest.raises(NotFound):
            await place(index, group)
    await puller.close()


async def test_items_are_counted_by_priority_and_request(at: Rig) -> None:
    await at.put("a", "b", requestId="r1")
    await at.put("c", is_high=True)
    count = partial(at.parts.store.count, at.queue, "source")
    assert [await count({}), await count({}, True), await count({}, is_high=False)] == [3, 1, 2]
    assert [await count({"requestId": "r1"}), await count({"requestId": "r1"}, True)] == [2, 0]


async def test_the_attributes_are_those_of_the_stream(at: Rig) -> None:
    first, *_, last = await at.put("a", "b", "c")
    told = await at.parts.store.attributes(at.queue, "source")
    assert (told["meta.name"], told["meta.state"], told["stream.length"]) == ("my.queue", "Normal", "3")
    assert (told["stream.firstEntry"], told["stream.lastEntry"]) == (str(first), str(last))
    await at.parts.store.end(at.queue, "source")
    assert (await at.parts.store.attributes(at.queue, "source"))["meta.state"] == "Ended"


async def test_the_attributes_name_who_watches_and_with_which_group(at: Rig) -> None:
    queues_ = Queues(at.parts)
    key = ApiKey(id="k", account_id="mine", hmac="", scopes=(PUT, GET_, WATCH))
    await queues_.put(key, "my.queue", "source", b"a", {})
    await queues_.put(key, "my.queue", "source", b"b", {})
    opened = await queues_.watch(key, "my.queue", "source", Consumer("mine", "u1"), Watch(window=1))
    item = await opened.next()
    assert item is not None
    told = await queues_.attributes(key, "my.queue", "source")
    assert told["consumers.stats.total"] == "1"
    assert told["consumers.list.[0]"].startswith(f"Id: mine.u1, Index: {item.index}, Pending: 1, Status: Running, Idle")
    assert told["groups.list.[0]"].startswith("Id: eas, Index: 0, Pending: 0, Waiting: 2, Consumers: 0")
    assert told["groups.list.[1]"].startswith(f"Id: mine, Index: {item.index}, Pending: 1, Waiting: 1, Consumers: 1")
    assert (await queues_.search(key, "my.queue", "source", "mine", item.index)).is_pending
    await queues_.commit(key, "my.queue", "source", "mine", [item.index])
    with pytest.raises(NotFound):
        await queues_.search(key, "my.queue", "source", "mine", item.index)
    await opened.close()


async def test_dead_items_are_read_and_removed_by_their_own_queue_only(at: Rig) -> None:
    await at.bus.request_json("$JS.API.STREAM.CREATE.REAR", rear_config(1, 1 << 20))
    try:
        theirs = await at.bus.write(queuenames.rear_item("other", "source"), b"theirs")
        mine = [await at.bus.write(queuenames.rear_item("my.queue", "source", f"r{n}"), b"%d" % n) for n in range(3)]
        await at.bus.write(queuenames.rear_item("my.queue", "sink"), b"of the sink")
        assert await at.get(length=9, is_rear=True, **KEPT) == ["0", "1", "2"]
        assert await at.get(is_rear=True, tags={"requestId": "r1"}, timeout_s=60) == ["1"]
        assert await at.parts.store.delete(at.queue, "source", [theirs, mine[0], mine[1]], is_rear=True) == 1
        assert await at.get(length=9, is_rear=True) == ["2"]
        assert await at.get(is_rear=True, timeout_s=60) == []
        assert (await at.bus.leader_next("REAR", theirs)) is not None
    finally:
        await at.bus.request_json("$JS.API.STREAM.DELETE.REAR")


async def test_a_queue_that_is_being_made_refuses_and_is_not_said_to_be_missing(at: Rig) -> None:
    unmade = Queue(name="unmade", account_id="mine")
    get = partial(at.parts.reader.get, unmade, "source", Get())
    put = partial(at.parts.store.put, unmade, "source", b"", {})
    truncate = partial(at.parts.store.truncate, unmade, "source", 5)
    delete = partial(at.parts.store.delete, unmade, "source", [5])
    count = partial(at.parts.store.count, unmade, "source", {})
    for verb in (get, put, truncate, delete, count):
        with pytest.raises(Unavailable):
            await verb()


async def test_a_put_that_nats_does_not_answer_says_that_it_may_be_twice(
    at: Rig, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def write(*_: object, **__: object) -> int:
        raise Ambiguous(retry_after_s=1.0)

    monkeypatch.setattr(at.bus, "write", write)
    with pytest.raises(Ambiguous, match="may put it twice") as unsure:
        await at.put("a")
    assert unsure.value.retry_after_s == 1.0


async def test_nothing_is_put_into_a_stream_before_its_group_is_there_to_keep_it(at: Rig) -> None:
    later = Queue(name="my.queue", account_id="mine", created_at=2000.0)
    await queues.remove(at.bus, "my.queue")
    await table.put(at.bus, Bucket.QUEUES, names.token("my.queue"), later)
    await holds(at.parts.tables._queues, lambda: at.parts.tables.find("my.queue") == later)
    put = partial(Queues(at.parts).put, ApiKey(id="k", account_id="mine", hmac="", scopes=(PUT,)), "my.queue")
    config = side_config(later, "source", 1)
    await at.bus.request_json(f"$JS.API.STREAM.CREATE.{config['name']}", config)
    assert await at.bus.write(queuenames.queue_item("my.queue", "source", "lo"), b"lost") == 1
    with pytest.raises(Unavailable, match="being made"):
        await put("source", b"kept", {})
    await queues.make_group(at.bus, later, "source", "eas")
    assert await put("source", b"kept", {}) == 2
    at.queue = later
    assert await at.get() == ["kept"]


async def test_a_queue_whose_streams_are_still_an_earlier_ones_gives_nothing_and_takes_nothing(at: Rig) -> None:
    dialect = Queues(at.parts)
    await at.put("secret of mine")
    scopes = (PUT, GET_, WATCH, MANAGE)
    mine, theirs = (ApiKey(id="k", account_id=one, hmac="", scopes=scopes) for one in ("mine", "theirs"))
    assert await dialect.get(mine, "my.queue", "source", Get(is_deleting=False))
    opened = await dialect.watch(mine, "my.queue", "source", Consumer("eas", "u1"), Watch())
    later = Queue(name="my.queue", account_id="theirs", created_at=2000.0)
    await table.put(at.bus, Bucket.QUEUES, names.token("my.queue"), later)  # and nobody makes its streams yet
    await holds(at.parts.tables._queues, lambda: at.parts.tables.find("my.queue") == later)
    for verb in (
        partial(dialect.get, theirs, "my.queue", "source", Get()),
        partial(dialect.get, theirs, "my.queue", "source", Get(is_rear=True)),
        partial(dialect.put, theirs, "my.queue", "source", b"lost", {}),
        partial(dialect.delete, theirs, "my.queue", "source", [1]),
        partial(dialect.truncate, theirs, "my.queue", "source", 5),
        partial(dialect.end, theirs, "my.queue", "source"),
        partial(dialect.search, theirs, "my.queue", "source", "eas", 1),
        partial(dialect.count, theirs, "my.queue", "source", {}),
        partial(dialect.attributes, theirs, "my.queue", "source"),
        partial(dialect.commit, theirs, "my.queue", "source", "eas", [1]),
        partial(dialect.negative, theirs, "my.queue", "source", Consumer("eas", "u1"), [1]),
        partial(dialect.watch, theirs, "my.queue", "source", Consumer("eas", "u2"), Watch()),
    ):
        with pytest.raises(Unavailable, match="being made"):
            await verb()
    async with asyncio.timeout(30):
        await opened.ended.wait()  # it went on with what the other one puts
    with pytest.raises(NotFound):
        await opened.next()
    await opened.close()
    await queues.declare(at.bus, later)
    assert await dialect.put(theirs, "my.queue", "source", b"mine now", {}) == 1
    (item,) = await dialect.get(theirs, "my.queue", "source", Get())
    assert item.data == b"mine now"


async def test_one_who_waits_is_answered_across_a_restart_of_nats(own_nats: NatsServer, waits: asyncio.Event) -> None:
    async with await Bus.connect(Wire(nats_url=own_nats.url), role="admin") as bus:
        parts = QueueParts(bus)
        await parts.start()
        made = Rig(bus, parts, Queue(name="my.queue", account_id="mine"))
        await made.change()
        reading = asyncio.create_task(made.get(timeout_s=60))
        await waits.wait()
        await own_nats.restart()
        async with await Bus.connect(Wire(nats_url=own_nats.url), role="admin") as other:
            await persist(lambda: other.write(queuenames.queue_item("my.queue", "source", "lo"), b"after"))
        assert await reading == ["after"]
        await parts.close()


async def test_nothing_is_put_into_a_stream_that_is_made_again_until_its_group_is_there(own_nats: NatsServer) -> None:
    queue = Queue(name="my.queue", account_id="mine")
    async with await Bus.connect(Wire(nats_url=own_nats.url), role="admin") as bus:
        parts = QueueParts(bus)
        await parts.start()
        await Rig(bus, parts, queue).change()
        put = partial(Queues(parts).put, ApiKey(id="k", account_id="mine", hmac="", scopes=(PUT,)), "my.queue")
        await put("source", b"kept", {})
        reconnected = asyncio.Event()
        bus.on_reconnect(reconnected.set)
        config = side_config(queue, "source", 1)
        await bus.request_json(f"$JS.API.STREAM.DELETE.{config['name']}")
        await own_nats.restart()
        await reconnected.wait()
        await persist(lambda: bus.request_json(f"$JS.API.STREAM.CREATE.{config['name']}", config))
        with pytest.raises(Unavailable, match="being made"):
            await put("source", b"lost", {})
        await parts.close()
