"""Services behind queues: items become jobs, and their results items of the sink; over a real NATS."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

import signalbox
from gateway_plugin.outbound.forwarding import forwarder
from gateway_plugin.outbound.forwarding.itemjobs import ItemJobs
from gateway_plugin.outbound.forwarding.runner import Forwarding, Sources
from gateway_plugin.outbound.forwarding.sink import Sink
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.queues import rear
from gateway_plugin.queues.items import Item, item_of
from gateway_plugin.queues.parts import QueueParts
from gateway_plugin.queues.rear import rear_count
from signalbox.bus import queues, table, topology
from signalbox.bus.client import Bus
from signalbox.jobs.records import Records
from signalbox.program import metrics
from signalbox.program.settings import Wire
from signalbox.wire import jobids, names, queuenames
from signalbox.wire.messages import ErrorInfo
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import Bucket, Header
from signalbox.wire.outboundnames import OUTBOUND
from signalbox.wire.queuenames import Side
from signalbox.wire.queues import DEFAULT_GROUP, Queue, QueueSide, rear_config
from signalbox.wire.roles import inbox
from signalbox.wire.tensors import Tensor
from tests.integration.gateway_plugin.test_job_results import Edge, edge
from tests.integration.gateway_plugin.test_queue_predictions import arrays, floats
from tests.rigs.gateway import Key, ScriptedWorker, half_plus_two, key, model
from tests.rigs.logged import LoggedServer
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes

ROOT = Path(signalbox.__file__).parents[1]
NAME = "pictures.in"
_LOOK_S = 0.05


class At:
    """A queue, its items and its results. bus: to the account of queues, main: to that of everything else."""

    def __init__(self, edge: Edge, bus: Bus, main: Bus, parts: QueueParts, queue: Queue) -> None:
        self.edge = edge
        self.bus = bus
        self.main = main
        self.parts = parts
        self.queue = queue

    async def change(self, **fields: Any) -> None:
        self.queue = replace(self.queue, **fields)
        await queues.declare(self.bus, self.queue)
        await table.put(self.main, Bucket.QUEUES, names.token(NAME), self.queue)

    async def put(self, *bodies: object, **tags: str) -> list[int]:
        found: list[int] = []
        for body in bodies:
            data = body if isinstance(body, bytes) else json.dumps({"instances": [body]}).encode()
            request_id = f"request-{len(found)}"
            found.append(await self.parts.store.put(self.queue, "source", data, tags, request_id=request_id))
        return found

    async def items(self, side: Side) -> list[Item]:
        """All items of a side, by index."""
        found: list[Item] = []
        index, stream = 1, queuenames.queue_stream(NAME, side)
        while (stored := await self.bus.leader_next(stream, index)) is not None:
            found.append(item_of(stored))
            index = stored.seq + 1
        return found

    async def until(self, side: Side, condition: Callable[[list[Item]], object]) -> list[Item]:
        """The items of a side once they are so. Of what is removed NATS tells nobody: it is looked at again."""
        moved = asyncio.Event()
        subscription = await self.bus.subscribe(queuenames.event_of_queue(NAME, side), lambda _: moved.set())
        try:
            async with asyncio.timeout(60):
                while not condition(found := await self.items(side)):
                    moved.clear()
                    with suppress(TimeoutError):
                        async with asyncio.timeout(_LOOK_S):
                            await moved.wait()
                return found
        finally:
            await subscription.close()

    async def results(self, number: int) -> list[Item]:
        """What is in the sink once all of the source is committed; so many there are."""
        await self.until("source", lambda left: not left)
        found = await self.items("sink")
        assert len(found) == number
        return found


@pytest.fixture
def mine() -> Key:
    return key(account_id="mine")


@pytest.fixture
async def at(nats: NatsServer, tmp_path: Path, mine: Key) -> AsyncIterator[At]:
    async with edge(nats, tmp_path, mine) as made, queue(made, made.made.bus) as found:
        yield found


@asynccontextmanager
async def queue(made: Edge, bus: Bus) -> AsyncIterator[At]:
    """A queue of one service. bus: to the account of queues."""
    await made.made.publish(model(batching=Batching(rows_independent=True)))
    await bus.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 1 << 24))
    parts = QueueParts(made.made.bus, bus)
    found = At(made, bus, made.made.bus, parts, Queue(name=NAME, account_id="mine", services=("half",)))
    await found.change()
    await parts.start()
    try:
        yield found
    finally:
        await parts.close()
        await queues.remove(bus, NAME)
        await table.remove(made.made.bus, Bucket.QUEUES, names.token(NAME))
        await bus.request_json(f"$JS.API.STREAM.DELETE.{queuenames.REAR}")


@asynccontextmanager
async def serving(nats: NatsServer, **fields: Any) -> AsyncIterator[None]:
    """The task that has services take from their queues."""
    settings = OutboundSettings(nats_url=nats.url, **fields)
    bus = await Bus.connect(settings, role=OUTBOUND)
    queue_bus = await queues.connect(settings, role=OUTBOUND)
    task = asyncio.create_task(Forwarding(bus, queue_bus, settings).work())
    try:
        yield
    finally:
        task.cancel()
        done, _ = await asyncio.wait([task])
        await bus.close()
        await queue_bus.close()
        assert all(one.cancelled() for one in done), done


def answers(items: Sequence[Item]) -> list[Any]:
    return [json.loads(item.data)["predictions"] for item in items]


async def test_an_item_s_result_comes_in_its_form_with_its_tags_and_the_id_of_its_put(at: At, nats: NatsServer) -> None:
    await at.put(1.0, 5.0, arrays(4.0), kind="a", owner="b")
    source = await at.items("source")
    async with ScriptedWorker(at.main, "half"), serving(nats):
        found = {item.tags["requestId"]: item for item in await at.results(3)}
    one, two, packed = (found[item.request_id] for item in source)
    assert answers([one, two]) == [[2.5], [4.5]]
    assert floats(packed.data) == {"y": [4.0]}
    assert all(item.tags == {"kind": "a", "owner": "b", "requestId": name} for name, item in found.items())


async def test_what_is_no_prediction_and_what_the_model_refuses_is_told_in_the_sink(at: At, nats: NatsServer) -> None:
    def refusing(inputs: Sequence[Tensor]) -> Sequence[Tensor] | ErrorInfo:
        return half_plus_two(inputs) if inputs[0].shape == (1,) else ErrorInfo(code="model_error", message="too many")

    await at.put(b"no json", b'{"instances": [1.0, 2.0]}', b'{"instances": ["text"]}', b"\x0a\xff", 1.0)
    async with ScriptedWorker(at.main, "half", refusing), serving(nats):
        found = await at.results(5)
    told = sorted(item.tags.get("_error_", "") for item in found)
    assert told == ["", "invalid_input", "invalid_json", "invalid_request", "model_error"]
    (of_model,) = [item for item in found if item.tags.get("_error_") == "model_error"]
    assert json.loads(of_model.data) == {"error": "too many"}


async def test_an_empty_result_skips_the_sink(at: At, nats: NatsServer) -> None:
    def elsewhere(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        (x,) = inputs
        return [Tensor("y", "float32", (0,), b"")] if x.data == bytes(4) else half_plus_two(inputs)

    await at.put(0.0, 1.0, 0.0)
    async with ScriptedWorker(at.main, "half", elsewhere), serving(nats):
        assert answers(await at.results(1)) == [[2.5]]


async def test_each_item_is_done_once_though_the_program_is_ended_and_killed_again_and_again(
    at: At, nats: NatsServer
) -> None:
    seen: list[float] = []

    def compute(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        seen.append(1.0)
        return half_plus_two(inputs)

    numbers = [float(number) for number in range(60)]
    await at.put(*numbers)
    async with ScriptedWorker(at.main, "half", compute):
        for done in (3, 12, 25):
            async with serving(nats, service_window=8):
                await at.until("sink", lambda found, done=done: len(found) >= done)  # type: ignore[misc]
        async with serving(nats):
            found = await at.results(60)
    assert sorted(value for (value,) in answers(found)) == sorted(number / 2 + 2 for number in numbers)
    assert len({item.tags["requestId"] for item in found}) == 60
    assert len(seen) == 60, "no job ran twice"


@pytest.mark.parametrize(("owner", "step"), [(ItemJobs, "end_of"), (Sink, "put"), (Sources, "commit")])
async def test_a_stop_before_any_step_makes_no_second_run_and_no_second_result(
    at: At, nats: NatsServer, monkeypatch: pytest.MonkeyPatch, owner: type, step: str
) -> None:
    reached, seen = asyncio.Event(), 0

    def compute(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        nonlocal seen
        seen += 1
        return half_plus_two(inputs)

    async def stand_still(*_: object, **__: object) -> None:
        reached.set()
        await asyncio.Event().wait()

    def done_before() -> float:
        labels = {"model": "half", "outcome": "again"}
        return metrics.REGISTRY.get_sample_value("signalbox_queue_items_forwarded_total", labels) or 0.0

    await at.put(1.0)
    before = done_before()
    async with ScriptedWorker(at.main, "half", compute) as worker:
        with monkeypatch.context() as patch:
            patch.setattr(owner, step, stand_still)
            async with serving(nats), asyncio.timeout(60):
                await reached.wait()
                await worker.finished.wait()
        async with serving(nats):
            assert answers(await at.results(1)) == [[2.5]]
    assert seen == 1
    assert done_before() - before == (step == "commit"), "the sink was asked, and had it"


@pytest.mark.slow
async def test_each_item_is_done_once_though_the_process_is_killed(at: At, nats: NatsServer, tmp_path: Path) -> None:
    await at.put(*map(float, range(500)))
    env = {name: value for name, value in os.environ.items() if not name.startswith("SIGNALBOX_")}
    env |= {"PYTHONPATH": str(ROOT), "SIGNALBOX_NATS_URL": nats.url, "SIGNALBOX_OUTBOUND_DUTY_S": "1"}
    argv = [sys.executable, "-m", "gateway_plugin.outbound"]
    async with ScriptedWorker(at.main, "half"):
        for done in (1, 200):
            with LoggedServer(argv, "outbound.duty_taken", tmp_path, env):
                await at.until("sink", lambda found, done=done: len(found) >= done)  # type: ignore[misc]
        with LoggedServer(argv, "outbound.duty_taken", tmp_path, env):
            found = await at.results(500)
    assert sorted(value for (value,) in answers(found)) == [number / 2 + 2 for number in range(500)]


async def test_a_full_sink_stops_the_queue_s_service_and_no_other_caller(
    at: At, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(forwarder, "_LONGEST_PAUSE_S", 0.02)
    await at.change(sink=QueueSide(max_length=2, max_payload_kb=0))
    await at.put(*map(float, range(9)))
    async with ScriptedWorker(at.main, "half"), serving(nats, service_window=2):
        await at.until("sink", lambda found: len(found) == 2)
        got = await at.edge.client.post("/v1/models/half:predict", json={"instances": [1.0]})
        assert got.json() == {"predictions": [2.5]}
        assert len(await at.items("source")) >= 5, "no more than the window was taken"
        taken: list[Item] = []
        while len(taken) < 9:
            for item in await at.until("sink", lambda found: found):
                taken.append(item)
                await at.parts.store.delete(at.queue, "sink", [item.index])
    assert sorted(value for (value,) in answers(taken)) == [number / 2 + 2 for number in range(9)]
    assert await at.items("source") == []


async def test_a_result_waits_until_its_sink_has_a_group_to_keep_it_for(
    at: At, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(forwarder, "_LONGEST_PAUSE_S", 0.02)
    stopped = {"reason": "sink_unavailable"}
    for rank in queuenames.RANKS:  # as while the outbound program makes the streams, or makes them again
        consumer = queuenames.queue_consumer(DEFAULT_GROUP, rank)
        await at.bus.request_json(f"$JS.API.CONSUMER.DELETE.{queuenames.queue_stream(NAME, 'sink')}.{consumer}")
    await at.put(1.0)
    async with ScriptedWorker(at.main, "half"), serving(nats):

        async def is_stopped() -> bool:
            return bool(metrics.REGISTRY.get_sample_value("signalbox_queue_services_stopped", stopped))

        await becomes(is_stopped)
        await queues.declare(at.bus, at.queue)
        assert answers(await at.results(1)) == [[2.5]]


async def test_a_job_that_fails_for_now_is_tried_again_and_dead_in_the_end(
    at: At, nats: NatsServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_FIRST_PAUSE_S", 0.0)
    tries: dict[bytes, int] = {}

    def crashing(inputs: Sequence[Tensor]) -> Sequence[Tensor] | ErrorInfo:
        (x,) = inputs
        tries[x.data] = tries.get(x.data, 0) + 1
        if x.data == bytes(4) or tries[x.data] == 1:
            return ErrorInfo(code="runner_crashed", message="gone")
        return half_plus_two(inputs)

    await at.change(max_delivery=3)
    await at.put(0.0, 1.0)
    async with ScriptedWorker(at.main, "half", crashing), serving(nats):
        assert answers(await at.results(1)) == [[2.5]]
    assert sorted(tries.values()) == [2, 3]
    assert await rear_count(at.bus, NAME, "source") == 1
    stored = await at.bus.leader_next(queuenames.REAR, 1)
    assert stored is not None
    tags = item_of(stored).tags
    assert (tags["_code_"], tags["_reason_"], tags["_deliveries_"]) == ("RunnerCrashed", "gone", "3")


async def test_what_waits_for_a_worker_is_never_dead(at: At, nats: NatsServer) -> None:
    await at.change(max_delivery=2, max_idle_s=0.2)
    await at.put(1.0, 2.0)
    for _ in range(4):
        async with serving(nats):
            await queued(at, 2)
    async with ScriptedWorker(at.main, "half"), serving(nats):
        assert sorted(answers(await at.results(2))) == [[2.5], [3.0]]


async def queued(at: At, number: int) -> None:
    """Return when so many jobs are queued, and their items given out to the task that is there now."""
    moved = asyncio.Event()
    subscription = await at.main.subscribe(f"{inbox(OUTBOUND)}.>", lambda _: moved.set())
    try:
        async with asyncio.timeout(60):
            while await at.edge.made.queued() < number or await given_out(at) < number:
                moved.clear()
                await moved.wait()
    finally:
        await subscription.close()


async def given_out(at: At) -> int:
    stream, consumer = queuenames.queue_stream(NAME, "source"), queuenames.queue_consumer("eas", "lo")
    return int((await at.bus.request_json(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}"))["num_ack_pending"])


async def test_several_services_share_a_queue_and_each_item_is_done_by_one(at: At, nats: NatsServer) -> None:
    done: dict[str, int] = {"half": 0, "other": 0}

    def of(name: str) -> Callable[[Sequence[Tensor]], Sequence[Tensor]]:
        def compute(inputs: Sequence[Tensor]) -> Sequence[Tensor]:
            done[name] += 1
            return half_plus_two(inputs)

        return compute

    await at.edge.made.publish(model("other"))
    await at.change(services=("half", "other"))
    await at.put(*map(float, range(40)))
    first, second = ScriptedWorker(at.main, "half", of("half")), ScriptedWorker(at.main, "other", of("other"))
    async with first, second, serving(nats, service_window=2):
        await at.results(40)
    assert sum(done.values()) == 40
    assert min(done.values()) > 0


async def test_a_queue_whose_account_has_no_key_waits_and_goes_on_with_one(
    at: At, nats: NatsServer, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_LONGEST_PAUSE_S", 0.02)
    monkeypatch.setattr(forwarder, "_FIRST_PAUSE_S", 0.01)
    await at.change(account_id="poor")
    await at.put(1.0)
    poor = key(account_id="poor", scopes=("queues:put",))
    await at.edge.made.publish(poor)
    async with ScriptedWorker(at.main, "half"), serving(nats):
        got = await at.edge.client.post("/v1/models/half:predict", json={"instances": [1.0]})
        assert got.status_code == 200
        assert (await given_out(at), len(await at.items("source"))) == (0, 1)
        await at.edge.made.publish(key(account_id="poor"))
        assert answers(await at.results(1)) == [[2.5]]


async def test_a_result_larger_than_the_sink_takes_says_where_it_is(at: At, nats: NatsServer) -> None:
    await at.change(sink=QueueSide(max_payload_kb=1), source=QueueSide(max_payload_kb=64))
    await at.put(json.dumps({"instances": [1.5] * 1000}).encode())
    async with ScriptedWorker(at.main, "half"), serving(nats):
        (told,) = await at.results(1)
    assert told.tags["_error_"] == "result_too_large"
    assert "/v1/jobs/" in json.loads(told.data)["error"]


async def test_priority_is_kept_and_a_sink_item_names_its_item(at: At, nats: NatsServer) -> None:
    data = b'{"instances": [1.0]}'
    await at.parts.store.put(at.queue, "source", data, {"requestId": "theirs"}, is_high=True, request_id="ours")
    async with ScriptedWorker(at.main, "half"), serving(nats):
        (found,) = await at.results(1)
    assert (found.is_high, found.tags) == (True, {"requestId": "theirs"})
    stored = await at.bus.leader_get(
        queuenames.queue_stream(NAME, "sink"), queuenames.queue_item(NAME, "sink", "hi", "theirs")
    )
    assert stored is not None
    assert jobids.JOB_ID.match(stored.headers[Header.REQUEST])


async def test_an_item_s_job_has_the_trace_of_its_put_also_once_it_was_dead(at: At, nats: NatsServer) -> None:
    trace, data = f"00-{1:032x}-{1:016x}-01", b'{"instances": [1.0]}'
    await at.parts.store.put(at.queue, "source", data, {}, request_id="r", trace=trace)
    (item,) = await at.items("source")
    await rear.bury(at.bus, NAME, "source", item, why="tried")
    await at.parts.store.delete(at.queue, "source", [item.index])
    assert await rear.redrive(at.bus, NAME, "source", 0) == 1
    async with ScriptedWorker(at.main, "half"), serving(nats):
        await at.results(1)
    stored = await at.bus.leader_next(queuenames.queue_stream(NAME, "sink"), 1)
    assert stored is not None
    job = await Records(at.main).find(stored.headers[Header.REQUEST])
    assert job is not None
    assert job.record.trace == trace


async def test_the_program_s_own_users_may_do_all_that_a_service_needs(
    tmp_path: Path, mine: Key, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forwarder, "_FIRST_PAUSE_S", 0.0)
    users = {name: name[::-1] for name in ("gateway", "admin", "outbound", "admin-queues", "outbound-queues")}

    def user(name: str, prefix: str = "") -> dict[str, str]:
        return {f"{prefix}nats_user": name, f"{prefix}nats_password": users[name]}

    def compute(inputs: Sequence[Tensor]) -> Sequence[Tensor] | ErrorInfo:
        failed = ErrorInfo(code="runner_crashed", message="gone")
        return failed if inputs[0].data == bytes(4) else half_plus_two(inputs)

    async with NatsServer(tmp_path / "nats", users=users) as server:
        admin = Wire(
            nats_url=server.url,
            nats_user="admin",
            nats_password=users["admin"],
            queues_nats_user="admin-queues",
            queues_nats_password=users["admin-queues"],
        )
        bus, queue_bus = await Bus.connect(admin, role="admin"), await queues.connect(admin, role="admin")
        await topology.apply(bus)
        await bus.close()
        async with (
            edge(server, tmp_path, mine, admin_wire=admin, **user("gateway")) as made,
            queue(made, queue_bus) as at,
        ):
            await at.change(max_delivery=2, sink=QueueSide(max_payload_kb=64), source=QueueSide(max_payload_kb=2048))
            large = json.dumps({"instances": [1.0] * 100_000}).encode()
            await at.put(0.0, 1.0, large, b"{")
            own = {**user("outbound"), **user("outbound-queues", "queues_")}
            async with ScriptedWorker(at.main, "half", compute), serving(server, **own):
                found = await at.results(3)
            told = sorted(item.tags.get("_error_", "") for item in found)
            assert told == ["", "invalid_json", "result_too_large"]
            assert await rear_count(at.bus, NAME, "source") == 1
        await queue_bus.close()
