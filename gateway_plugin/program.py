"""The plugin as it runs: connects to NATS, serves the gateway and, if asked, the edge, drains at the end."""

import asyncio
import contextlib
import gc
import os
import signal
from pathlib import Path
from typing import Final

import uvloop

from gateway_plugin.gateway import Gateway
from gateway_plugin.listeners import Listeners
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.upstream.report import report
from signalbox.bus import queues, topology
from signalbox.bus.client import Bus
from signalbox.program import log, metrics
from signalbox.program.errors import Misconfigured
from signalbox.program.heldfile import HeldFile
from signalbox.program.looplag import LoopWatch
from signalbox.program.tasks import Background

_LAST_WORDS_S: Final = 1.0
_GC_THRESHOLDS: Final = (20_000, 20, 50)


def run(settings: GatewaySettings) -> None:
    """Run the plugin until SIGTERM or SIGINT. Raises what keeps it from starting."""
    log.configure(settings.log_level, program="gateway_plugin")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve(settings))


async def serve(settings: GatewaySettings) -> None:
    """Run until SIGTERM or SIGINT, then drain. Raises what keeps the plugin from starting."""
    asked_to_stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, asked_to_stop.set)
    async with contextlib.AsyncExitStack() as stack:
        watch = LoopWatch().start()
        stack.callback(watch.stop)
        if settings.pid_file:
            stack.callback(_held(Path(settings.pid_file)).close)
        bus = await Bus.connect(settings, role="gateway")
        stack.push_async_callback(bus.close)
        await topology.require(bus)
        queue_bus = await _queue_bus(settings, stack)
        gateway = await Gateway.start(bus, settings, queue_bus)
        stack.push_async_callback(gateway.close)
        listeners = Listeners(settings, gateway)
        addresses = await listeners.start()
        metrics.serve(settings.metrics_port, host=settings.metrics_host)
        # Objects that live now live as long as the process: the collector need not look at them again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        if listeners.edge is not None:
            reporting = Background()
            reporting.start(report(bus, listeners.edge.refused_connections), name="refused connections")
            stack.push_async_callback(reporting.cancel)
        log.info("gateway.ready", pid=os.getpid(), **addresses)
        await asked_to_stop.wait()
        log.info("gateway.draining", drain_s=settings.drain_s)
        await _drain(settings, gateway, listeners)
    log.info("gateway.stopped")


async def _queue_bus(settings: GatewaySettings, stack: contextlib.AsyncExitStack) -> Bus | None:
    """The connection to the account of the queue service; None where that is no account of its own."""
    if not settings.queues_nats_user:
        return None
    bus = await queues.connect(settings, role="gateway-queues")
    stack.push_async_callback(bus.close)
    return bus


def _held(pid_file: Path) -> HeldFile:
    """The file with our id in it, locked. Raises :class:`Misconfigured` where another process has it."""
    held = HeldFile(pid_file)
    try:
        if held.take():
            return held
    except OSError as error:
        raise Misconfigured(f"Cannot write {pid_file}: {error.strerror}.") from error
    raise Misconfigured(f"{pid_file} is that of another plugin (pid {held.holder()}).")


async def _drain(settings: GatewaySettings, gateway: Gateway, listeners: Listeners) -> None:
    """Listen no more; calls in flight get their answers, and at the end of the grace their job's id."""
    await listeners.replaced()
    gateway.end_streams()
    last_words = asyncio.get_running_loop().call_later(settings.drain_s, gateway.stop_waiting)
    try:
        await listeners.stop(settings.drain_s + _LAST_WORDS_S)
    finally:
        last_words.cancel()
