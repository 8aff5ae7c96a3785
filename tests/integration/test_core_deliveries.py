"""The queue never gives a job up by itself: attempts are counted in the job's record."""

import asyncio

from signalbox.bus import topology
from signalbox.bus.client import Bus, Delivery
from signalbox.wire import names
from tests.rigs.streams import counted
from tests.rigs.submit import Ledger, floats


async def test_a_job_given_back_many_times_is_delivered_again(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    job_id = await Ledger(bus).submit("one", floats(1.0))
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    puller = await bus.pull(names.consumer("one", "mid"), arrived.put_nowait)
    for attempt in range(1, 13):
        puller.ask(1)
        async with asyncio.timeout(60):
            delivery = await arrived.get()
        assert (delivery.job.id, delivery.attempt) == (job_id, attempt)
        await delivery.nak()
    await puller.close()


async def test_a_request_that_does_not_wait_ends_with_what_is_there(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    ledger = Ledger(bus)
    arrived: list[Delivery] = []
    ended = asyncio.Event()
    puller = await bus.pull(names.consumer("one", "mid"), arrived.append)
    puller.on_idle = ended.set
    for there in (0, 3):
        sent = [await ledger.submit("one", floats(1.0)) for _ in range(there)]
        await counted(bus, names.consumer("one", "mid"), waiting=there)
        ended.clear()
        puller.ask(10, expires_s=0.0)
        async with asyncio.timeout(60):
            await ended.wait()
        assert [delivery.job.id for delivery in arrived] == sent
        assert puller.outstanding == 0
        assert not puller.last_refusal
    await puller.close()
