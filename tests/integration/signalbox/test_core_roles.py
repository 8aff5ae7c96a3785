"""Each role may do what its program does, and nothing else. Both ways, on a server that enforces it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from signalbox.bus import queues, topology
from signalbox.bus.client import Bus, Delivery, Message
from signalbox.bus.table import Table
from signalbox.jobs import delivery
from signalbox.jobs.payloads import fetch, store, store_input
from signalbox.program.errors import Bug, Misconfigured, NotFound, QueueFull
from signalbox.program.settings import Wire
from signalbox.wire import queuenames
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Job, State
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import Bucket, Stream, consumer, job
from signalbox.wire.queues import Queue, rear_config
from signalbox.wire.roles import QUEUE_ROLES, ROLES, USERS, permissions
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess

PASSWORDS: dict[str, str] = {role: f"secret of {role}" for role in USERS}
JOB_ID = "00000000-0000-4000-8000-000000000000"


@pytest.fixture
async def guarded(tmp_path: object) -> AsyncIterator[NatsServer]:
    async with NatsServer(f"{tmp_path}/nats", users=PASSWORDS) as server:
        bus = await _as(server, "admin")
        await topology.apply(bus)
        await bus.close()
        yield server


async def _as(server: NatsServer, role: str) -> Bus:
    wire = Wire(nats_url=server.url, nats_user=role, nats_password=PASSWORDS[role], request_timeout_s=1.0)
    return await Bus.connect(wire, role=role)


async def test_every_program_may_check_the_topology(guarded: NatsServer) -> None:
    for role in ROLES:
        bus = await _as(guarded, role)
        await topology.require(bus)
        await bus.close()


async def test_a_job_passes_through_gateway_and_worker(guarded: NatsServer) -> None:
    gateway, worker = await _as(guarded, "gateway"), await _as(guarded, "worker")
    accepted_job = Job(
        id=JOB_ID, model="m", version=1, signature="s", account_id="k", priority="hi", created_at=0.0, deadline_at=1.0
    )
    ref = (await store_input(gateway, accepted_job, b"x" * 600_000)).ref
    reported = asyncio.Event()
    waiting = await gateway.subscribe("rsp.*.*", lambda _message: reported.set())
    came = asyncio.Event()
    accepted = await worker.subscribe("evt.jobs.>", lambda _message: came.set())
    await gateway.grouped(Stream.JOBS).write(job("m", "hi", "t", JOB_ID), expect=0)
    deliveries: list[Delivery] = []
    assert (await delivery.state(gateway, "m", "hi", 0)).num_pending == 1
    await delivery.make_anew(worker, "m", "hi", 0)
    puller = await worker.pull(consumer("m", "hi", 0), deliveries.append)
    puller.ask(1)
    async with asyncio.timeout(60):
        await came.wait()
    assert await fetch(worker, ref) == b"x" * 600_000
    claim = await worker.grouped(Stream.STATE).write(f"st.{JOB_ID}", expect=0)
    out = await store(worker, "k", JOB_ID, "out1", b"y" * 600_000)
    await worker.grouped(Stream.STATE).write(f"st.{JOB_ID}", expect=claim)
    await worker.write("dlq.m.1", b"")
    await worker.publish("rsp.g.1", b"done")
    async with asyncio.timeout(60):
        await reported.wait()
    (taken,) = deliveries
    assert taken.subject == job("m", "hi", "t", JOB_ID)
    assert await gateway.leader_get(Stream.STATE, f"st.{JOB_ID}") is not None
    assert await gateway.direct_get(Stream.STATE, f"st.{JOB_ID}") is not None
    assert await fetch(gateway, out) == b"y" * 600_000
    await asyncio.gather(waiting.close(), accepted.close(), puller.close())
    await gateway.close()
    await worker.close()


FOLLOWED: dict[str, dict[Bucket, type[Any]]] = {
    "gateway": {Bucket.KEYS: ApiKey, Bucket.MODELS: Model, Bucket.WORKERS: Worker, Bucket.DESIRED: Desired},
    "worker": {Bucket.MODELS: Model, Bucket.WORKERS: Worker, Bucket.DESIRED: Desired},
    "console": {Bucket.WORKERS: Worker, Bucket.KEYS: ApiKey, Bucket.MODELS: Model},
}


@pytest.mark.parametrize("role", FOLLOWED)
async def test_a_role_may_follow_the_buckets_it_needs(guarded: NatsServer, role: str) -> None:
    bus = await _as(guarded, role)
    for bucket, type_ in FOLLOWED[role].items():
        table: Table[Any] = Table(bus, bucket, type_)
        await table.start()
        await table.close()
    await bus.close()


DENIED = {
    "gateway": (
        "$KV.keys.a",
        "$KV.leases.g",
        "$KV.models.m",
        "pl.k.j.out1",
        "dlq.m.j",
        "dlp.in.t.j",
        "$JS.API.STREAM.PURGE.DLQ",
        "$JS.API.STREAM.MSG.DELETE.DLQ",
        "$JS.API.STREAM.PURGE.JOBS",
        "$JS.API.STREAM.PURGE.INPUTS",
        "$JS.API.STREAM.DELETE.JOBS",
        "$JS.API.CONSUMER.MSG.NEXT.JOBS.m_hi_0",
        "$JS.API.CONSUMER.DELETE.JOBS.m_hi_0",
        # Whoever makes a consumer may have it deliver to subjects that it must not publish on.
        "$JS.API.CONSUMER.CREATE.JOBS.x",
        "$JS.API.CONSUMER.CREATE.JOBS.m_hi_0.jobs.m.hi.>",
        "$JS.API.STREAM.MSG.GET.KV_leases",
        "redeliver.m",
    ),
    "worker": (
        "$KV.keys.a",
        "$KV.models.m",
        "dlp.redriven.j",
        "$JS.API.STREAM.PURGE.DLQ_PARTS",
        "$JS.API.DIRECT.GET.KV_keys.$KV.keys.a",
        "$JS.API.STREAM.PURGE.PAYLOADS",
        "$JS.API.STREAM.DELETE.JOBS",
        "$JS.API.STREAM.UPDATE.STATE",
        "$JS.API.CONSUMER.DELETE.STATE.projector",
        "$JS.API.CONSUMER.CREATE.JOBS.x",
        "$JS.ACK.JOBS.m_hi_0.1.1.1.1.0",
    ),
    "console": (
        "$KV.leases.g",
        "$JS.API.STREAM.PURGE.AUDIT",
        "$JS.API.STREAM.MSG.DELETE.AUDIT",
        "$JS.API.STREAM.DELETE.AUDIT",
        "$KV.waiters.g.w",
        "$KV.workers.w",
        "dlq.m.j",
        "dlp.in.t.j",
        "pl.k.j.out1",
        "$JS.API.STREAM.DELETE.JOBS",
        "$JS.API.STREAM.PURGE.STATE",
        "$JS.API.STREAM.CREATE.X",
        "$JS.API.CONSUMER.MSG.NEXT.JOBS.m_hi_0",
        "$JS.API.CONSUMER.DELETE.JOBS.m_hi_0",
        "$JS.API.CONSUMER.CREATE.JOBS.m_hi_0.jobs.m.hi.>",
        "$JS.API.CONSUMER.CREATE.EVENTS.x",
        "$JS.API.CONSUMER.DURABLE.CREATE.STATE.x",
        "$JS.API.CONSUMER.DELETE.STATE.x",
        "$JS.ACK.JOBS.m_hi_0.1.1.1.1.0",
    ),
}


@pytest.mark.parametrize("role", DENIED)
async def test_a_role_may_not_write_what_is_anothers(guarded: NatsServer, role: str) -> None:
    bus = await _as(guarded, role)
    for subject in DENIED[role]:
        with pytest.raises(Misconfigured, match="may not publish"):
            await bus.request(subject, b"{}", is_write=True)
    await bus.close()


async def test_nobody_receives_anothers_answers(guarded: NatsServer) -> None:
    gateway = await _as(guarded, "gateway")
    received: list[Message] = []
    for role in ("worker", "console"):
        spy = await _as(guarded, role)
        await spy.subscribe("_INBOX_gateway.>", received.append)
        await spy.subscribe(">", received.append)
        await gateway.leader_get(Stream.STATE, "st.secret")
        await gateway.flush()
        await spy.flush()
        await spy.close()
    assert received == []
    await gateway.close()


async def _queues_as(server: NatsServer, role: str) -> Bus:
    wire = Wire(nats_url=server.url, queues_nats_user=role, queues_nats_password=PASSWORDS[role])
    return await queues.connect(wire, role=role)


async def test_an_item_passes_through_a_queue_by_the_users_of_gateway_and_outbound(guarded: NatsServer) -> None:
    outbound, gateway = await _queues_as(guarded, "outbound-queues"), await _queues_as(guarded, "gateway-queues")
    queue = Queue(name="texts", account_id="acme")
    await queues.declare(outbound, queue)
    await outbound.request_json(f"$JS.API.STREAM.CREATE.{queuenames.REAR}", rear_config(1, 2**20))
    await queues.make_group(gateway, queue, "source", "mine")
    told, watched = asyncio.Event(), asyncio.Event()
    heard = [
        await gateway.subscribe(queuenames.event_of_queue("texts", "source"), lambda _message: told.set()),
        await outbound.subscribe(queuenames.watching(), lambda _message: watched.set()),
    ]
    index = await gateway.write(queuenames.queue_item("texts", "source", "hi", "r1"), b"data")
    await gateway.publish(queuenames.watching("i"), b"{}")
    taken: asyncio.Future[Delivery] = asyncio.get_running_loop().create_future()
    stream, durable = queuenames.queue_stream("texts", "source"), queuenames.queue_consumer("mine", "hi")
    puller = await gateway.pull(durable, taken.set_result, stream=stream)
    puller.ask(1)
    async with asyncio.timeout(60):
        await asyncio.gather(told.wait(), watched.wait())
        assert (await taken).seq == index
    await gateway.request(f"$JS.ACK.{stream}.{durable}.1.{index}.0.0.0", b"+ACK")
    assert (
        await gateway.leader_get(stream, queuenames.queue_item("texts", "source", "hi", "r1")) is not None
    )  # eas has not
    await gateway.write(queuenames.rear_item("texts", "source"), b"dead")
    for bus in (gateway, outbound):
        for at in (index, queuenames.REAR):
            assert await bus.direct_batch(queuenames.REAR if at == queuenames.REAR else stream, {"seq": 1, "batch": 1})
    await gateway.request_json(f"$JS.API.STREAM.MSG.DELETE.{stream}", {"seq": index})
    await gateway.request_json(f"$JS.API.STREAM.PURGE.{queuenames.REAR}", {"filter": queuenames.rear_items("texts")})
    await queues.remove(outbound, "texts")
    await asyncio.gather(puller.close(), *(one.close() for one in heard))
    await gateway.close()
    await outbound.close()


async def test_queues_and_the_rest_are_not_seen_from_each_other_s_account(guarded: NatsServer) -> None:
    """By the admins, whom no right holds back: it is the account that separates."""
    admin, queues_admin = await _as(guarded, "admin"), await _queues_as(guarded, "admin-queues")
    await queues.declare(queues_admin, Queue(name="texts", account_id="acme"))
    found = [set(await bus.listed("$JS.API.STREAM.NAMES", "streams")) for bus in (admin, queues_admin)]
    assert found[1] == {"Q_texts_source", "Q_texts_sink"}
    assert not found[0] & found[1]
    heard: list[Message] = []
    listening = await admin.subscribe(">", heard.append)
    await queues_admin.write(queuenames.queue_item("texts", "source", "lo"), b"private")
    await queues_admin.flush()
    await admin.flush()
    assert [one.subject for one in heard if b"private" in one.data or "q.texts" in one.subject] == []
    await listening.close()
    await admin.close()
    await queues_admin.close()


async def test_queues_that_hold_all_their_account_may_refuse_more_and_leave_jobs_their_room(tmp_path: Path) -> None:
    async with NatsServer(tmp_path / "nats", users=PASSWORDS, queues_bytes=100_000) as server:
        admin, outbound = await _as(server, "admin"), await _queues_as(server, "outbound-queues")
        await topology.apply(admin)
        await queues.declare(outbound, Queue(name="texts", account_id="acme"))
        for number in range(12):
            await outbound.write(queuenames.queue_item("texts", "source", "lo", str(number)), bytes(8192))
        with pytest.raises(QueueFull):
            await outbound.write(queuenames.queue_item("texts", "source", "lo"), bytes(8192))
        await admin.write(job("m", "hi", "t", JOB_ID), b"x", expect=0)
        await admin.close()
        await outbound.close()


@pytest.mark.parametrize("role", QUEUE_ROLES)
async def test_a_user_of_queues_is_none_of_the_other_account(guarded: NatsServer, role: str) -> None:
    bus = await _queues_as(guarded, role)
    with pytest.raises(NotFound):
        await bus.request_json("$JS.API.STREAM.INFO.JOBS")
    await bus.close()


def test_a_role_nobody_declared_is_a_bug() -> None:
    with pytest.raises(Bug):
        permissions("intern")


async def test_a_worker_with_a_user_of_its_own_does_its_work(tmp_path: Path) -> None:
    passwords = PASSWORDS | {"w1": "secret of w1"}
    async with NatsServer(tmp_path / "nats", users=passwords, workers={"w1": []}) as server:
        bus = await _as(server, "admin")
        await topology.apply(bus)
        ledger = await Ledger(bus).start()
        await register(bus, "half", lightworker.version("half"))
        login = {"nats_user": "w1", "nats_password": passwords["w1"]}
        async with WorkerProcess(server.url, tmp_path, "w1", program=lightworker.PROGRAM, **login) as worker:
            (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=60)
            assert (record.state, record.worker) == (State.SUCCEEDED, "w1")
            assert not [line for line in worker.lines if line.get("event") == "bus.permission_denied"]
        await bus.close()
