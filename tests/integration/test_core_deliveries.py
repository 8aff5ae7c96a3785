"""The queue never gives a job up by itself: whoever counts attempts is the job's record."""

import asyncio

from signalbox import names, topology
from signalbox.bus import Bus, Delivery
from tests.submit import Ledger, floats


async def test_a_job_given_back_many_times_is_delivered_again(bus: Bus) -> None:
    await topology.ensure_consumers(bus, "one")
    job_id = await Ledger(bus).submit("one", floats(1.0))
    arrived: asyncio.Queue[Delivery] = asyncio.Queue()
    puller = await bus.pull(names.consumer("one", "mid"), arrived.put_nowait)
    for attempt in range(1, 13):
        puller.ask(1)
        async with asyncio.timeout(30):
            delivery = await arrived.get()
        assert (delivery.job.id, delivery.attempt) == (job_id, attempt)
        await delivery.nak()
    await puller.close()
