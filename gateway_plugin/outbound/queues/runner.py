"""The task ``queues``: makes the streams of queues, says how they stand, and does what operators ask of them."""

import asyncio
import contextlib

from gateway_plugin.outbound.queues import gauges
from gateway_plugin.outbound.queues.acts import QueueActs
from gateway_plugin.outbound.queues.making import QueueMaker
from gateway_plugin.outbound.queues.standing import Standing
from gateway_plugin.outbound.queues.watching import HeardWatches
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.program.tasks import TaskGroup
from signalbox.wire.names import Bucket
from signalbox.wire.queues import Queue, QueueMark


async def keep_queues(bus: Bus, queue_bus: Bus) -> None:
    """Until cancelled. Raises :class:`Unavailable` where NATS does not answer; begun anew it goes on from what is
    stored. bus, queue_bus: to the account of documents, and of queues, which may be the same."""
    table, marks = Table(bus, Bucket.QUEUES, Queue), Table(bus, Bucket.QUEUE_MARKS, QueueMark)
    stirred = asyncio.Event()
    maker = QueueMaker(bus, queue_bus, table, marks, stirred)
    watches = HeardWatches(queue_bus, stirred)
    standing = Standing(bus, queue_bus, table, marks, maker, watches, stirred)
    acts = QueueActs(bus, queue_bus, table, marks)
    table.on_change(lambda *_: maker.notice())
    for followed in (table, marks):
        followed.on_change(lambda *_: stirred.set())
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(gauges.forget_all)
        for part in (table, marks, watches, acts):
            stack.push_async_callback(part.close)
        await marks.start()
        await table.start()
        await standing.load()
        await maker.start()
        await watches.start()
        await acts.start()
        async with TaskGroup() as group:
            group.create_task(maker.keep(), name="queues' streams")
            group.create_task(standing.keep(), name="queues' states")
