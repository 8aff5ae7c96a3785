"""The task ``queues``: streams follow documents, states tell how queues stand, and operators' acts are done.

Each program has its own NATS users here, so that what it may not do is found too.
"""

import asyncio
import contextlib
import itertools
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import pytest
from msgspec.structs import replace

from gateway_plugin.outbound.queues import making, standing
from gateway_plugin.outbound.queues.runner import keep_queues
from gateway_plugin.queues.items import Consumer
from gateway_plugin.queues.parts import QueueParts
from gateway_plugin.queues.reading import Get
from gateway_plugin.queues.watching.groups import group_states
from gateway_plugin.queues.watching.openwatch import Watch
from gateway_plugin.queues.watching.presence import Presence
from gateway_plugin.queues.watching.watches import Watches
from gateway_plugin.service.queues import MANAGE, PUT, Queues
from signalbox.bus import queues, storage, topology
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put, remove
from signalbox.program.errors import LimitExceeded, NotFound
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire
from signalbox.program.tasks import Background
from signalbox.wire import names, queuenames
from signalbox.wire.keydocs import ApiKey, Share
from signalbox.wire.messages import decode, encode
from signalbox.wire.names import Bucket, Header
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import (
    Queue,
    QueueAsk,
    QueueDone,
    QueueMark,
    QueueSide,
    QueueState,
    Watching,
    WatchState,
)
from signalbox.wire.roles import USERS, queue_role
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes

PASSWORDS: Final[dict[str, str]] = {user: f"secret of {user}" for user in USERS}
TEXTS: Final = Queue(name="my.texts", account_id="acme", created_at=1000.0)
KEY: Final = names.token("my.texts")
SOURCE: Final = queuenames.queue_stream("my.texts", "source")


class House:
    """A NATS with the task running, and connections of the others. ``queues``: of the account of queues."""

    def __init__(self, server: NatsServer) -> None:
        self.server = server
        self.bus: dict[str, Bus] = {}
        self.queues: dict[str, Bus] = {}
        self._changed = asyncio.Event()
        self._running = Background()

    async def start(self) -> None:
        for role in ("admin", "gateway", "outbound", "console"):
            other = queue_role(role)
            wire = Wire(
                nats_url=self.server.url,
                nats_user=role,
                nats_password=PASSWORDS[role],
                queues_nats_user=other,
                queues_nats_password=PASSWORDS.get(other, ""),
                request_timeout_s=20.0,
            )
            self.bus[role] = await Bus.connect(wire, role=role)
            if other:
                self.queues[role] = await queues.connect(wire, role=role)
        await topology.apply(self.bus["admin"])
        self.states = Table(self.bus["console"], Bucket.QUEUE_STATES, QueueState)
        self.states.on_change(lambda *_: self._changed.set())
        await self.states.start()
        self.begin()

    def begin(self) -> None:
        self._running.start(keep_queues(self.bus["outbound"], self.queues["outbound"]), name="queues")

    async def end(self) -> None:
        await self._running.cancel()

    async def close(self) -> None:
        await self.end()
        await self.states.close()
        for bus in (*self.bus.values(), *self.queues.values()):
            await bus.close()

    async def until(self, holds: Callable[[QueueState | None], bool], key: str = KEY) -> QueueState:
        """The state of a queue once it is so."""
        async with asyncio.timeout(60):
            while not holds(self.states.get(key)):
                self._changed.clear()
                await self._changed.wait()
        return self.states.get(key) or QueueState()

    async def decide(self, queue: Queue) -> None:
        await put(self.bus["console"], Bucket.QUEUES, names.token(queue.name), queue)

    async def put_item(self, number: int = 0, queue: str = "my.texts") -> int:
        subject = queuenames.queue_item(queue, "source", "lo", str(number))
        return await self.queues["gateway"].write(subject, b"item", headers={Header.TAGS: '{"a":"b"}'})

    async def bury(self, number: int = 0) -> int:
        return await self.queues["gateway"].write(queuenames.rear_item("my.texts", "source", str(number)), b"dead")

    async def stream(self, name: str = SOURCE) -> dict[str, Any] | None:
        return await topology.stream_info(self.queues["admin"], name)

    async def ask(self, queue: str, ask: QueueAsk) -> QueueDone:
        _, body = await self.bus["console"].request(queuenames.ask_queue(queue), encode(ask))
        return decode(QueueDone, body)


def is_running(state: QueueState | None) -> bool:
    return state is not None and state.state == "running"


@asynccontextmanager
async def housed(folder: Path) -> AsyncIterator[House]:
    async with NatsServer(folder / "nats", users=PASSWORDS) as server:
        house = House(server)
        await house.start()
        try:
            yield house
        finally:
            await house.close()


@pytest.fixture
async def house(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[House]:
    monkeypatch.setattr(standing, "LOOK_S", 0.01)
    monkeypatch.setattr(making, "RETRY_S", 0.05)
    async with housed(tmp_path) as made:
        yield made


async def test_a_queue_is_made_changed_and_removed_as_its_document_says(house: House) -> None:
    await house.decide(TEXTS)
    state = await house.until(is_running)
    assert [group.name for group in state.source.groups] == ["eas"]
    assert (state.replicas, state.source.length, state.why) == (1, 0, "")
    before = time.time()
    index = await house.put_item()
    state = await house.until(lambda found: found is not None and found.source.length == 1)
    assert (state.source.first_index, state.source.last_index, state.source.groups[0].left) == (index, index, 1)
    assert before - 60 < state.source.oldest_at < time.time() + 60
    await house.decide(replace(TEXTS, source=QueueSide(max_length=7, auto_evict=True)))
    async with asyncio.timeout(60):
        while (info := await house.stream()) is None or info["config"]["max_msgs"] != 7:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    assert info["config"]["discard"] == "old"
    assert info["state"]["messages"] == 1
    await house.bury()
    await put(
        house.bus["gateway"], Bucket.QUEUE_MARKS, queuenames.queue_mark("my.texts", "source"), QueueMark(ended_at=2e3)
    )
    state = await house.until(lambda found: found is not None and found.source.is_ended and found.source.rear == 1)
    await remove(house.bus["console"], Bucket.QUEUES, KEY)
    await house.until(lambda found: found is None)
    assert await house.stream() is None
    rear = await house.stream(queuenames.REAR)
    assert rear is not None
    assert rear["state"]["messages"] == 0
    marks = Table(house.bus["gateway"], Bucket.QUEUE_MARKS, QueueMark)
    await marks.start()
    assert dict(marks.items()) == {}
    await marks.close()


async def test_what_was_decided_while_the_task_was_away_is_done_when_it_is_back(house: House) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)
    await house.put_item()
    await house.end()
    await remove(house.bus["console"], Bucket.QUEUES, KEY)
    await house.decide(replace(TEXTS, name="other"))
    house.begin()
    await house.until(is_running, "other")
    await house.until(lambda found: found is None)
    assert await house.stream() is None


async def test_a_copy_that_has_lost_the_task_tells_no_figures_of_queues(house: House) -> None:
    await house.decide(replace(TEXTS, services=("digits",)))
    await house.until(is_running)
    await house.put_item()
    await house.bury()
    await house.until(lambda state: state is not None and state.source.length == state.source.rear == 1)
    told = {
        f"signalbox_queue_side_{what}": {"queue": TEXTS.name, "side": "source"}
        for what in ("items", "bytes", "dead_items", "oldest_timestamp_seconds")
    } | {"signalbox_service_backlog": {"model": "digits"}}
    rooms = [
        (f"signalbox_queues_{what}_bytes", {"of": of}) for what in ("stored", "limit") for of in ("account", "rear")
    ]

    late = [("signalbox_queues_late_replicas", {"of": of}) for of in ("queues", "rear")]

    def figures() -> list[float | None]:
        return [REGISTRY.get_sample_value(name, labels) for name, labels in (*late, *told.items(), *rooms)]

    async def are_told() -> bool:
        return figures()[:2] == [0.0, 0.0] and all(figures()[2:])

    await becomes(are_told)
    await house.end()
    assert figures() == [None] * 11


async def test_a_later_queue_of_the_same_name_begins_empty(house: House) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)
    await house.put_item()
    await house.bury()
    await house.until(lambda found: found is not None and found.source.length == found.source.rear == 1)
    await put(
        house.bus["gateway"],
        Bucket.QUEUE_MARKS,
        queuenames.queue_mark("my.texts", "source"),
        QueueMark(ended_at=1500.0),
    )
    await house.until(lambda found: found is not None and found.source.is_ended)
    await house.decide(replace(TEXTS, updated_at=5.0))
    await house.decide(replace(TEXTS, account_id="other", created_at=2000.0))
    state = await house.until(lambda found: is_running(found) and found is not None and not found.source.length)
    state = await house.until(lambda found: found is not None and not (found.source.rear or found.source.is_ended))
    assert state.source.last_index == 0
    await house.decide(TEXTS)  # a word of the earlier one that comes late takes nothing away
    await house.put_item(1)
    state = await house.until(lambda found: found is not None and found.source.length == 1)
    await house.decide(replace(TEXTS, name="last"))
    await house.until(is_running, "last")
    info = await house.stream()
    assert info is not None
    assert info["state"]["messages"] == 1


async def test_a_queue_that_nats_refuses_says_why_and_keeps_no_other_one_from_being_made(house: House) -> None:
    in_the_way = {"name": "X", "subjects": [f"q.{KEY}.sink.hi.*"]}
    await house.queues["admin"].request_json("$JS.API.STREAM.CREATE.X", in_the_way)
    await house.decide(TEXTS)
    state = await house.until(lambda found: found is not None and found.state == "failed")
    assert "overlap" in state.why
    await house.decide(replace(TEXTS, name="sound"))
    await house.until(is_running, "sound")
    await house.queues["admin"].request_json("$JS.API.STREAM.DELETE.X")
    state = await house.until(is_running)
    assert state.why == ""


async def test_more_queues_than_there_may_be_are_refused_until_one_goes(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(making, "MOST_QUEUES", 1)
    await house.decide(replace(TEXTS, name="one"))
    await house.until(is_running, "one")
    await house.decide(replace(TEXTS, name="two"))
    state = await house.until(lambda found: found is not None and found.state == "failed", "two")
    assert state.why.endswith("remove one.")
    await remove(house.bus["console"], Bucket.QUEUES, "one")
    await house.until(is_running, "two")


async def test_watches_are_shown_for_as_long_as_their_program_tells_of_them(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)
    told = WatchState(queue="my.texts", side="source", group="eas", uid="u1", window=5, slots=5, idle_s=61.0)
    other = replace(told, queue="other", uid="u2")
    gateway = house.queues["gateway"]
    await gateway.publish(queuenames.watching("i1"), encode(Watching(watches=(told, other))))
    state = await house.until(lambda found: found is not None and bool(found.watches))
    assert state.watches == (replace(told, idle_s=60.0),)
    await gateway.publish(queuenames.watching("i1"), encode(Watching()))
    await house.until(lambda found: found is not None and not found.watches)
    await gateway.publish(queuenames.watching("i1"), encode(Watching(watches=(told,))))
    await house.until(lambda found: found is not None and bool(found.watches))
    monkeypatch.setattr("gateway_plugin.outbound.queues.watching.FORGET_S", 0.0)  # as if nothing was heard for long
    await house.until(lambda found: found is not None and not found.watches)


async def test_nothing_is_asked_of_nats_while_nothing_is_in_a_queue(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    outbound, asked, idle = house.queues["outbound"], [], asyncio.Event()
    request_json, subscribe = outbound.request_json, outbound.subscribe

    async def counted(subject: str, *args: Any, **named: Any) -> dict[str, Any]:
        found = await request_json(subject, *args, **named)
        if subject == "$JS.API.STREAM.LIST":
            asked.append(subject)
            if is_waiting:
                idle.set()
        return found

    is_waiting = False

    async def heard(subject: str, *args: Any, **named: Any) -> Any:
        nonlocal is_waiting
        is_waiting = subject == "evt.q.>"
        return await subscribe(subject, *args, **named)

    monkeypatch.setattr(outbound, "request_json", counted)
    monkeypatch.setattr(outbound, "subscribe", heard)
    await house.decide(TEXTS)
    await house.until(is_running)
    idle.clear()
    async with asyncio.timeout(60):
        await idle.wait()
    await house.bus["console"].flush()
    before = len(asked)
    for _ in range(200):
        await outbound.flush()
    assert len(asked) <= before + 1
    await house.put_item()
    await house.until(lambda found: found is not None and found.source.length == 1)


async def test_dead_items_are_redriven_and_items_purged_as_an_operator_asks(house: House) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)
    for number in range(5):
        await house.bury(number)
    assert await house.ask("my.texts", QueueAsk(act="redrive", most=2)) == QueueDone(items=2)
    state = await house.until(lambda found: found is not None and found.source.rear == 3 and found.source.length == 2)
    assert await house.ask("my.texts", QueueAsk(act="purge", is_rear=True, most=1)) == QueueDone(items=1)
    assert await house.ask("my.texts", QueueAsk(act="redrive")) == QueueDone(items=2)
    assert await house.ask("my.texts", QueueAsk(act="redrive")) == QueueDone()
    state = await house.until(lambda found: found is not None and found.source.rear == 0 and found.source.length == 4)
    assert await house.ask("my.texts", QueueAsk(act="purge", side="sink")) == QueueDone()
    assert await house.ask("my.texts", QueueAsk(act="purge")) == QueueDone(items=4)
    state = await house.until(lambda found: found is not None and found.source.length == 0)
    assert state.source.last_index == 4


async def test_a_dead_item_that_somebody_removes_is_told_though_nothing_else_happens(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "DEAD_S", 0.05)
    await house.decide(TEXTS)
    await house.until(is_running)
    index = await house.bury()
    await house.put_item()  # a dead item leaves its queue
    await house.ask("my.texts", QueueAsk(act="purge"))
    await house.until(lambda found: found is not None and found.source.rear == 1 and not found.source.length)
    await house.queues["gateway"].request_json(f"$JS.API.STREAM.MSG.DELETE.{queuenames.REAR}", {"seq": index})
    await house.until(lambda found: found is not None and found.source.rear == 0)


async def test_an_item_of_which_no_event_tells_is_told_all_the_same(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(standing, "QUIET_S", 0.2)
    subscribe = Bus.subscribe

    async def deaf(self: Bus, subject: str, *args: Any) -> Any:
        return await subscribe(self, "evt.q.lost" if subject == "evt.q.>" else subject, *args)

    monkeypatch.setattr(Bus, "subscribe", deaf)
    await house.decide(TEXTS)
    await house.until(is_running)
    await asyncio.sleep(0.5)  # until it waits for an event
    await house.put_item()
    async with asyncio.timeout(20):
        await house.until(lambda found: found is not None and found.source.length == 1)


async def test_a_side_whose_stream_has_no_leader_is_told_as_away_and_all_others_as_before(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost = {SOURCE}

    async def list_streams(bus: Bus) -> storage.Streams:
        found = await storage.list_streams(bus)
        infos = {name: info for name, info in found.infos.items() if name not in lost}
        return storage.Streams(infos, frozenset(lost))

    await house.decide(TEXTS)
    await house.decide(replace(TEXTS, name="others"))
    for name in ("my.texts", "others"):
        await house.until(is_running, names.token(name))
        await house.put_item(queue=name)
    before = await house.until(lambda found: found is not None and found.source.length == 1)
    monkeypatch.setattr(standing, "list_streams", list_streams)
    state = await house.until(lambda found: found is not None and found.source.is_away)
    assert state.source == replace(before.source, is_away=True)
    assert not state.sink.is_away
    assert REGISTRY.get_sample_value("signalbox_queues_late_replicas", {"of": "queues"}) == 1
    await house.put_item(queue="others")
    await house.until(lambda found: found is not None and found.source.length == 2, names.token("others"))
    lost.clear()
    await house.until(lambda found: found is not None and not found.source.is_away)


async def test_a_side_that_has_ended_is_opened_again_before_anything_is_redriven_into_it(house: House) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)
    await house.bury()
    mark = QueueMark(ended_at=3000.0)
    await put(house.bus["gateway"], Bucket.QUEUE_MARKS, queuenames.queue_mark("my.texts", "source"), mark)
    await house.until(lambda found: found is not None and found.source.is_ended)
    refused = await house.ask("my.texts", QueueAsk(act="redrive"))
    assert (refused.items, "has ended" in refused.error) == (0, True)
    assert await house.ask("my.texts", QueueAsk(act="reopen")) == QueueDone(items=1)
    await house.until(lambda found: found is not None and not found.source.is_ended)
    assert await house.ask("my.texts", QueueAsk(act="redrive")) == QueueDone(items=1)


async def test_a_full_side_says_how_far_a_redrive_came(house: House) -> None:
    await house.decide(replace(TEXTS, source=QueueSide(max_length=2)))
    await house.until(is_running)
    for number in range(3):
        await house.bury(number)
    done = await house.ask("my.texts", QueueAsk(act="redrive"))
    assert (done.items, bool(done.error)) == (2, True)
    await house.until(lambda found: found is not None and found.source.rear == 1 and found.source.length == 2)


async def test_asks_that_cannot_be_done_are_answered_why(house: House) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)  # the task listens
    assert (await house.ask("nowhere", QueueAsk(act="purge"))).error == "There is no such queue."
    await house.put_item()
    late = QueueAsk(act="purge", created_at=TEXTS.created_at - 1)  # for an earlier queue of that name
    assert (await house.ask("my.texts", late)).error == "There is no such queue."
    assert await house.ask("my.texts", replace(late, created_at=TEXTS.created_at)) == QueueDone(items=1)
    _, body = await house.bus["console"].request(queuenames.ask_queue("nowhere"), b'{"act":"explode"}')
    assert decode(QueueDone, body).error.startswith("Not understood")


async def test_puts_are_refused_once_an_account_s_queues_hold_its_bytes_and_taken_when_some_are_gone(
    house: House,
) -> None:
    for name in ("my.texts", "others"):
        await house.decide(replace(TEXTS, name=name, account_id="acme" if name == "my.texts" else "other"))
        await house.until(is_running, names.token(name))
    parts = QueueParts(house.bus["gateway"], house.queues["gateway"])
    await parts.start()
    service = Queues(parts)
    acme = ApiKey(id="k", account_id="acme", hmac="", scopes=(PUT, MANAGE), share=Share(queue_bytes=10_000))
    other = replace(acme, account_id="other")

    async def puts(key: ApiKey, queue: str, side: Side = "source") -> None:
        await service.put(key, queue, side, b"x" * 1000, {})

    async def refusal(side: Side = "source") -> tuple[int, LimitExceeded]:
        """How many puts were taken before one was refused."""
        async with asyncio.timeout(60):
            for taken in itertools.count():
                try:
                    await puts(acme, "my.texts", side)
                except LimitExceeded as error:
                    return taken, error
        raise AssertionError

    taken, error = await refusal()
    assert 5 <= taken <= 20, "10 have room, and those are not counted twice that a state tells of while they are put"
    assert (error.facts["bound"], error.facts["limit_bytes"]) == ("queue_bytes", 10_000)
    assert "delete items" in error.public_message
    assert REGISTRY.get_sample_value("signalbox_queue_refused_total", {"reason": "account_bytes"})
    await puts(other, "others")
    await puts(replace(acme, share=Share()), "my.texts")
    await puts(acme, "my.texts", "sink")  # what was made of an item goes on
    state = await house.until(lambda found: found is not None and found.sink.length == 1)
    assert state.source.size + state.sink.size > 10_000
    await service.truncate(acme, "my.texts", "source", 1 << 40)
    async with asyncio.timeout(60):
        while True:
            with contextlib.suppress(LimitExceeded):
                await puts(acme, "my.texts")
                break
            await asyncio.sleep(0.01)
    assert "The sinks of your account's queues hold" in (await refusal("sink"))[1].public_message
    await parts.close()


async def test_streams_that_nats_has_lost_are_made_again_when_it_is_back(house: House) -> None:
    await house.decide(TEXTS)
    await house.until(is_running)
    await house.queues["admin"].request_json(f"$JS.API.STREAM.DELETE.{SOURCE}")
    await house.queues["admin"].request_json(f"$JS.API.STREAM.DELETE.{queuenames.REAR}")
    await house.server.restart()
    async with asyncio.timeout(60):
        while True:
            try:
                await house.put_item()
                await house.bury()
            except NotFound:
                await asyncio.sleep(0.01)
            except Exception as error:  # noqa: BLE001  away, or without the stream
                assert type(error).__name__ in {"Unavailable", "Ambiguous"}, error  # noqa: PT017
                await asyncio.sleep(0.01)
            else:
                break


async def test_a_gateway_does_all_that_it_does_with_queues_by_its_own_users(
    house: House, capfd: pytest.CaptureFixture[str]
) -> None:
    queue = replace(TEXTS, max_delivery=1)
    await house.decide(queue)
    await house.until(is_running)
    parts = QueueParts(house.bus["gateway"], house.queues["gateway"])
    await parts.start()
    watches = Watches(house.queues["gateway"], parts.tables, Presence(house.queues["gateway"]))
    await watches.start()
    for is_high in (False, True, True):
        await parts.store.put(queue, "source", b"x", {"a": "b"}, is_high=is_high, request_id="r1")
    assert await parts.store.count(queue, "source", {"a": "b"}) == 3
    assert (await parts.store.search(queue, "source", "eas", 1)).wait_count == 2
    assert (await parts.store.attributes(queue, "source"))["stream.length"] == "3"
    for asked in (Get(is_deleting=False), Get(index=-1, is_deleting=False), Get(tags={"a": "b"}), Get(timeout_s=0.1)):
        assert await parts.reader.get(queue, "source", asked)
    watch = await watches.watch(queue, "source", Consumer("mine", "u1"), Watch(window=2))
    await parts.store.put(queue, "source", b"x", {}, request_id="r2")
    first, second = await watch.next(), await watch.next()
    assert first is not None
    assert second is not None
    await watches.commit(queue, "source", "mine", [first.index])
    await watches.negative(queue, "source", Consumer("mine", "u1"), [second.index], "Broken", "it is")
    await house.until(lambda found: found is not None and found.source.rear == 1 and bool(found.watches))
    await watch.close()
    await watches.forget(queue, "source", "mine")
    assert [group.name for group in await group_states(house.queues["gateway"], "my.texts", "source")] == ["eas"]
    (dead,) = await parts.reader.get(queue, "source", Get(is_rear=True, is_deleting=False))
    await parts.store.delete(queue, "source", [dead.index], is_rear=True)
    await parts.store.truncate(queue, "source", 1 << 40)
    await parts.store.end(queue, "source", is_forced=True)
    await house.until(lambda found: found is not None and found.source.is_ended)
    await watches.close()
    await parts.close()
    assert "denied" not in capfd.readouterr().err
