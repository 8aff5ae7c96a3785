"""``python -m gateway_plugin.edge``: the edge as a process of its own, the plugin over gRPC."""

import argparse
import asyncio
import os
import signal
import sys

import msgspec
import uvloop

from gateway_plugin.admission.pool import bodies_pool
from gateway_plugin.edge.definition import load as load_front
from gateway_plugin.edge.remote import remote_plugin
from gateway_plugin.edge.server import EdgeServer
from gateway_plugin.edge.settings import EdgeSettings
from signalbox.front.bounds import raise_descriptors
from signalbox.program import log
from signalbox.program.errors import Misconfigured
from signalbox.program.settings import describe, load

_PREFIX = "SIGNALBOX_EDGE_"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status: 0, or 2 when settings or files are not valid."""
    parser = argparse.ArgumentParser(
        prog="python -m gateway_plugin.edge",
        description="A front for machines without Tyk. It reads the files of tyk/ and calls the "
        "plugin over gRPC, as Tyk does.",
        epilog=f"Every option is also a variable: {_PREFIX}LISTEN, _PLUGIN, _FILES, _GRACE_S.",
    )
    parser.add_argument("--listen", metavar="HOST:PORT", help="where to listen; port 0: any")
    parser.add_argument("--plugin", metavar="TARGET", help="unix:///path or host:port")
    parser.add_argument("--files", metavar="FOLDER", help="folder with tyk.conf, apps/, templates/")
    parser.add_argument("--check-config", action="store_true", help="print the settings and end")
    given = vars(parser.parse_args(arguments))
    is_check = given.pop("check_config")
    try:
        settings = load(EdgeSettings, _PREFIX, os.environ)
        settings = msgspec.structs.replace(
            settings, **{name: value for name, value in given.items() if value is not None}
        )
        load_front(settings.folder)
        if is_check:
            sys.stdout.write(describe(settings, _PREFIX) + "\n")
            return 0
        log.configure(settings.log_level, program="edge")
        uvloop.run(serve(settings))
    except Misconfigured as error:
        sys.stderr.write(f"{error.public_message}\n")
        return 2
    return 0


async def serve(settings: EdgeSettings) -> None:
    """Serves until SIGTERM or SIGINT. Raises Misconfigured when it cannot listen."""
    raise_descriptors(settings, f"{_PREFIX}HTTP_CONNECTIONS")
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop.set)
    async with remote_plugin(settings.plugin) as call:
        server = await EdgeServer.start(
            call,
            listen=settings.listen,
            folder=settings.folder,
            secret=settings.secret,
            bounds=settings,
            bodies=bodies_pool(settings.max_bodies_bytes),
        )
        log.info("edge.listening", address=server.address, plugin=settings.plugin)
        await stop.wait()
        await server.close(settings.grace_s)
        log.info("edge.stopped")


if __name__ == "__main__":
    raise SystemExit(main())
