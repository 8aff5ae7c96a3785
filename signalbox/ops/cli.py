"""The ``signalbox`` command. Every subcommand explains itself: ``signalbox COMMAND --help``."""

import argparse
import asyncio
import importlib
import os
import sys
import time
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

from signalbox import __version__
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.ops import backup, dead, natsserver
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import PREFIX, Wire, load

_GIB: Final = 1024**3
_EXIT_DIFFERS: Final = 1
_EXIT_REFUSED: Final = 2
_PROGRAMS: Final = {
    "up": ("up.main", "Start everything on this machine; Ctrl-C stops it."),
    "demo": ("demo", "Send a stream of real digits, so that the board moves."),
    "doctor": ("doctor.main", "Name every weak setting of a deployment."),
}
"""Subcommands that bring their own options (``add_arguments``) and act (``run``), by name: module and what they do."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; returns its exit status: 0 done, 1 it is not as it should be, 2 refused."""
    given = sys.argv[1:] if argv is None else argv
    arguments = _parser(given).parse_args(given)
    act: Callable[[argparse.Namespace], int] = arguments.act
    try:
        return act(arguments)
    except SignalboxError as error:
        print(f"signalbox: {error.public_message}", file=sys.stderr)
        return _EXIT_REFUSED
    except KeyboardInterrupt:
        return 130


def _parser(argv: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="signalbox",
        description="Durable TensorFlow inference behind Tyk: one job queue, one holder per GPU.",
        epilog="Programs of their own: python -m gateway_plugin, python -m workers, python -m console.",
    )
    parser.add_argument("--version", action="version", version=f"signalbox {__version__}")
    commands = parser.add_subparsers(title="commands", required=True, metavar="COMMAND")
    _add_topology(commands)
    _add_backup(commands)
    _add_restore(commands)
    _add_nats_users(commands)
    _add_dead(commands)
    for name, (module, text) in _PROGRAMS.items():
        _add_program(commands, name, module, text, is_asked=name in argv)
    return parser


def _add_topology(commands: Any) -> None:
    parser = commands.add_parser(
        "topology",
        help="Create or check the streams and buckets on NATS.",
        description="Create or check every stream and bucket on NATS. Reads SIGNALBOX_NATS_URL, _USER, _PASSWORD.",
        epilog="Example: SIGNALBOX_NATS_URL=nats://n1:4222,nats://n2:4222 signalbox topology apply --replicas 3",
    )
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
    apply.set_defaults(act=partial(_with_bus, _topology_apply))
    check = acts.add_parser("check", help="Name every difference; exit status 1 if there is one.")
    check.set_defaults(act=partial(_with_bus, _topology_check))


def _add_backup(commands: Any) -> None:
    parser = commands.add_parser(
        "backup",
        help="Save what NATS keeps into a folder, while everything runs.",
        description=(
            "Save queue, records, payloads, dead letters, events and the console's decisions into a new folder, as "
            "JetStream's own snapshots. Who can read the folder can read inputs and results. It does not hold the "
            "console's database, the models and the secrets; docs/operations.md says how to keep those."
        ),
        epilog="Example, nightly: signalbox backup /backups/$(date +%F)",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="A folder that does not exist yet.")
    parser.set_defaults(act=partial(_with_bus, _backup))


def _add_restore(commands: Any) -> None:
    parser = commands.add_parser(
        "restore",
        help="Put a backup into a NATS that has none of our streams.",
        description=(
            "Put a backup into an empty NATS. Every file is checked before anything is written. Workers, gateways and "
            "the console must not run meanwhile; start the console's programs first afterwards, so that what was "
            "decided since, such as a revoked key, holds again. Jobs accepted after the backup are gone; those "
            "that ended after it run again."
        ),
        epilog="To test last night's backup: start a nats-server on an empty folder and restore with --replicas 1.",
    )
    parser.add_argument("folder", type=Path, metavar="DIR", help="What `signalbox backup` made.")
    parser.add_argument(
        "--replicas",
        type=int,
        choices=(1, 3, 5),
        default=None,
        help="Copies of each stream, where the new NATS has other nodes (default: as it was).",
    )
    parser.set_defaults(act=partial(_with_bus, _restore))


def _add_nats_users(commands: Any) -> None:
    parser = commands.add_parser(
        "nats-users",
        help="Print the users block of a nats-server configuration.",
        description=(
            "Print the authorization block of nats.conf: one user per role with the subjects it needs and no others. "
            "Passwords stay outside, in NATS_<USER>_PASSWORD of the server's environment."
        ),
    )
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        metavar="ID[=GPU,...]",
        help=(
            "A user for this worker alone (SIGNALBOX_NATS_USER is its SIGNALBOX_WORKER_ID), who may write its own "
            "tickets and presence and, with device ids, their leases only. Given once, there is no user that all "
            "workers share."
        ),
    )
    parser.set_defaults(act=_nats_users)


def _add_dead(commands: Any) -> None:
    text = "Look at jobs that were given up; run them again or discard them."
    parser = commands.add_parser("dead", help=text, description=text)
    dead.add_arguments(parser)
    parser.set_defaults(act=partial(_with_bus, dead.run))


def _add_program(commands: Any, name: str, module: str, text: str, *, is_asked: bool) -> None:
    """A subcommand in a module of its own, imported only where it is asked for: images lack what others need."""
    parser = commands.add_parser(name, help=text, description=text)
    if is_asked:
        program = importlib.import_module(f"signalbox.ops.{module}")
        program.add_arguments(parser)
        parser.set_defaults(act=program.run)


async def _topology_apply(bus: Bus, arguments: argparse.Namespace) -> int:
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


async def _topology_check(bus: Bus, _: argparse.Namespace) -> int:
    return _tell_faults(await topology.check(bus), "as declared")


async def _backup(bus: Bus, arguments: argparse.Namespace) -> int:
    await backup.take(bus, arguments.folder, _tell)
    print(f"saved in {arguments.folder}")
    return 0


async def _restore(bus: Bus, arguments: argparse.Namespace) -> int:
    await backup.restore(bus, arguments.folder, _tell, replicas=arguments.replicas)
    return _tell_faults(await topology.check(bus), "restored, and as declared")


def _tell_faults(faults: Sequence[str], otherwise: str) -> int:
    print("\n".join(faults) if faults else otherwise)
    return _EXIT_DIFFERS if faults else 0


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _with_bus(act: Callable[[Bus, argparse.Namespace], Coroutine[Any, Any, int]], arguments: argparse.Namespace) -> int:
    settings = load(Wire, PREFIX, os.environ)
    log.configure("WARNING", program="signalbox")

    async def run() -> int:
        async with await Bus.connect(settings, role="admin", name="cli") as bus:
            return await act(bus, arguments)

    return asyncio.run(run())


def _nats_users(arguments: argparse.Namespace) -> int:
    workers: dict[str, list[str]] = {}
    for text in arguments.worker:
        name, _, gpus = text.partition("=")
        workers[name] = [gpu for gpu in gpus.split(",") if gpu]
    print(natsserver.users(workers))
    return 0
