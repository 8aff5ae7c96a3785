"""What is acknowledged leaves ``JOBS`` in groups, and nothing else does."""

import asyncio
import signal
from pathlib import Path

import pytest

from signalbox.bus import topology
from signalbox.bus.client import Bus, Delivery
from signalbox.jobs import payloads
from signalbox.wire import names
from signalbox.wire.names import Stream
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from workers.queue import sweep
from workers.queue.sweep import Sweep


async def _stored(bus: Bus) -> list[int]:
    """Sequences in ``JOBS``, in order."""
    return [stored.seq for stored in await bus.list_latest(Stream.JOBS, ["jobs.>"])]


async def _pulled(bus: Bus, model: str, number: int) -> list[Delivery]:
    """``number`` jobs of a model, pulled and not acknowledged."""
    ledger = Ledger(bus)
    for _ in range(number):
        await ledger.submit(model, floats(1.0))
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    puller = await bus.pull(names.consumer(model, "mid"), arrived.put_nowait)
    puller.ask(number)
    async with asyncio.timeout(60):
        return [await arrived.get() for _ in range(number)]


async def _acknowledge(sweeper: Sweep, deliveries: list[Delivery]) -> None:
    for delivery in deliveries:
        await delivery.ack()
        sweeper.note(delivery.job, delivery)


async def test_what_is_acknowledged_is_removed_and_the_other_queues_are_left_alone(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    await topology.ensure_consumers(bus, "other")
    other = await _pulled(bus, "other", 2)
    mine = await _pulled(bus, "one", 5)
    sweeper = Sweep(bus)
    await _acknowledge(sweeper, mine)
    await sweeper.close(5)
    assert await _stored(bus) == [delivery.seq for delivery in other]


async def test_a_job_in_hand_keeps_those_behind_it_and_loses_nothing(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    first, *rest = await _pulled(bus, "one", 4)
    sweeper = Sweep(bus)
    await _acknowledge(sweeper, rest)
    await sweeper.close(5)
    assert await _stored(bus) == [first.seq, *(delivery.seq for delivery in rest)]
    await _acknowledge(sweeper, [first])
    await sweeper.close(5)
    assert await _stored(bus) == []


async def test_too_many_behind_a_job_in_hand_are_removed_one_by_one(bus: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sweep, "KEPT", 1)
    await topology.ensure_consumers(bus, "one")
    first, *rest = await _pulled(bus, "one", 4)
    sweeper = Sweep(bus)
    await _acknowledge(sweeper, rest)
    await sweeper.close(5)
    assert await _stored(bus) == [first.seq, rest[-1].seq]


async def test_stored_inputs_of_acknowledged_jobs_go_with_the_sweep_and_others_stay(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    ledger = Ledger(bus)
    refs = []
    for _ in range(40):
        job = ledger.job("one", b"")
        refs.append((await payloads.store_input(bus, job, job.id.encode())).ref)
        await ledger.submit("one", b"", id=job.id, ref=refs[-1])
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    puller = await bus.pull(names.consumer("one", "mid"), arrived.put_nowait)
    puller.ask(40)
    async with asyncio.timeout(60):
        *ended, running = [await arrived.get() for _ in range(40)]
    sweeper = Sweep(bus)
    await _acknowledge(sweeper, ended)
    await sweeper.close(60)
    assert await payloads.fetch(bus, refs[-1]) == running.job.id.encode()
    assert await bus.list_latest(Stream.INPUTS, [names.job_inputs()]) == await bus.list_latest(
        Stream.INPUTS, [refs[-1].subject]
    )


async def test_the_last_sweep_waits_until_the_server_has_counted_every_acknowledgement(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    deliveries = await _pulled(bus, "one", 2_000)
    sweeper = Sweep(bus)
    for delivery in deliveries:
        delivery.ack_soon()
        sweeper.note(delivery.job, delivery)
    await sweeper.close(60)
    assert await _stored(bus) == []


async def test_what_another_worker_removed_first_does_not_keep_the_rest_from_going(
    bus: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sweep, "KEPT", 0)
    await topology.ensure_consumers(bus, "one")
    first, *rest = await _pulled(bus, "one", 5)
    sweeper = Sweep(bus)
    await _acknowledge(sweeper, rest)
    for seq in (first.seq, rest[0].seq, rest[2].seq):  # before the stream's first, and within it
        await sweep.remove(bus, seq)
    await sweeper.close(5)
    assert await _stored(bus) == []


async def test_a_worker_leaves_an_empty_queue(nats: NatsServer, bus: Bus, tmp_path: Path) -> None:
    ledger = await Ledger(bus).start()
    await register(bus, "half", models.half_plus_two())
    async with WorkerProcess(nats.url, tmp_path, "w1") as worker:
        await worker.said("lease.acquired")
        jobs = [await ledger.submit("half", floats(1.0)) for _ in range(20)]
        await ledger.ended(*jobs)
        worker.signal(signal.SIGTERM)
        assert await worker.ended() == 0
    assert await _stored(bus) == []
