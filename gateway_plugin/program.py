"""The plugin as it runs: connects to NATS, serves the gateway and, if asked, the edge, drains at the end."""

import asyncio
import contextlib
import gc
import os
import signal
import stat
from pathlib import Path
from typing import TYPE_CHECKING, Final

import uvloop

from gateway_plugin.edge.report import report
from gateway_plugin.gateway import Gateway
from gateway_plugin.hooks.server import PluginServer
from gateway_plugin.settings import PREFIX, UNIX, GatewaySettings
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.front.bounds import raise_descriptors
from signalbox.program import log, metrics
from signalbox.program.errors import Misconfigured
from signalbox.program.heldfile import HeldFile
from signalbox.program.looplag import LoopWatch
from signalbox.program.tasks import Background

if TYPE_CHECKING:
    from gateway_plugin.edge.server import EdgeServer

_LAST_WORDS_S: Final = 1.0
_AGE_JITTER: Final = 1.2
"""gRPC makes a connection's age a tenth longer or shorter, and redialling takes a moment."""
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
        gateway = await Gateway.start(bus, settings)
        stack.push_async_callback(gateway.close)
        server, edge = await _listen(settings, gateway)
        metrics.serve(settings.metrics_port, host=settings.metrics_host)
        # Objects that live now live as long as the process: the collector need not look at them again.
        gc.collect()
        gc.freeze()
        gc.set_threshold(*_GC_THRESHOLDS)
        if edge is not None:
            reporting = Background()
            reporting.start(report(bus, edge.refused_connections), name="refused connections")
            stack.push_async_callback(reporting.cancel)
        log.info(
            "gateway.ready", listen=server.address if server else "", edge=edge.address if edge else "", pid=os.getpid()
        )
        await asked_to_stop.wait()
        log.info("gateway.draining", drain_s=settings.drain_s)
        await _drain(settings, gateway, server, edge)
    log.info("gateway.stopped")


def _held(pid_file: Path) -> HeldFile:
    """The file with our id in it, locked. Raises :class:`Misconfigured` where another process has it."""
    held = HeldFile(pid_file)
    try:
        if held.take():
            return held
    except OSError as error:
        raise Misconfigured(f"Cannot write {pid_file}: {error.strerror}.") from error
    raise Misconfigured(f"{pid_file} is that of another plugin (pid {held.holder()}).")


async def _listen(settings: GatewaySettings, gateway: Gateway) -> "tuple[PluginServer | None, EdgeServer | None]":
    server = edge = None
    if settings.listen:
        _check_folder(settings.listen)
        server = await PluginServer.start(settings, gateway.dispatcher, lambda: gateway.is_healthy)
    if settings.edge_listen:
        from gateway_plugin.edge.definition import SOURCE
        from gateway_plugin.edge.server import EdgeServer

        raise_descriptors(settings, f"{PREFIX}HTTP_CONNECTIONS")
        edge = await EdgeServer.start(
            gateway.of_edge,
            listen=settings.edge_listen,
            folder=Path(settings.edge_files) if settings.edge_files else SOURCE,
            secret=settings.secret,
            bounds=settings,
            has_proxy=settings.trusted_proxies > 0,
            bodies=gateway.bodies,
        )
    return server, edge


def _check_folder(listen: str) -> None:
    """Raise :class:`Misconfigured` if another user could replace our socket with one of their own."""
    if not listen.startswith(UNIX):
        return
    folder = Path(listen.removeprefix(UNIX)).parent
    with contextlib.suppress(OSError):  # a folder that is not there is the server's to report
        mode = folder.stat().st_mode
        if mode & stat.S_IWOTH and not mode & stat.S_ISVTX:
            raise Misconfigured(f"Every user may write to {folder}, and so replace the plugin's socket; chmod o-w.")


async def _drain(
    settings: GatewaySettings, gateway: Gateway, server: PluginServer | None, edge: "EdgeServer | None"
) -> None:
    """Listen no more; calls in flight get their answers, and at the end of the grace their job's id."""
    if server is not None and server.is_replaced:
        await asyncio.sleep(settings.max_connection_age_s * _AGE_JITTER)
    grace_s = settings.drain_s + _LAST_WORDS_S
    last_words = asyncio.get_running_loop().call_later(settings.drain_s, gateway.stop_waiting)
    try:
        async with asyncio.TaskGroup() as group:
            if server is not None:
                group.create_task(server.stop(grace_s))
            if edge is not None:
                group.create_task(edge.close(grace_s))
    finally:
        last_words.cancel()
