"""A deployment whose queues were durable consumers goes on with this version, and no job is lost or run again."""

import time
from pathlib import Path

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.jobs import life
from signalbox.jobs.message import submit
from signalbox.jobs.records import Records
from signalbox.program.settings import Wire
from signalbox.wire.messages import Job, State
from tests.integration.test_core_topology import acknowledge, make_durable
from tests.rigs import models
from tests.rigs.natsserver import NatsServer
from tests.rigs.streams import emptied
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess


async def claimed(bus: Bus, job: Job, *, is_ended: bool) -> None:
    """Records as an older worker wrote them, which is gone."""
    records, now = Records(bus), time.time()
    running = life.claimed(job, None, worker="older", gpu="CPU-older-0", token=7, now=now)
    revision = await records.write(running, expect=0)
    if is_ended:
        ended = life.succeeded(running, now=now, batch=1, size_bytes=3)
        await records.write(ended, b"out", expect=revision)


async def test_what_waited_or_ran_runs_and_what_has_ended_does_not(own_nats: NatsServer, tmp_path: Path) -> None:
    bus = await Bus.connect(Wire(nats_url=own_nats.url), role="admin")
    ledger = await Ledger(bus).start()
    await register(bus, "half", models.half_plus_two())
    await make_durable(bus, "half_mid", "jobs.half.mid.>")
    jobs = [ledger.job("half", floats(1.0)) for _ in range(5)]
    for job in jobs:
        await submit(bus, job, floats(1.0))
    below, ran, above, unclaimed, waited = jobs
    for job in (below, ran, above):
        await claimed(bus, job, is_ended=job is not ran)
    await acknowledge(bus, "half_mid", taken=4, ended={0, 2})

    assert "retired 1 queue" in await topology.apply(bus)
    async with WorkerProcess(own_nats.url, tmp_path, "w1"):
        records = await ledger.ended(ran.id, unclaimed.id, waited.id)
        assert [(record.state, record.worker) for record in records] == [(State.SUCCEEDED, "w1")] * 3
        await emptied(bus)
    for job in (below, above):
        last = ledger.last(job.id)
        assert last is not None
        assert (last.state, last.worker, last.attempt) == (State.SUCCEEDED, "older", 1)
    await bus.close()
