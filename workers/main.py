"""``python -m workers``: one worker process. Reads settings, connects, serves until SIGTERM."""

import argparse
import asyncio
import gc
import os
import signal
import sys
from collections.abc import Mapping, Sequence

import msgspec
import uvloop

from signalbox.bus.client import Bus
from signalbox.program import health, log, metrics
from signalbox.program.errors import SignalboxError
from signalbox.program.looplag import LoopWatch
from signalbox.program.settings import describe, load
from signalbox.wire.hosts import LEAVE, STAY
from workers.device import devices
from workers.device.listing import listing
from workers.host.identity import WorkerIdentity
from workers.sandbox.confine import probe, tidy
from workers.settings import PREFIX, WorkerSettings
from workers.supervisor import Supervisor

_HELP = """\
One worker: holds one GPU (or a virtual cpu:N) in turn with others and runs queued jobs on it.
It is set up by environment variables, see docs/settings.md; the usual ones:

  SIGNALBOX_NATS_URL        nats://host:port
  SIGNALBOX_WORKER_DEVICE   cpu:0, gpu:0 or an NVIDIA UUID
  SIGNALBOX_WORKER_ID       a name of its own where several workers share a host and a device

SIGTERM drains it: running jobs end, waiting ones are left to the others, the GPU is released.
SIGURG has it serve on while what it has is loaded where it is placed without it; presence says when that is so.
SIGCONT takes that back.
"""


def main(argv: Sequence[str] | None = None, env: Mapping[str, str] = os.environ) -> int:
    """Run the program; returns its exit status: 0 after a drain, 2 for wrong settings, else 1."""
    parser = argparse.ArgumentParser(
        prog="python -m workers", description=_HELP, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--check-config",
        action="store_true",
        help="print the settings, secrets hidden, and what of the sandbox is in force, and end",
    )
    parser.add_argument(
        "--devices",
        nargs="*",
        metavar="DEVICE",
        help="print these devices, or every GPU, as one line of JSON, and end: what `signalbox host` starts workers by",
    )
    options = parser.parse_args(argv)
    try:
        settings = load(WorkerSettings, PREFIX, env)
        if options.devices is not None:
            found = listing(options.devices, lock_dir=settings.lock_folder, cache_dir=settings.cache_folder)
            sys.stdout.buffer.write(msgspec.json.encode(asyncio.run(found)) + b"\n")
            return 0
        settings.leased_device().check()
        confinement = probe(settings.confinement(), settings.device_kind)
    except SignalboxError as error:
        sys.stderr.write(f"{error.public_message}\n")
        return 2
    if options.check_config:
        sys.stdout.write(f"{describe(settings, PREFIX)}\n\n{confinement}\n")
        return 0
    log.configure(settings.log_level, program="worker")
    log.info("worker.sandbox", mode=confinement.mode, active=confinement.active, missing=confinement.missing)
    try:
        uvloop.run(_serve(settings))
    except SignalboxError as error:
        log.error("worker.start_failed", why=error.public_message, code=error.code)
        return 1
    finally:
        tidy(settings.confinement())
    return 0


async def _serve(settings: WorkerSettings) -> None:
    watch = LoopWatch().start()
    identity = WorkerIdentity.of_this_process(settings.worker_id, settings.lock_folder)
    device = await devices.find(settings.device, settings.lock_folder)
    bus = await Bus.connect(settings, role="worker", name=identity.id)
    try:
        supervisor = Supervisor(bus, settings, identity, device)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, supervisor.stop)
        loop.add_signal_handler(LEAVE, supervisor.leave)
        loop.add_signal_handler(STAY, supervisor.stay)
        health.READY.add(supervisor)
        metrics.serve(settings.metrics_port, host=settings.metrics_host)
        gc.collect()
        gc.freeze()  # what lives for ever is not looked at again by every collection
        await supervisor.run()
    finally:
        await bus.close()
        watch.stop()
