"""The ASGI lifespan of the console: one feed a process, and the answers to what gateways ask, with the server."""

from typing import Final

from django.conf import settings

from console.asked.listener import answer_asks
from console.feed.feed import Feed
from console.feed.fronts import Own
from console.feed.running import running
from console.live.database import projected, unpublished
from signalbox.front.front import Receive, Scope, Send
from signalbox.program.looplag import LoopWatch
from signalbox.program.settings import Wire
from signalbox.program.tasks import Background


class Lifespan:
    """The ASGI lifespan of the console: starts the feed with the server and ends it with it."""

    def __init__(self) -> None:
        self.refused_connections: Own | None = None
        """Connections that the listener of this process turns away, where it is told."""
        self._feeding = Background()
        self._watch: LoopWatch | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Speaks the lifespan protocol of ASGI."""
        while True:
            message = await receive()
            if message["type"] == "lifespan.startup":
                await self.start()
                await send({"type": "lifespan.startup.complete"})
            elif message["type"] == "lifespan.shutdown":
                await self.stop()
                await send({"type": "lifespan.shutdown.complete"})
                return

    async def start(self, wire: Wire | None = None) -> Feed:
        """Starts feeding; wire: default the console's own settings. Returns at once, NATS there or not."""
        feed = Feed(
            wire or settings.CONSOLE,
            cursor=projected,
            unpublished=unpublished,
            refused_connections=self.refused_connections,
        )
        running.feed = feed
        self._watch = LoopWatch(abort_s=None).start()
        self._feeding.start(feed.run(), name="live feed")
        self._feeding.start(answer_asks(wire or settings.CONSOLE), name="answers to gateways")
        return feed

    async def stop(self) -> None:
        """Ends the feed and waits for it. Idempotent."""
        running.feed = None
        if self._watch is not None:
            self._watch.stop()
        await self._feeding.cancel()


lifespan: Final = Lifespan()
"""Registered in :mod:`console.asgi`."""
