"""Jobs that were delivered to somebody who does not end them: a dead worker, a cut-off one, or nobody at all."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.bus.table import put, remove
from signalbox.bus.writes import Group
from signalbox.jobs import delivery
from signalbox.jobs.changes import WriteOutcome
from signalbox.jobs.commits import Commits
from signalbox.jobs.records import Records
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import Device, Lease, State, Worker, encode
from signalbox.wire.names import Bucket, token
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.environment.proxy import Proxy
from workers.serving.inflight import InFlightJob

NEVER_S = 600.0
PARKED_S = 120.0
"""Longer than every test: what is parked ends only with its consumer."""
SOON_S = 25.0
FAR = Device(id="FAR", kind="cpu", name="cpu:9")


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
        delivered = await self.deliveries.get()
        commits = Commits(
            self.bus,
            Records(self.bus),
            worker="dead",
            gpu=gpu,
            token=token,
            inline_limit_bytes=262_144,
            clock=time.time,
        )
        held = InFlightJob(delivered, delivered.job, now_s=0.0)
        assert await commits.claim([held], Group()) == {held: WriteOutcome.OURS}


@pytest.fixture
async def dead(nats: NatsServer, bus: Bus) -> AsyncIterator[Peer]:
    """A worker that is to die, and whose connection NATS takes for alive when it has."""
    await delivery.find_all(bus, "half", 0)
    async with Proxy((nats.host, nats.port)) as proxy:
        wire = Wire(nats_url=proxy.url, ping_interval_s=NEVER_S)
        connected = await Bus.connect(wire, role="admin")
        deliveries: asyncio.Queue[Delivery] = asyncio.Queue()
        puller = await connected.pull(names.consumer("half", "mid", 0), deliveries.put_nowait)
        yield Peer(connected, proxy, puller, deliveries)
        proxy.reset()
        await connected.close()


def worker(nats: NatsServer, folder: Path, name: str = "successor") -> WorkerProcess:
    """Another worker, whose runner computes with a toy."""
    return WorkerProcess(nats.url, folder, name, program="verification.chaos.rig.toyworker")


async def test_a_successor_runs_what_a_dead_holder_of_its_gpu_had_claimed(
    nats: NatsServer, bus: Bus, ledger: Ledger, dead: Peer, tmp_path: Path
) -> None:
    async with worker(nats, tmp_path) as here:
        hold = await here.said("lease.acquired")
        await dead.park(2)
        job = await ledger.submit("half", floats(1.0))
        await dead.claim(gpu=hold["gpu"], token=hold["token"] - 1)
        dead.proxy.strand()
        await register(bus, "half", models.half_plus_two())  # the successor looks at its queues now
        (record,) = await ledger.ended(job, timeout_s=SOON_S)
    assert (record.state, record.worker, record.attempt) == (State.SUCCEEDED, "successor", 2)


async def test_a_job_delivered_into_a_dead_workers_request_is_delivered_again(
    nats: NatsServer, bus: Bus, ledger: Ledger, dead: Peer, tmp_path: Path
) -> None:
    async with worker(nats, tmp_path) as here:
        await here.said("lease.acquired")
        await dead.park(2)
        dead.proxy.strand()
        await register(bus, "half", models.half_plus_two())
        jobs = [await ledger.submit("half", floats(1.0)) for _ in range(4)]
        records = await ledger.ended(*jobs, timeout_s=SOON_S)
    assert {(r.state, r.worker, r.attempt) for r in records} == {(State.SUCCEEDED, "successor", 1)}


async def test_a_job_that_a_living_worker_forgot_is_looked_for(
    nats: NatsServer, bus: Bus, ledger: Ledger, dead: Peer, tmp_path: Path
) -> None:
    """Its model is awake, nobody has died, and nobody has it."""
    await register(bus, "half", models.half_plus_two())
    async with worker(nats, tmp_path) as here:
        await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=60.0)
        # The worker has made the consumer anew when it woke: what is parked from now on takes its turn.
        job, is_taken = "", False
        for _ in range(20):
            await dead.park(1)
            job = await ledger.submit("half", floats(1.0))
            done = asyncio.create_task(ledger.ended(job, timeout_s=60.0))
            taken = asyncio.create_task(dead.deliveries.get())
            await asyncio.wait([done, taken], return_when=asyncio.FIRST_COMPLETED)
            is_taken = taken.done()
            if is_taken:
                break
            taken.cancel()
            await done
        assert is_taken
        (record,) = await ledger.ended(job, timeout_s=60.0)
        await here.said("reconciler.redelivery_asked")
    assert (record.state, record.worker, record.attempt) == (State.SUCCEEDED, "successor", 1)


@pytest.mark.parametrize("is_seen", [True, False])
async def test_a_job_running_under_another_lease_is_claimed_over_only_when_that_lease_is_gone(
    nats: NatsServer, bus: Bus, ledger: Ledger, dead: Peer, tmp_path: Path, is_seen: bool
) -> None:
    """is_seen: the fleet still sees its holder, as it does for some seconds after a death."""
    lease = names.key(Bucket.LEASES, token(FAR.id))
    held = await bus.write(lease, encode(Lease(state="HELD", gpu=FAR.id, owner="dead", boot="b")), ttl_s=60)
    far = Worker(
        id="dead", boot="b", host="far", pid=1, state="ready", started_at=0.0, beat_at=0.0, device=FAR, token=held
    )
    if is_seen:
        await put(bus, Bucket.WORKERS, token(far.id), far)
    await dead.park(1)
    job = await ledger.submit("half", floats(1.0))
    await dead.claim(gpu=FAR.id, token=held)
    async with worker(nats, tmp_path) as here:
        await here.said("lease.acquired")
        await register(bus, "half", models.half_plus_two(), replicas=2)
        (other,) = await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=60.0)
        assert other.worker == "successor"
        assert [r.attempt for r in ledger.records[job]] == [1], "its holder may still end it"
        await remove(bus, Bucket.LEASES, token(FAR.id))
        if is_seen:
            await remove(bus, Bucket.WORKERS, token(far.id))
        (record,) = await ledger.ended(job, timeout_s=60.0)
    assert (record.state, record.worker, record.attempt) == (State.SUCCEEDED, "successor", 2)


async def test_an_idle_model_has_nothing_on_the_server(
    nats: NatsServer, bus: Bus, ledger: Ledger, tmp_path: Path
) -> None:
    await register(bus, "quiet", models.half_plus_two())
    await register(bus, "half", models.half_plus_two())

    async def consumers() -> set[str]:
        return {name for name in await bus.listed("$JS.API.CONSUMER.NAMES.JOBS", "consumers") if "half" in name}

    async with worker(nats, tmp_path) as here:
        await here.said("lease.acquired")
        await ledger.ended(await ledger.submit("half", floats(1.0)), timeout_s=60.0)
        assert await consumers() == {names.consumer("half", priority, 0) for priority in names.PRIORITIES}
        listed = await bus.listed("$JS.API.CONSUMER.NAMES.JOBS", "consumers")
        assert not any(name.startswith("quiet") for name in listed)
