"""``signalbox restore``: put a backup into a NATS that has none of our streams."""

import argparse
from pathlib import Path

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops import backup
from signalbox.ops.nats.connected import tell, tell_faults, with_both


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder, and how many copies."""
    parser.description = (
        "Put a backup into an empty NATS. Every file is checked before anything is written. Workers, gateways and "
        "the console must not run meanwhile; start the console's programs first afterwards, so that what was "
        "decided since, such as a revoked key, holds again. Jobs accepted after the backup are gone; those "
        "that ended after it run again."
    )
    parser.epilog = "To test last night's backup: start a nats-server on an empty folder and restore with --replicas 1."
    parser.add_argument("folder", type=Path, metavar="DIR", help="What `signalbox backup` made.")
    parser.add_argument(
        "--replicas",
        type=int,
        choices=(1, 3, 5),
        default=None,
        help="Copies of each stream, where the new NATS has other nodes (default: as it was).",
    )


def run(arguments: argparse.Namespace) -> int:
    """Restore; the exit status."""
    return with_both(_restore, arguments)


async def _restore(bus: Bus, queue_bus: Bus, arguments: argparse.Namespace) -> int:
    await backup.restore(bus, arguments.folder, tell, replicas=arguments.replicas, queue_bus=queue_bus)
    return tell_faults(await topology.check(bus), "restored, and as declared")
