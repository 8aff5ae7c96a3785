"""``python -m console serve``."""

from typing import Any, Final

import uvicorn
from django.conf import settings
from django.core.management.base import BaseCommand, CommandParser

from console.config import PREFIX
from signalbox.front.bounds import raise_descriptors
from signalbox.front.front import Front
from signalbox.front.traffic import CONSOLE
from signalbox.program import log, metrics
from signalbox.program.errors import Misconfigured

_REFUSED: Final = metrics.counter(
    "console_http_refused",
    "Requests and connections refused before the console's own server saw them, by the bound exceeded.",
    "reason",
)
_FOR_EVER_S: Final = 1_000_000  # a connection without a request is the gate's to close


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
        raise_descriptors(console, f"{PREFIX}HTTP_CONNECTIONS")
        log.configure(console.log_level, program="console")
        metrics.serve(console.metrics_port, host=console.metrics_host)
        from console.asgi import application
        from console.live.lifespan import lifespan

        front = Front(
            console,
            refused=lambda reason: _REFUSED.labels(reason).inc(),
            name=CONSOLE,
            has_proxy=console.trust_proxy,
        )
        lifespan.refused_connections = front.refused_connections
        bare = uvicorn.Config(application, http="httptools", log_config=None)
        bare.load()
        uvicorn.run(
            front.app(application),
            http=front.protocol(bare.http_protocol_class),
            host=host.strip("[]") or "127.0.0.1",
            port=int(port),
            lifespan="on",
            ws_max_size=65_536,
            ws_ping_interval=20,
            timeout_keep_alive=_FOR_EVER_S,
            timeout_graceful_shutdown=10,
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
        )
