"""``signalbox topology``: create or check the streams and buckets on NATS."""

import argparse
import time
from typing import Final

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops.nats.connected import tell_faults, with_bus

_GIB: Final = 1024**3


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The acts and their options."""
    parser.description = "Create or check every stream and bucket on NATS. Reads SIGNALBOX_NATS_URL, _USER, _PASSWORD."
    parser.epilog = "Example: SIGNALBOX_NATS_URL=nats://n1:4222,nats://n2:4222 signalbox topology apply --replicas 3"
    acts = parser.add_subparsers(required=True, metavar="ACT")
    apply = acts.add_parser("apply", help="Make NATS be as declared; may be repeated.")
    apply.add_argument(
        "--replicas",
        type=int,
        choices=(1, 3, 5),
        default=1,
        help="Copies of each stream: 1 on a single server, 3 on a cluster of three (default: 1).",
    )
    apply.add_argument(
        "--storage-gib",
        type=float,
        default=16.0,
        help="Disk that all streams together may take on each server, in GiB (default: 16).",
    )
    apply.set_defaults(bus_act=_apply)
    check = acts.add_parser("check", help="Name every difference; exit status 1 if there is one.")
    check.set_defaults(bus_act=_check)


def run(arguments: argparse.Namespace) -> int:
    """Apply or check; the exit status."""
    return with_bus(arguments.bus_act, arguments)


async def _apply(bus: Bus, arguments: argparse.Namespace) -> int:
    before = await topology.last_sequences(bus)
    done = await topology.apply(
        bus,
        arguments.replicas,
        storage_bytes=int(arguments.storage_gib * _GIB),
        first_seq=topology.numbers_from(time.time()),
    )
    print("\n".join(done) if done else "as declared; nothing to do")
    if before and topology.REMEMBERED - before.keys():
        print("STATE or the leases were lost: start every gateway, worker and console program anew")
    return 0


async def _check(bus: Bus, _: argparse.Namespace) -> int:
    return tell_faults(await topology.check(bus), "as declared")
