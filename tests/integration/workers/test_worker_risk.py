"""A holder whose heartbeats are not confirmed for half the time there is: it begins nothing until one is."""

import asyncio
from pathlib import Path

from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire import names
from signalbox.wire.messages import State
from signalbox.wire.modeldocs import Batching
from signalbox.wire.names import PRIORITIES, Bucket
from signalbox.wire.workerdocs import Worker
from tests.rigs import lightworker, workerhouse
from tests.rigs.submit import floats, register

LIMIT_S = 60.0
SETTINGS = {"worker_fence_s": 20.0, "worker_lease_ttl_s": 25, "worker_margin_s": 1.0}
"""Half the fence is twice what an ask that is parked on the server may last."""


async def let_leases_be_written(bus: Bus, is_allowed: bool) -> None:
    """Everything else goes on: only the records of leases are too large for their stream meanwhile."""
    name = Bucket.LEASES.stream
    found = await bus.request_json(f"$JS.API.STREAM.INFO.{name}")
    config = found["config"] | {"max_msg_size": -1 if is_allowed else 1}
    await bus.request_json(f"$JS.API.STREAM.UPDATE.{name}", config)


async def nobody_asks(bus: Bus, model: str) -> None:
    """Wait until no ask is parked at any queue of the model."""
    async with asyncio.timeout(LIMIT_S):
        for priority in PRIORITIES:
            while (await bus.consumer_info(names.consumer(model, priority, 0))).num_waiting:  # noqa: ASYNC110  the server says it to who asks
                await asyncio.sleep(0.05)


async def test_a_holder_at_risk_finishes_what_runs_and_begins_nothing(tmp_path: Path) -> None:
    async with workerhouse.house(tmp_path, program=lightworker.PROGRAM, **SETTINGS) as (bus, ledger, worker):
        await register(bus, "slow", lightworker.version("slow"), batching=Batching(max_size=1))
        workers = Table(bus, Bucket.WORKERS, Worker)
        await workers.start()
        await ledger.ended(await ledger.submit("slow", floats(0.0, name="seconds")))
        await let_leases_be_written(bus, is_allowed=False)
        running = await ledger.submit("slow", floats(12.0, name="seconds"))
        await worker.said("lease.at_risk")
        assert ledger.last(running) is not None, "it began before"
        waiting = [await ledger.submit("slow", floats(0.0, name="seconds")) for _ in range(3)]
        await ledger.ended(running)
        await nobody_asks(bus, "slow")
        assert [ledger.last(job) for job in waiting] == [None] * 3
        assert [worker.state for worker in workers.items().values()] == ["at risk"]
        await let_leases_be_written(bus, is_allowed=True)
        await worker.said("lease.out_of_risk")
        ended = await ledger.ended()
        await workers.close()
    assert {record.state for record in ended} == {State.SUCCEEDED}
    assert len({record.token for record in ended}) == 1
    assert not [line for line in worker.lines if line.get("event") == "lease.lost"]
