"""A host that is lost with all of its workers, as real processes: the model goes on at the other, then both have it."""

import asyncio
import os
import signal
from pathlib import Path

from signalbox.bus.client import Bus
from signalbox.wire.messages import State
from tests.integration.signalbox.test_host import HostProcess, Seen, hosts, want
from tests.rigs import lightworker
from tests.rigs.natsserver import NatsServer
from tests.rigs.processes import gone
from tests.rigs.submit import Ledger, floats, register

JOBS = 20


async def test_a_job_that_comes_while_the_last_worker_drains_brings_another_without_a_console(
    nats: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    seen, ledger = await Seen(bus).start(), await Ledger(bus).start()
    await want(bus, cpu=1)
    await register(bus, "slow", lightworker.version("slow"))
    async with hosts(HostProcess(nats.url, tmp_path, "h1", "--device", "cpu:0", "--per-device", "1")):
        await seen.until(seen.ready)
        running = await ledger.submit("slow", floats(2.0))
        await ledger.until(lambda: (last := ledger.last(running)) is not None and last.state == State.RUNNING)
        await want(bus, cpu=0)
        await seen.until(lambda: [worker.state for worker in seen.workers().values()] == ["draining"])
        job = await ledger.submit("slow", floats(0.0))
        records = await ledger.ended(running, job, timeout_s=60)
        assert {record.state for record in records} == {State.SUCCEEDED}
    await seen.close()


async def test_a_first_worker_that_dies_with_its_host_is_made_up_for_by_another_without_a_console(
    nats: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    seen, ledger = await Seen(bus).start(), await Ledger(bus).start()
    await want(bus, cpu=0)
    await register(bus, "slow", lightworker.version("slow"))
    made = {
        name: HostProcess(nats.url, tmp_path, name, "--device", "cpu:0", "--per-device", "1") for name in ("h1", "h2")
    }
    async with hosts(*made.values()):
        await seen.until(lambda: seen.host("h1") and seen.host("h2"))
        job = await ledger.submit("slow", floats(2.0))
        await ledger.until(lambda: (last := ledger.last(job)) is not None and last.state == State.RUNNING)
        (first,) = {name.partition("-")[0] for name in seen.workers()}
        os.kill(made[first].pid, signal.SIGKILL)
        (record,) = await ledger.ended(job, timeout_s=60)
        assert record.state == State.SUCCEEDED
        assert record.worker.partition("-")[0] != first
    await seen.close()


async def test_when_one_of_two_devices_loses_its_workers_and_agent_the_other_serves_the_model_then_both_do(
    nats: NatsServer, bus: Bus, tmp_path: Path
) -> None:
    seen, ledger = await Seen(bus).start(), await Ledger(bus).start()
    await want(bus, cpu=2)
    await register(bus, "half", lightworker.version("half"), replicas=2)
    made = {name: HostProcess(nats.url, tmp_path, name, "--device", "cpu:0") for name in ("h1", "h2")}

    def serving() -> set[str]:
        """Hosts with a worker that has the model in memory."""
        return {
            worker.id.partition("-")[0]
            for worker in seen.workers().values()
            if any((one.model, one.state) == ("half", "ready") for one in worker.models)
        }

    async def run() -> set[str]:
        """Have jobs run, none of which is lost; the hosts of who ran them."""
        jobs = await asyncio.gather(*(ledger.submit("half", floats(3.0)) for _ in range(JOBS)))
        records = await ledger.ended(*jobs, timeout_s=60)
        assert {record.state for record in records} == {State.SUCCEEDED}
        return {record.worker.partition("-")[0] for record in records}

    async with hosts(*made.values()):
        await seen.until(lambda: serving() == made.keys() and len(seen.ready()) == 4)
        workers = {name: pid for name, pid in seen.ready().items() if name.startswith("h1-")}
        open_jobs = [await ledger.submit("half", floats(3.0)) for _ in range(JOBS)]
        for pid in (made["h1"].pid, *workers.values()):
            os.kill(pid, signal.SIGKILL)
        for pid in workers.values():
            await gone(pid)
        assert await run() == {"h2"}
        assert {record.state for record in await ledger.ended(*open_jobs, timeout_s=60)} == {State.SUCCEEDED}
        await seen.until(lambda: serving() == {"h2"} and seen.host("h1") is None and len(seen.ready()) == 2)
        await made["h1"].start()
        await seen.until(lambda: serving() == made.keys() and len(seen.ready()) == 4)
        await seen.until(lambda: seen.host("h1"))
        assert not set(seen.ready().values()) & set(workers.values())
        both: set[str] = set()
        while both != made.keys():
            both |= await run()
    await seen.close()
