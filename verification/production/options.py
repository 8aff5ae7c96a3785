"""The options of ``make production``."""

import argparse
from pathlib import Path
from typing import Final

import msgspec

COMPOSE_FILE: Final = "docker-compose.yml"


class ProductionOptions(msgspec.Struct, frozen=True, kw_only=True):
    """What to run and where. devices: 1 is the file as it is, two workers on one; more have a worker each.

    has_intervals: workers write down who was in a device (:mod:`workers.runner.intervals`).
    """

    data: Path = Path(".signalbox/production")
    has_any_ports: bool = False
    plugins: int = 2
    devices: int = 1
    has_intervals: bool = False


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options on an argument parser."""
    usual = ProductionOptions()
    parser.add_argument("--data", type=Path, default=usual.data, help="data folder (%(default)s)")
    parser.add_argument(
        "--ports",
        choices=("usual", "any"),
        default="usual",
        help="any: let the system choose the ports of the loopback (%(default)s)",
    )
    parser.add_argument("--plugins", type=int, choices=(1, 2), default=usual.plugins, help="(%(default)s)")
    parser.add_argument(
        "--devices",
        type=int,
        choices=(1, 2, 4),
        default=usual.devices,
        help="virtual devices; 1 is as in the file, two workers on one device, more have a worker each (%(default)s)",
    )
    parser.add_argument(
        "--intervals",
        action="store_true",
        help="workers write down who was in a device and when, for those who strike the stack (verification/chaos)",
    )


def parsed(arguments: argparse.Namespace) -> ProductionOptions:
    """The options as given on a command line."""
    return ProductionOptions(
        data=arguments.data,
        has_any_ports=arguments.ports == "any",
        plugins=arguments.plugins,
        devices=arguments.devices,
        has_intervals=arguments.intervals,
    )
