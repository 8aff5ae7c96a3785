"""Services behind queues: what follows from an item alone, and when one is given back, dead, or held up."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.outbound.forwarding import forwarder, itemjobs
from gateway_plugin.outbound.forwarding.forwarder import Forwarder, Parts, uid_of
from gateway_plugin.outbound.forwarding.itemjobs import ItemResult, job_id, refused
from gateway_plugin.outbound.forwarding.runner import Forwarding
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.queues.items import Consumer, Item, consumer_of
from signalbox.program import log
from signalbox.program.errors import (
    Ambiguous,
    InvalidRequest,
    ModelError,
    QueueFull,
    RunnerCrashed,
    SignalboxError,
    Unauthorized,
)
from signalbox.wire import jobids, names, queuenames
from signalbox.wire.names import MODEL_NAME
from signalbox.wire.queues import GroupState, Queue, QueueState, SideState, backlog
from signalbox.wire.tensors import Tensor

ITEM = Item(7, {"kind": "a", "requestId": "r"}, b"{}", "r", time=1_000_000.0)


def again(item: Item, deliveries: int) -> Item:
    return Item(item.index, item.tags, item.data, item.request_id, item.is_high, item.time, deliveries)


def test_a_job_s_id_follows_from_the_item_and_is_no_other_s() -> None:
    assert job_id("s 1", ITEM) == job_id("s 1", again(ITEM, 4))
    other = Item(8, {}, b"{}", "r", time=1_000_000.0)
    ids = {job_id("s 1", ITEM), job_id("s 2", ITEM), job_id("s 1", other), job_id("s 1", ITEM, 1)}
    assert len(ids) == 4
    assert all(jobids.JOB_ID.match(one) for one in ids)


@given(st.from_regex(MODEL_NAME, fullmatch=True))
def test_each_service_is_a_consumer_of_its_own(model: str) -> None:
    assert consumer_of("eas", uid_of(model)).uid == uid_of(model)
    assert uid_of(model) != uid_of(f"{model}x"[-100:] if len(model) < 100 else f"x{model[1:]}y"[:100])


@given(st.text())
def test_the_smallest_sink_takes_every_error(message: str) -> None:
    told = refused(ModelError(message or "x"))
    assert told.error == "model_error"
    assert told.data is not None
    assert len(told.data) <= Queue(name="q", account_id="a", memory_mb=1).room("sink").item_bytes


@pytest.mark.parametrize(
    ("outputs", "is_empty"),
    [
        ([], True),
        ([Tensor("y", "float32", (0,), b"")], True),
        ([Tensor("y", "string", (2,), bytes(8))], True),
        ([Tensor("y", "string", (1,), b"\1\0\0\0\0")], False),
        ([Tensor("y", "float32", (1,), bytes(4))], False),
        ([Tensor("y", "float32", (0,), b""), Tensor("z", "bool", (1,), b"\0")], False),
    ],
)
def test_a_result_is_empty_without_elements_or_with_empty_strings_alone(outputs: list[Tensor], is_empty: bool) -> None:
    assert itemjobs._is_empty(outputs) is is_empty


def test_what_waits_for_a_model_is_what_its_queues_have_not_given_out() -> None:
    groups = (GroupState(name="eas", left=3, pending=2), GroupState(name="other", left=9))
    state = QueueState(source=SideState(groups=groups), sink=SideState(groups=groups))
    shared = Queue(name="q", account_id="a", services=("m", "n"))
    own = Queue(name="r", account_id="a", services=("m",))
    nobody = Queue(name="s", account_id="a")
    assert backlog([(shared, state), (own, state), (nobody, state), (own, None)]) == {"m": 6, "n": 3}


# ------------------------------------------------------------------------------ a forwarder


class World:
    """All that a forwarder has to do with, as lists of what it did. on_put, on_result: raise what shall be raised."""

    def __init__(self, **fields: Any) -> None:
        self.queue: Queue | None = Queue(name="q", account_id="a", services=("m",), **fields)
        self.given: asyncio.Queue[Item | None] = asyncio.Queue()
        self.did: list[tuple[Any, ...]] = []
        self.windows: list[int] = []
        self.stored: set[str] = set()
        self.on_put: Callable[[], None] = lambda: None
        self.on_result: Callable[[], ItemResult] = lambda: ItemResult(b"done")
        self.most = 4
        self.on_room: Callable[[], None] = lambda: None

    # the jobs
    def room(self, _queue: Queue, _model: str, window: int) -> int:
        self.on_room()
        return min(self.most, window)

    async def submit(self, _queue: Queue, model: str, item: Item, _stream: str) -> str:
        self.did.append(("submit", item.index, model))
        return f"job-{item.index}"

    async def end_of(self, name: str, _max_idle_s: float) -> str:
        return name

    async def result(self, _end: str, _item: Item, _most: int) -> ItemResult:
        return self.on_result()

    async def cancel(self, job_names: list[str]) -> None:
        self.did.append(("cancel", *job_names))

    # the sink
    async def require(self, _queue: Queue, _side: str) -> None:
        """It is there whole."""

    async def put(self, _queue: Queue, _side: str, data: bytes, tags: dict[str, str], **said: Any) -> int:
        self.on_put()
        self.did.append(("put", data, tags, said["msg_id"]))
        self.stored.add(said["msg_id"])
        return 1

    async def leader_get(self, _stream: str, subject: str) -> Any:
        """The sink's item, once it is stored."""
        for own in self.stored:
            if subject == queuenames.queue_item("q", "sink", "lo", "r"):
                return msgspec.defstruct("Stored", ["headers"])({names.Header.REQUEST: own})
        return None

    # the source
    async def open(self, _queue: Queue, _consumer: Consumer, window: int) -> "World":
        self.windows.append(window)
        return self

    async def next(self) -> Item | None:
        return await self.given.get()

    def resize(self, window: int) -> None:
        self.windows.append(window)

    async def close(self, *, code: str = "", reason: str = "") -> None:
        self.did.append(("close", code))

    async def commit(self, _queue: Queue, index: int) -> None:
        self.did.append(("commit", index))

    async def give_back(self, _queue: Queue, _consumer: Consumer, index: int, code: str, _reason: str) -> None:
        self.did.append(("give_back", index, code))

    async def bury(self, _queue: Queue, item: Item, code: str, _reason: str) -> None:
        self.did.append(("bury", item.index, code))

    async def forward(self, *items: Item) -> list[tuple[Any, ...]]:
        """What is done with some items, after which the stream ends."""
        for item in items:
            self.given.put_nowait(item)
        self.given.put_nowait(None)
        world: Any = self
        parts = Parts(world, world, world, world, world, lambda _: self.queue, lambda *_: 2, 64)
        assert self.queue is not None
        async with asyncio.timeout(10):
            await Forwarder(parts, self.queue, "m", "s 1").run()
        return self.did


@pytest.fixture(autouse=True)
def in_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forwarder, "_FIRST_PAUSE_S", 0.0)
    monkeypatch.setattr(forwarder, "_LONGEST_PAUSE_S", 0.0)


def raising(*errors: SignalboxError, then: Any = None) -> Callable[[], Any]:
    """Raises each of these once."""
    left = list(errors)

    def call() -> Any:
        if left:
            raise left.pop(0)
        return then

    return call


async def test_an_item_is_committed_after_its_result_is_stored() -> None:
    did = await World().forward(ITEM)
    own = job_id("s 1", ITEM)
    tags = {"kind": "a", "requestId": "r"}
    assert did == [("submit", 7, "m"), ("put", b"done", tags, own), ("commit", 7), ("close", "Shutdown")]


async def test_services_of_one_account_and_model_share_what_may_be_in_flight() -> None:
    world = World()
    world.most = 7
    await world.forward(ITEM)
    assert set(world.windows) == {3}


async def test_a_put_whose_outcome_is_unknown_is_looked_for_before_it_is_repeated() -> None:
    world = World()
    own = job_id("s 1", ITEM)

    def lost() -> None:
        world.stored.add(own)
        raise Ambiguous

    world.on_put = lost
    assert await world.forward(ITEM) == [("submit", 7, "m"), ("commit", 7), ("close", "Shutdown")]


async def test_a_full_sink_is_waited_for_with_the_result_in_hand() -> None:
    world = World()
    world.on_put = raising(QueueFull(), QueueFull())
    did = await world.forward(ITEM)
    assert [one[0] for one in did] == ["submit", "put", "commit", "close"]


async def test_no_result_goes_to_another_queue_that_has_the_name_by_then(monkeypatch: pytest.MonkeyPatch) -> None:
    world, into = World(created_at=1.0), []
    put = world.put

    def remade() -> ItemResult:
        world.queue = Queue(name="q", account_id="another", services=("m",), created_at=2.0)
        return ItemResult(b"done")

    async def noted(queue: Queue, *given: Any, **said: Any) -> int:
        into.append(queue.account_id)
        return await put(queue, *given, **said)

    world.on_result = remade
    monkeypatch.setattr(world, "put", noted)
    await world.forward(ITEM)
    assert into == ["a"]


async def test_a_queue_made_anew_has_a_forwarder_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    world: Any = World()
    made: list[Queue] = []

    async def runs(forwarder: Any) -> None:
        made.append(forwarder._first)
        await asyncio.Event().wait()

    monkeypatch.setattr(Forwarder, "run", runs)
    forwarding = Forwarding(world, world, OutboundSettings())
    monkeypatch.setattr(forwarding, "_stream_of", lambda _name: asyncio.sleep(0, "s 1"))
    parts = Parts(world, world, world, world, world, lambda _: world.queue, lambda *_: 2, 64)
    for created_at in (1.0, 1.0, 2.0):
        world.queue = Queue(name="q", account_id="a", services=("m",), created_at=created_at)
        forwarding._known.add("q")
        tables: Any = SimpleNamespace(find=lambda _name: world.queue)
        await forwarding._match(parts, forwarding._wanted(tables))
        for _ in range(5):
            await asyncio.sleep(0)
    await forwarding._match(None, {})
    assert [queue.created_at for queue in made] == [1.0, 2.0]


async def test_a_failure_that_may_pass_gives_back_and_the_last_one_buries() -> None:
    failed = RunnerCrashed("gone", job_id="job-7")
    world = World(max_delivery=3)
    world.on_result = raising(failed, failed)
    did = await world.forward(again(ITEM, 2), again(ITEM, 3))
    assert ("give_back", 7, "RunnerCrashed") in did
    assert did.index(("bury", 7, "RunnerCrashed")) < did.index(("commit", 7))
    dropping = World(max_delivery=1, dead_message_policy="Drop")
    dropping.on_result = raising(failed)
    assert await dropping.forward(ITEM) == [("submit", 7, "m"), ("commit", 7), ("close", "Shutdown")]
    unlimited = World(max_delivery=0)
    unlimited.on_result = raising(failed)
    assert ("give_back", 7, "RunnerCrashed") in await unlimited.forward(again(ITEM, 99))


async def test_a_fault_of_ours_is_a_failure_of_one_item_and_ends_no_service() -> None:
    world = World()

    def broken() -> ItemResult:
        world.on_result = lambda: ItemResult(b"done")
        raise AssertionError

    world.on_result = broken
    did = await world.forward(ITEM, Item(8, {}, b"{}", "q", time=1.0))
    assert ("give_back", 7, "Internal") in did
    assert ("commit", 8) in did


async def test_without_a_key_no_item_is_taken() -> None:
    world = World()
    world.on_room = raising(Unauthorized(), Unauthorized())
    did = await world.forward(ITEM)
    assert did[0] == ("submit", 7, "m")
    assert did[-1] == ("close", "Shutdown")


async def test_lines_about_an_item_name_its_job_and_the_trace_of_its_put(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: dict[str, dict[str, Any]] = {}
    for level in ("info", "warning", "exception"):
        monkeypatch.setattr(log, level, lambda event, **fields: lines.setdefault(event, fields))
    traced = msgspec.structs.replace(ITEM, trace="00-1-2-01")
    wanted = {"queue": "q", "model": "m", "job": "job-7", "trace": "00-1-2-01"}

    broken = World(max_delivery=1)
    broken.on_result = raising(QueueFull(), then=ItemResult(b"done"))
    broken.on_put = raising(InvalidRequest("too large"))
    await broken.forward(traced)
    failing = World(max_delivery=1)

    def fault() -> ItemResult:
        raise AssertionError

    failing.on_result = fault
    await failing.forward(traced)
    told = {event: fields for event, fields in lines.items() if "forwarding" in event}
    assert set(told) == {f"forwarding.{what}" for what in ("waits", "result_refused", "item_failed", "item_dead")}
    for event, fields in told.items():
        assert {name: fields.get(name) for name in wanted} == wanted, event


async def test_a_line_about_an_item_whose_job_is_not_there_yet_has_its_trace(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[dict[str, Any]] = []
    monkeypatch.setattr(log, "info", lambda _event, **fields: lines.append(fields))
    world = World()
    submit, refuse = world.submit, raising(QueueFull())

    async def waits(*given: Any) -> str:
        refuse()
        return await submit(*given)

    monkeypatch.setattr(world, "submit", waits)
    await world.forward(msgspec.structs.replace(ITEM, trace="00-1-2-01"))
    assert [(one["job"], one["trace"]) for one in lines] == [("", "00-1-2-01")]
