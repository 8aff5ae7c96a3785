"""Ending and resting: SIGTERM, an operator's drain, hand-over between two workers."""

import asyncio
import signal
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.table import Table, put
from signalbox.jobs import delivery
from signalbox.program.errors import Unavailable
from signalbox.program.metrics import REGISTRY
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import Bucket, Stream, token
from signalbox.wire.steering import Desired
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import last_sequence
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.evidence import intervals
from workers.device import devices
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.host import gauges
from workers.host.identity import WorkerIdentity
from workers.settings import WorkerSettings
from workers.supervisor import Supervisor

TOLD = ("lease_token", "lease_slack_seconds", "worker_jobs_in_flight")


def light(url: str, folder: Path, worker_id: str, **settings: object) -> WorkerProcess:
    """A worker whose runner computes with a toy."""
    return WorkerProcess(url, folder, worker_id, program=lightworker.PROGRAM, **settings)


async def test_sigterm_finishes_what_runs_gives_back_what_waits_and_ends_with_zero(
    nats: NatsServer, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    ledger = await Ledger(bus).start()
    await register(bus, "slow", lightworker.version("slow"), batching=Batching(max_size=1))
    async with light(nats.url, tmp_path, "w1") as first:
        await first.said("lease.acquired")
        async with light(nats.url, tmp_path, "w2") as second:
            await second.said("runner.ready")
            running = await ledger.submit("slow", floats(1.5, name="seconds"))
            waiting = [await ledger.submit("slow", floats(0.0, name="seconds")) for _ in range(5)]
            await ledger.until(lambda: ledger.last(running) is not None)
            first.signal(signal.SIGTERM)
            assert await first.ended() == 0
            record = ledger.last(running)
            assert record is not None
            assert (record.state, record.worker) == (State.SUCCEEDED, "w1")
            records = await ledger.ended(*waiting, timeout_s=25)
    assert {(r.state, r.worker) for r in records} == {(State.SUCCEEDED, "w2")}
    assert max(r.attempt for r in records) == 1
    found = await bus.list_latest(Bucket.WORKERS.stream, [names.key(Bucket.WORKERS, token("w1"))])
    assert [stored.data for stored in found] in ([], [b""])
    assert not list(temporary.iterdir())


async def test_a_run_longer_than_the_drain_goes_back_to_the_queue(nats: NatsServer, bus: Bus, tmp_path: Path) -> None:
    before = await last_sequence(bus, Stream.JOBS)
    ledger = await Ledger(bus).start()
    await register(bus, "slow", lightworker.version("slow"), batching=Batching(max_size=1))
    async with light(nats.url, tmp_path, "w1", worker_drain_s=0.5) as first:
        running = await ledger.submit("slow", floats(120.0, name="seconds"))
        await ledger.until(lambda: ledger.last(running) is not None)
        first.signal(signal.SIGTERM)
        assert await first.ended(timeout_s=60) == 0
    assert [r.state for r in ledger.records[running]] == [State.RUNNING, State.QUEUED]
    found = await delivery.find(bus, "slow", "mid", 0)
    assert (found.num_pending, found.delivered_stream_seq) == (1, before), "its consumer was made anew"


async def test_a_drained_worker_hands_its_gpu_and_jobs_to_another_and_comes_back(
    nats: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    ledger = await Ledger(bus).start()
    await register(bus, "half", lightworker.version("half"))
    table, changed = Table(bus, Bucket.WORKERS, Worker), asyncio.Event()
    table.on_change(lambda *_: changed.set())
    await table.start()

    async def reported(name: str, *, is_drained: bool) -> None:
        async with asyncio.timeout(60):
            while (found := table.get(token(name))) is None or found.is_drained is not is_drained:
                changed.clear()
                await changed.wait()

    async with light(nats.url, tmp_path, "w1") as first:
        await first.said("lease.acquired")
        async with light(nats.url, tmp_path, "w2") as second:
            await second.said("runner.ready")
            await reported("w1", is_drained=False)
            await put(bus, Bucket.DESIRED, f"worker.{token('w1')}", Desired(is_draining=True))
            await second.said("lease.acquired", timeout_s=60)
            (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)))
            assert record.worker == "w2"
            assert first.returncode is None
            await reported("w1", is_drained=True)
            await put(bus, Bucket.DESIRED, f"worker.{token('w1')}", Desired())
            await put(bus, Bucket.DESIRED, f"worker.{token('w2')}", Desired(is_draining=True))
            await first.said("lease.acquired", count=2, timeout_s=60)
            (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)))
            assert record.worker == "w1"
            await reported("w1", is_drained=False)
            await reported("w2", is_drained=True)
    await table.close()
    assert intervals.violations(intervals.read(tmp_path / "intervals.log")) == []


async def test_a_drain_that_comes_just_before_the_lease_keeps_no_gpu(
    nats: NatsServer, bus: Bus, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The wait for the lease has been given up when the runner enters the device."""
    monkeypatch.setattr("workers.device.guardedrunner.RUNNER", "tests.rigs.lightrunner")
    gained = LeasedDevice.held

    async def too_late(device: LeasedDevice) -> LeaseHandle:
        await gained(device)
        await put(bus, Bucket.DESIRED, f"worker.{token('w1')}", Desired(is_draining=True))
        return await asyncio.Future()

    monkeypatch.setattr(LeasedDevice, "held", too_late)
    table, changed = Table(bus, Bucket.WORKERS, Worker), asyncio.Event()
    table.on_change(lambda *_: changed.set())
    await table.start()
    identity = WorkerIdentity.of_this_process("w1", tmp_path)
    settings = WorkerSettings(lock_dir=str(tmp_path))
    for gauge in (gauges.LEASE_TOKEN, gauges.LEASE_SLACK, gauges.IN_FLIGHT):
        gauge.set(7)
    supervisor = Supervisor(bus, settings, identity, devices.virtual(0, tmp_path))
    running = asyncio.create_task(supervisor.run())
    async with asyncio.timeout(60):
        while (found := table.get(token("w1"))) is None or not found.is_drained:
            changed.clear()
            await changed.wait()
    supervisor.stop()
    await running
    await table.close()
    told = [REGISTRY.get_sample_value(f"signalbox_{name}") for name in TOLD]
    assert told == [0, 0, 0], "they tell of a lease that it has no more"


async def test_two_workers_on_one_gpu_take_turns_under_load(nats: NatsServer, bus: Bus, tmp_path: Path) -> None:
    ledger = await Ledger(bus).start()
    await register(bus, "one", lightworker.version("slow"), batching=Batching(max_size=1))
    await register(bus, "two", lightworker.version("slow"), batching=Batching(max_size=1))
    settings = {"worker_quantum_s": 1.0, "worker_patience_s": 0.1}
    async with (
        light(nats.url, tmp_path, "w1", **settings) as first,
        light(nats.url, tmp_path, "w2", **settings) as second,
    ):
        await asyncio.gather(first.said("runner.ready"), second.said("runner.ready"))
        for _ in range(40):
            await ledger.submit("one", floats(0.1, name="seconds"))
            await ledger.submit("two", floats(0.1, name="seconds"))
        records = await ledger.ended(timeout_s=60)
    assert {r.state for r in records} == {State.SUCCEEDED}
    assert {r.worker for r in records} == {"w1", "w2"}
    assert [ledger.records[r.id] for r in records if r.attempt > 1] == []
    assert len({r.token for r in records}) >= 4
    assert intervals.violations(intervals.read(tmp_path / "intervals.log")) == []


async def test_a_worker_is_gone_from_presence_soon_after_its_death(nats: NatsServer, bus: Bus, tmp_path: Path) -> None:
    table = Table(bus, Bucket.WORKERS, Worker)
    gone = asyncio.Event()
    seen = asyncio.Event()
    table.on_change(lambda _, doc, __: (seen if doc else gone).set())
    await table.start()
    async with light(nats.url, tmp_path, "w1", worker_presence_s=0.5, worker_presence_ttl_s=2) as process:
        async with asyncio.timeout(60):
            await seen.wait()
        await process.kill()
        async with asyncio.timeout(60):
            await gone.wait()
    await table.close()


@pytest.mark.parametrize("is_own", [False, True], ids=["the role's user", "users of their own"])
async def test_a_worker_needs_no_more_than_its_roles_permissions(tmp_path: Path, is_own: bool) -> None:
    users = {"admin": "a", "gateway": "g", "console": "c", "worker": "w", **({"w1": "w", "w2": "w"} if is_own else {})}
    workers: dict[str, list[str]] = {"w1": [], "w2": []} if is_own else {}
    async with NatsServer(tmp_path / "nats", users=users, workers=workers) as server:
        admin = Wire(nats_url=server.url, nats_user="admin", nats_password="a")
        bus = await Bus.connect(admin, role="admin")
        await topology.apply(bus)
        ledger = await Ledger(bus).start()
        await register(bus, "half", lightworker.version("half"))
        await register(bus, "slow", lightworker.version("slow"))

        def worker(name: str) -> WorkerProcess:
            return light(server.url, tmp_path, name, nats_user=name if is_own else "worker", nats_password="w")

        async with worker("w1") as first, worker("w2") as second:
            await asyncio.gather(first.said("runner.ready"), second.said("runner.ready"))
            (record,) = await ledger.ended(await ledger.submit("half", floats(1.0)))
            holder, other = (first, second) if record.worker == "w1" else (second, first)
            left = await ledger.submit("slow", floats(1.0, name="seconds"))
            await ledger.until(lambda: ledger.last(left) is not None)
            await holder.kill()
            (record,) = await ledger.ended(left, timeout_s=25)  # rescued, not waited for
            assert (record.worker, record.attempt) == (other.id, 2)
            (lost,) = record.attempts
            assert (lost.number, lost.worker, lost.code) == (1, holder.id, "")
            assert lost.parts["unknown"] > 0
            assert "unknown" not in record.parts
            assert not [line for line in other.lines if line.get("event") == "bus.permission_denied"]
        await bus.close()


async def test_a_worker_that_loses_nats_while_it_starts_ends_and_leaves_the_rest_to_its_manager(
    own_nats: NatsServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Waiting there for NATS it would not have received a SIGTERM."""
    require = topology.require

    async def lost_just_after(bus: Bus) -> None:
        await require(bus)
        await own_nats.stop()

    monkeypatch.setattr(topology, "require", lost_just_after)
    settings = WorkerSettings(lock_dir=str(tmp_path))
    bus = await Bus.connect(Wire(nats_url=own_nats.url, request_timeout_s=0.5), role="worker")
    identity = WorkerIdentity.of_this_process("w1", tmp_path)
    supervisor = Supervisor(bus, settings, identity, devices.virtual(0, tmp_path))
    with pytest.raises(Unavailable):
        async with asyncio.timeout(60):
            await supervisor.run()
    await bus.close()
