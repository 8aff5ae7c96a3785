"""The console as one ASGI application: pages, API, websocket, and what lives as long as the server."""

import os
from typing import Any

os.environ.setdefault("DJANGO_SETTINGS_MODULE", "console.settings")

from django.core.asgi import get_asgi_application

_pages = get_asgi_application()

from channels.auth import AuthMiddlewareStack  # noqa: E402
from channels.routing import ProtocolTypeRouter, URLRouter  # noqa: E402
from django.urls import path  # noqa: E402

from console.catalog.judging import keep_judged  # noqa: E402
from console.live.consumer import LiveConsumer  # noqa: E402
from console.live.lifespan import lifespan as live  # noqa: E402
from console.live.origin import SameOrigin  # noqa: E402
from console.outbox.program import keep_publishing  # noqa: E402
from console.settings import CONSOLE  # noqa: E402
from console.web.bodylimit import BodyLimit  # noqa: E402
from signalbox.front.front import Receive, Scope, Send  # noqa: E402
from signalbox.program.tasks import Background  # noqa: E402

_live: Any = LiveConsumer.as_asgi()  # Channels routes ASGI applications with Django's own path()
_BACKSTOP_S = 5.0
"""Seconds between polls of the outbox: each commit wakes this process's publisher, other processes' postings do not."""


async def lifespan(scope: Scope, receive: Receive, send: Send) -> None:
    """Runs the live feed and a publisher: gateways learn of a key revoked here within milliseconds.

    This program has the models' files, so it also judges versions anew.
    """
    beside = Background()
    beside.start(keep_publishing(CONSOLE, poll_s=_BACKSTOP_S, name="console"), name="outbox")
    beside.start(keep_judged(), name="judging")
    try:
        await live(scope, receive, send)
    finally:
        await beside.cancel()


application = ProtocolTypeRouter(
    {
        "http": BodyLimit(_pages),
        "websocket": SameOrigin(AuthMiddlewareStack(URLRouter([path("ws/live", _live)]))),
        "lifespan": lifespan,
    }
)
