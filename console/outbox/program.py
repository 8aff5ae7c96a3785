"""The console's background programs: connect, run their parts, and stop on a signal."""

import asyncio
import signal
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from console.outbox.publisher import Publisher
from signalbox.bus.client import Bus
from signalbox.program import log, metrics
from signalbox.program.errors import SignalboxError
from signalbox.program.looplag import LoopWatch
from signalbox.program.settings import Wire
from signalbox.program.tasks import TaskGroup
from signalbox.wire.names import program_alive

_RETRY_S: Final = 1.0
ALIVE_S: Final = 2.0
"""From one heartbeat of a program to the next."""
Parts = Callable[[Bus], list[Coroutine[Any, Any, None]]]
"""Makes the coroutines of a program, each of which runs until cancelled."""


async def connect(settings: Wire, *, name: str) -> Bus:
    """A connection, however long it takes: NATS may come later than we do. Each new reason is logged once."""
    said = ""
    while True:
        try:
            return await Bus.connect(settings, role="console", name=name)
        except SignalboxError as error:
            if error.public_message != said:
                said = error.public_message
                log.warning("nats.unreachable", name=name, reason=said)
            await asyncio.sleep(_RETRY_S)


async def keep_publishing(settings: Wire, *, poll_s: float, name: str) -> None:
    """Publish the outbox until cancelled."""
    async with await connect(settings, name=name) as bus:
        await Publisher(bus, poll_s).run()


def run_program(settings: Wire, name: str, parts: Parts) -> None:
    """Run the parts until SIGTERM or SIGINT; one that fails for good ends the program with its error."""
    log.configure(settings.log_level, program=name)
    metrics.serve(settings.metrics_port, host=settings.metrics_host)
    asyncio.run(_until_signalled(settings, name, parts))


async def _until_signalled(settings: Wire, name: str, parts: Parts) -> None:
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for sent in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(sent, stop.set)
    watch = LoopWatch(abort_s=None).start()
    async with TaskGroup() as group:
        running = group.create_task(_run(settings, name, parts))
        stopped = group.create_task(stop.wait())
        await asyncio.wait([running, stopped], return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        stopped.cancel()
    watch.stop()
    log.info("program.stopped", name=name)


async def _run(settings: Wire, name: str, parts: Parts) -> None:
    async with await connect(settings, name=name) as bus:
        log.info("program.started", name=name)
        async with TaskGroup() as group:
            group.create_task(say_alive(bus, name))
            for part in parts(bus):
                group.create_task(part)


async def say_alive(bus: Bus, name: str) -> None:
    """Say that a program runs, until cancelled; nothing while NATS is away."""
    while True:
        with suppress(SignalboxError):
            await bus.publish(program_alive(name), b"")
        await asyncio.sleep(ALIVE_S)
