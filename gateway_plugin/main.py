"""``python -m gateway_plugin``: the command line, which imports no more than what is asked for needs."""

import argparse
import asyncio
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from gateway_plugin.settings import PREFIX, GatewaySettings
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.program.settings import describe, load


def main(arguments: Sequence[str]) -> int:
    """The program; returns its exit status."""
    asked = _parser().parse_args(arguments)
    status = 0
    try:
        settings = load(GatewaySettings, PREFIX, os.environ)
        if asked.check_config:
            sys.stdout.write(describe(settings, PREFIX) + "\n")
        elif asked.health or asked.end_stuck:
            status = 0 if asyncio.run(_is_healthy(settings, ends_stuck=asked.end_stuck)) else 1
        else:
            from gateway_plugin.program import run

            run(settings)
    except* SignalboxError as group:
        for error in group.exceptions:
            sys.stderr.write(f"gateway_plugin: {error}\n")
        status = 2
    return status


async def _is_healthy(settings: GatewaySettings, *, ends_stuck: bool) -> bool:
    from gateway_plugin.hooks.health import check_health, end_stuck

    if not ends_stuck:
        return await check_health(settings.listen, settings.request_timeout_s)
    if not settings.pid_file:
        raise Misconfigured(f"--end-stuck needs {PREFIX}PID_FILE, here and in the plugin.")
    return await end_stuck(settings.listen, Path(settings.pid_file))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gateway_plugin",
        description="The plugin beside Tyk: checks API keys, accepts jobs, answers for them. "
        "Settings are SIGNALBOX_GATEWAY_* variables, see docs/settings.md.",
    )
    parser.add_argument("--check-config", action="store_true", help="print the settings, secrets hidden, and end")
    parser.add_argument("--health", action="store_true", help="end with 0 if a running plugin says it serves, else 1")
    parser.add_argument(
        "--end-stuck",
        action="store_true",
        help="with --health: kill a plugin that takes connections and answers none, to be started again",
    )
    return parser
