"""``python -m console serve``."""

from typing import Any

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from signalbox import log, metrics
from signalbox.errors import Misconfigured


class Command(BaseCommand):
    help = "Serve the web console (pages, REST API, websocket) with uvicorn."
    requires_system_checks = []

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--listen", help="host:port, instead of SIGNALBOX_CONSOLE_LISTEN")

    def handle(self, *args: Any, **options: Any) -> None:
        console = settings.CONSOLE
        host, _, port = (options["listen"] or console.listen).rpartition(":")
        if not port.isdecimal():
            raise Misconfigured("SIGNALBOX_CONSOLE_LISTEN is host:port, e.g. 127.0.0.1:8000.")
        log.configure(console.log_level, program="console")
        metrics.serve(console.metrics_port, host=console.metrics_host)
        uvicorn.run(
            "console.asgi:application", host=host.strip("[]") or "127.0.0.1", port=int(port),
            lifespan="on", ws_max_size=65_536, ws_ping_interval=20, timeout_graceful_shutdown=10,
            log_config=None, access_log=False, server_header=False, proxy_headers=False,
        )  # fmt: skip
