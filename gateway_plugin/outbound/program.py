"""The program as it runs: connects to NATS and does its tasks, each under its lease, until it is asked to stop."""

import asyncio
import contextlib
import os
import secrets
import signal
import socket
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

import uvloop

from gateway_plugin.outbound.batches.runner import Batches
from gateway_plugin.outbound.duty import Duty
from gateway_plugin.outbound.follower import follow
from gateway_plugin.outbound.forwarding.runner import Forwarding
from gateway_plugin.outbound.hooks.webhooks import Webhooks
from gateway_plugin.outbound.queues.runner import keep_queues
from gateway_plugin.outbound.settings import OutboundSettings
from gateway_plugin.service.files import Files
from gateway_plugin.service.uploads import Uploads
from signalbox.bus import queues, topology
from signalbox.bus.client import Bus
from signalbox.program import log, metrics
from signalbox.program.errors import SignalboxError
from signalbox.program.looplag import LoopWatch
from signalbox.program.niceness import give_way
from signalbox.program.tasks import TaskGroup
from signalbox.wire.names import program_alive
from signalbox.wire.outboundnames import OUTBOUND

ALIVE_S: Final = 2.0
_NICE: Final = 10
"""Nobody waits for an answer of this program: those who do wait for others on this machine go first."""


def run(settings: OutboundSettings) -> None:
    """Run until SIGTERM or SIGINT. Raises what keeps the program from starting."""
    log.configure(settings.log_level, program=OUTBOUND)
    give_way(_NICE)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings))


async def serve(settings: OutboundSettings) -> None:
    """Run until SIGTERM or SIGINT."""
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(LoopWatch(abort_s=None).start().stop)
        bus = await Bus.connect(settings, role=OUTBOUND)
        stack.push_async_callback(bus.close)
        await topology.require(bus)
        queue_bus = await _queue_bus(bus, settings)
        if queue_bus is not None:
            stack.push_async_callback(queue_bus.close)
        metrics.serve(settings.metrics_port, host=settings.metrics_host)
        owner = settings.id or f"{socket.gethostname()}-{os.getpid()}"
        boot = secrets.token_hex(8)
        async with TaskGroup() as group:
            tasks = [group.create_task(_say_alive(bus))]
            for name, work in _works(bus, queue_bus, settings).items():
                duty = Duty(bus, name, work, owner=owner, boot=boot, ttl_s=settings.duty_s)
                tasks.append(group.create_task(duty.keep(), name=name))
            log.info("outbound.ready", pid=os.getpid(), id=owner)
            await asked_to_stop.wait()
            for task in tasks:
                task.cancel()
    log.info("outbound.stopped")


async def _queue_bus(bus: Bus, settings: OutboundSettings) -> Bus | None:
    """The connection to the account of queues, which without users is that of everything else.

    None where this program has a user in the latter alone: it may do nothing with queues then.
    """
    if settings.queues_nats_user:
        return await queues.connect(settings, role=OUTBOUND)
    if settings.nats_user:
        log.warning("outbound.no_queues", mend="SIGNALBOX_QUEUES_NATS_USER: docs/operations.md, An account for queues")
        return None
    return bus


def _works(bus: Bus, queue_bus: Bus | None, settings: OutboundSettings) -> dict[str, Callable[[], Awaitable[None]]]:
    """The tasks by the names of their leases. Each runs until it is cancelled, and begins from what is stored."""
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "batches": Batches(bus, settings).work,
        "results": partial(follow, bus, settings),
        "uploads": Uploads(bus, Files(bus)).keep_swept,
        "webhooks": lambda: Webhooks(bus, settings).run(),
    }
    if queue_bus is not None:
        works["queues"] = partial(keep_queues, bus, queue_bus)
        works["services"] = Forwarding(bus, queue_bus, settings).work
    return works


async def _say_alive(bus: Bus) -> None:
    while True:
        with contextlib.suppress(SignalboxError):
            await bus.publish(program_alive(OUTBOUND))
        await asyncio.sleep(ALIVE_S)
