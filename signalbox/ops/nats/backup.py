"""``signalbox backup``: save what NATS keeps into a folder."""

import argparse
from pathlib import Path

from signalbox.bus.client import Bus
from signalbox.ops import backup
from signalbox.ops.nats.connected import tell, with_both


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The folder."""
    parser.description = (
        "Save jobs, records, payloads, dead letters, events, the console's decisions and the items of queues into a "
        "new folder, as JetStream's own snapshots. Who can read the folder can read inputs and results. It does not "
        "hold the console's database, the models and the secrets; docs/operations.md says how to keep those."
    )
    parser.epilog = "Example, nightly: signalbox backup /backups/$(date +%F)"
    parser.add_argument("folder", type=Path, metavar="DIR", help="A folder that does not exist yet.")


def run(arguments: argparse.Namespace) -> int:
    """Save; the exit status."""
    return with_both(_save, arguments)


async def _save(bus: Bus, queue_bus: Bus, arguments: argparse.Namespace) -> int:
    await backup.take(bus, arguments.folder, tell, queue_bus=queue_bus)
    print(f"saved in {arguments.folder}")
    return 0
