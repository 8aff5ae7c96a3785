"""The front of the gateway before an application that only publishes and acknowledges: the reference of queues.

``python -m benchmarks.queues.bare PORT`` has one queue, at :data:`PATH`: it keeps no tables, asks for no key, shares
nothing out, and knows what it gave out only while it runs.
"""

import asyncio
import os
import sys
from pathlib import Path
from typing import Any, Final
from urllib.parse import parse_qs

import uvloop

from gateway_plugin.upstream.server import HttpServer
from signalbox.bus import queues
from signalbox.bus.client import Bus, Delivery, Puller
from signalbox.front.bounds import HttpBounds
from signalbox.program.settings import Wire
from signalbox.wire import queuenames
from signalbox.wire.queues import DEFAULT_GROUP

QUEUE: Final = "bare"
PATH: Final = f"/v1/queues/{QUEUE}"
_STREAM: Final = queuenames.queue_stream(QUEUE, "source")
_SUBJECT: Final = queuenames.queue_item(QUEUE, "source", "lo")
_CONSUMER: Final = queuenames.queue_consumer(DEFAULT_GROUP, "lo")
_WAIT_S: Final = 60.0


class BareQueue:
    """The application."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._given: dict[int, tuple[str, Puller]] = {}

    async def __call__(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        """Answer a put, a commit, or a watch."""
        query = parse_qs(scope["query_string"].decode())
        if scope["type"] == "websocket":
            await self._watch(int(query["_window_"][0]), receive, send)
            return
        body, message = b"", {"more_body": True}
        while message.get("more_body"):
            message = await receive()
            body += message.get("body", b"")
        if scope["method"] == "POST":
            answer = b"%d" % await self._bus.write(_SUBJECT, body)
        else:
            reply, puller = self._given.pop(int(query["_indexes_"][0]))
            await self._bus.request(reply, b"+ACK")
            puller.ask(1, expires_s=_WAIT_S)
            answer = b"OK"
        headers = [(b"content-length", b"%d" % len(answer))]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": answer})

    async def _watch(self, window: int, receive: Any, send: Any) -> None:
        arrived: asyncio.Queue[Delivery] = asyncio.Queue()
        puller = await self._bus.pull(_CONSUMER, arrived.put_nowait, stream=_STREAM)
        await send({"type": "websocket.accept"})
        passing = asyncio.create_task(self._pass_on(arrived, puller, send))
        try:
            puller.ask(window, expires_s=_WAIT_S)
            while (await receive())["type"] != "websocket.disconnect":
                pass
        finally:
            passing.cancel()
            await puller.close()

    async def _pass_on(self, arrived: "asyncio.Queue[Delivery]", puller: Puller, send: Any) -> None:
        while True:
            item = await arrived.get()
            self._given[item.seq] = (item.reply.decode(), puller)
            await send({"type": "websocket.send", "bytes": _frame(item.seq, item.data)})


def _frame(index: int, data: bytes) -> bytes:
    return b"\x08" + _varint(index) + b"\x1a" + _varint(len(data)) + data


def _varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head, value = head + bytes([value & 0x7F | 0x80]), value >> 7
    return head + bytes([value])


def wire() -> Wire:
    """NATS as the plugin reaches it."""
    user, password = (os.environ[f"SIGNALBOX_{name}"] for name in ("QUEUES_NATS_USER", "QUEUES_NATS_PASSWORD_FILE"))
    return Wire(
        nats_url=os.environ["SIGNALBOX_NATS_URL"],
        queues_nats_user=user,
        queues_nats_password=Path(password).read_text().strip(),
    )


async def serve(port: int) -> None:
    """Serve until killed."""
    bus = await queues.connect(wire(), role="gateway")
    await HttpServer.start(BareQueue(bus), listen=f"127.0.0.1:{port}", bounds=HttpBounds())
    await asyncio.Event().wait()


if __name__ == "__main__":
    uvloop.run(serve(int(sys.argv[1])))
