"""NATS delivers to what a dead worker has parked there for as long as it takes its connection for alive."""

import asyncio
import time
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from msgspec.structs import replace

from signalbox.bus import topology
from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.bus.table import put
from signalbox.bus.writes import Group
from signalbox.jobs.changes import WriteOutcome
from signalbox.jobs.commits import Commits
from signalbox.jobs.records import Records
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import Device, State, Worker
from signalbox.wire.names import Bucket, token
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.outage import becomes
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.environment.proxy import Proxy
from workers.host.fleet import FleetTables
from workers.queue import orphans
from workers.queue.intake import PARKED_S
from workers.queue.orphans import OrphanedDeliveries
from workers.serving.inflight import InFlightJob

CONSUMER = names.consumer("half", "mid")
NEVER_S = 600.0
SOON_S = 25.0
"""Below ``ack_wait``: given back, not waited for."""
HERE = Worker(
    id="here",
    boot="b",
    host="h1",
    pid=1,
    state="ready",
    started_at=0.0,
    beat_at=0.0,
    token=2,
    device=Device(id="cpu:0", kind="cpu", name="cpu:0"),
)
ELSEWHERE = replace(HERE, id="elsewhere", host="h2", device=Device(id="cpu:1", kind="cpu", name="cpu:1"))


class Peer(NamedTuple):
    """Who pulls ``half`` through a proxy of its own, and is a worker for all that NATS knows."""

    bus: Bus
    proxy: Proxy
    puller: Puller
    deliveries: "asyncio.Queue[Delivery]"

    async def park(self, count: int) -> None:
        """Ask for so many jobs; returns when NATS has the request."""
        self.puller.ask(count, expires_s=PARKED_S)
        await self.bus.flush()

    async def claim(self, *, gpu: str, token: int) -> None:
        """The next delivery runs here now."""
        delivery = await self.deliveries.get()
        commits = Commits(
            self.bus,
            Records(self.bus),
            worker="dead",
            gpu=gpu,
            token=token,
            inline_limit_bytes=262_144,
            clock=time.time,
        )
        held = InFlightJob(delivery, delivery.job, now_s=0.0)
        assert await commits.claim([held], Group()) == {held: WriteOutcome.OURS}


@pytest.fixture
async def dead(nats: NatsServer, bus: Bus) -> AsyncIterator[Peer]:
    """A worker that is to die."""
    await topology.ensure_consumers(bus, "half")
    async with Proxy((nats.host, nats.port)) as proxy:
        wire = Wire(nats_url=proxy.url, ping_interval_s=NEVER_S)
        connected = await Bus.connect(wire, role="admin")
        deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        puller = await connected.pull(CONSUMER, deliveries.put_nowait)
        yield Peer(connected, proxy, puller, deliveries)
        proxy.reset()
        await connected.close()


@pytest.fixture
async def ledger(bus: Bus) -> Ledger:
    return await Ledger(bus).start()


def successor(nats: NatsServer, folder: Path) -> WorkerProcess:
    """Another worker, whose runner computes with a toy."""
    return WorkerProcess(nats.url, folder, "successor", program="verification.chaos.rig.toyworker")


async def deliveries(bus: Bus) -> int:
    """How often NATS has delivered anything of ``half``."""
    info = await bus.request_json(f"$JS.API.CONSUMER.INFO.{names.Stream.JOBS}.{CONSUMER}")
    count: int = info["delivered"]["consumer_seq"]
    return count


async def test_a_running_job_given_back_into_a_dead_workers_request_is_given_back_again(
    nats: NatsServer, bus: Bus, ledger: Ledger, dead: Peer, tmp_path: Path
) -> None:
    async with successor(nats, tmp_path) as worker:
        hold = await worker.said("lease.acquired")
        await dead.park(2)
        job = await ledger.submit("half", floats(1.0))
        await dead.claim(gpu=hold["gpu"], token=hold["token"] - 1)
        dead.proxy.strand()
        await register(bus, "half", models.half_plus_two())  # the successor looks at its queues now
        (record,) = await ledger.ended(job, timeout_s=SOON_S)
    assert (record.state, record.worker, record.attempt) == (State.SUCCEEDED, "successor", 2)
    assert await deliveries(bus) == 3  # to the dead, to what it had parked, to the successor


async def test_a_job_submitted_into_a_dead_workers_request_after_the_first_look_is_given_back(
    nats: NatsServer, bus: Bus, ledger: Ledger, dead: Peer, tmp_path: Path
) -> None:
    async def is_successor_asking() -> bool:
        return (await bus.consumer_info(CONSUMER)).num_waiting == 2

    async with successor(nats, tmp_path) as worker:
        await worker.said("lease.acquired")
        await dead.park(2)
        dead.proxy.strand()
        await register(bus, "half", models.half_plus_two())
        await becomes(is_successor_asking)
        job = await ledger.submit("half", floats(1.0))
        (record,) = await ledger.ended(job, timeout_s=SOON_S)
    assert (record.state, record.worker, record.attempt) == (State.SUCCEEDED, "successor", 1)


@pytest.mark.parametrize("replicas", [1, 2])
async def test_a_second_look_takes_nothing_from_another_home_that_has_not_claimed_it_yet(
    bus: Bus, ledger: Ledger, dead: Peer, monkeypatch: pytest.MonkeyPatch, replicas: int
) -> None:
    """The record still speaks of the dead, and NATS would deliver it anew, were it given back a second time."""
    monkeypatch.setattr(orphans, "AGAIN_S", 0.0)
    if replicas > 1:
        await put(bus, Bucket.WORKERS, token(ELSEWHERE.id), ELSEWHERE)
    model = await register(bus, "half", models.half_plus_two(), replicas=replicas)
    fleet = FleetTables(
        bus, worker=HERE.id, device=HERE.device.id, allowed=(), describe=lambda: HERE, on_change=lambda: None
    )
    await fleet.start()
    await dead.park(1)
    await ledger.submit("half", floats(1.0))
    await dead.claim(gpu=HERE.device.id, token=HERE.token - 1)
    looks: list[Coroutine[Any, Any, None]] = []
    recovery = OrphanedDeliveries(
        bus, Records(bus), fleet, gpu=HERE.device.id, token=HERE.token, is_in_flight=lambda _: False, spawn=looks.append
    )
    await dead.park(2)  # a living one from here on
    await recovery.follow({"half": model})
    await dead.deliveries.get()
    for look in looks:
        await look
    await bus.flush()
    assert await deliveries(bus) == (2 if replicas > 1 else 3)
    recovery.forget()
    await fleet.close()
