"""``python -m gateway_plugin.outbound``: the command line."""

import argparse
import os
import sys
from collections.abc import Sequence

from gateway_plugin.outbound.settings import PREFIX, OutboundSettings
from signalbox.program.errors import SignalboxError
from signalbox.program.settings import describe, load


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit status."""
    asked = _parser().parse_args(arguments)
    status = 0
    try:
        settings = load(OutboundSettings, PREFIX, os.environ)
        if asked.check_config:
            sys.stdout.write(describe(settings, PREFIX) + "\n")
        else:
            from gateway_plugin.outbound.program import run

            run(settings)
    except* SignalboxError as group:
        for error in group.exceptions:
            sys.stderr.write(f"gateway_plugin.outbound: {error}\n")
        status = 2
    return status


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gateway_plugin.outbound",
        description="Sends results out: ends of jobs on NATS, webhooks, batches of files. "
        "Settings are SIGNALBOX_OUTBOUND_* variables, see docs/settings.md.",
    )
    parser.add_argument("--check-config", action="store_true", help="print the settings, secrets hidden, and end")
    return parser
