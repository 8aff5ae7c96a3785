"""A server of streams that knows nothing of jobs: ``python -m benchmarks.streams.bare PORT``, NATS by its variables.

``GET /ID`` subscribes to the events of a job's record and sends each on as it is: what the same events cost at least.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any

import uvicorn
import uvloop

from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire import names
from signalbox.wire.names import Header


def wire() -> Wire:
    """NATS as the plugin reaches it."""
    return Wire(
        nats_url=os.environ["SIGNALBOX_NATS_URL"],
        nats_user=os.environ["SIGNALBOX_NATS_USER"],
        nats_password=Path(os.environ["SIGNALBOX_NATS_PASSWORD_FILE"]).read_text().strip(),
    )


async def serve(port: int) -> None:
    """Serve until killed."""
    bus = await Bus.connect(wire(), role="gateway")

    async def app(scope: dict[str, Any], _receive: Any, send: Any) -> None:
        events: asyncio.Queue[str] = asyncio.Queue()
        subject = names.event_of_state(scope["path"].strip("/"))
        subscription = await bus.subscribe(subject, lambda message: events.put_nowait(message.headers[Header.RECORD]))
        headers = [(b"content-type", b"text/event-stream")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        try:
            while True:
                part = b"event: state\ndata: %s\n\n" % (await events.get()).encode()
                await send({"type": "http.response.body", "body": part, "more_body": True})
        finally:
            await subscription.close()

    config = uvicorn.Config(app, host="127.0.0.1", port=port, http="httptools", lifespan="off", log_config=None)
    await uvicorn.Server(config).serve()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
