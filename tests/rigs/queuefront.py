"""A front of queues that answers what a test tells it, over real sockets: HTTP and websockets."""

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from urllib.parse import parse_qsl

import uvicorn


class Asked(NamedTuple):
    """A request. headers: names in lower case."""

    method: str
    path: str
    query: dict[str, str]
    headers: dict[str, str]
    body: bytes = b""


class Answer(NamedTuple):
    status: int
    body: bytes = b""
    headers: Mapping[str, str] = {}


class Watcher:
    """One open watch, as a test's script sees it."""

    def __init__(self, send: Callable[[dict[str, Any]], Awaitable[None]], gone: asyncio.Event) -> None:
        self._send = send
        self.gone = gone

    async def give(self, frame: bytes) -> None:
        await self._send({"type": "websocket.send", "bytes": frame})

    async def close(self, code: int, reason: str = "") -> None:
        await self._send({"type": "websocket.close", "code": code, "reason": reason})


Script = Callable[[Watcher], Awaitable[None]]


class QueueFront:
    """answer: of each request. scripts: of the watches that are opened, one after another."""

    def __init__(self, answer: Callable[[Asked], Answer], *scripts: Script) -> None:
        self.asked: list[Asked] = []
        self.url = ""
        self._answer = answer
        self._scripts = iter(scripts)

    async def app(self, scope: dict[str, Any], receive: Any, send: Any) -> None:
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        query = dict(parse_qsl(scope["query_string"].decode(), keep_blank_values=True))
        if scope["type"] == "websocket":
            self.asked.append(Asked("WATCH", scope["path"], query, headers))
            await self._watch(receive, send)
            return
        body, more = b"", True
        while more:
            part = await receive()
            body, more = body + part.get("body", b""), part.get("more_body", False)
        self.asked.append(asked := Asked(scope["method"], scope["path"], query, headers, body))
        answer = self._answer(asked)
        given = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        await send({"type": "http.response.start", "status": answer.status, "headers": given})
        await send({"type": "http.response.body", "body": answer.body})

    async def _watch(self, receive: Any, send: Any) -> None:
        assert (await receive())["type"] == "websocket.connect"
        script = next(self._scripts, None)
        if script is None:
            problem = b'{"code": "not_found", "detail": "There is no queue sums."}'
            await send({"type": "websocket.http.response.start", "status": 404, "headers": []})
            await send({"type": "websocket.http.response.body", "body": problem})
            return
        await send({"type": "websocket.accept"})
        gone = asyncio.Event()

        async def listen() -> None:
            while (await receive())["type"] != "websocket.disconnect":
                pass
            gone.set()

        async with asyncio.TaskGroup() as group:
            listener = group.create_task(listen())
            await script(Watcher(send, gone))
            listener.cancel()

    @asynccontextmanager
    async def serving(self) -> AsyncIterator["QueueFront"]:
        config = uvicorn.Config(self.app, lifespan="off", log_config=None, ws="websockets-sansio", interface="asgi3")
        server = uvicorn.Server(config)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            self.url = f"http://127.0.0.1:{listener.getsockname()[1]}"
            served = asyncio.create_task(server.serve([listener]))
            try:
                yield self
            finally:
                server.should_exit = server.force_exit = True
                await served


def varint(value: int) -> bytes:
    head = b""
    while value > 0x7F:
        head, value = head + bytes([value & 0x7F | 0x80]), value >> 7
    return head + bytes([value])


def blob(number: int, value: bytes) -> bytes:
    """A field of bytes, of a protobuf message."""
    return varint(number << 3 | 2) + varint(len(value)) + value


def frame(index: int, data: bytes = b"", tags: Mapping[str, str] | None = None) -> bytes:
    """A ``DataFrame``, written by hand as its .proto says."""
    named = b"".join(blob(2, blob(1, k.encode()) + blob(2, v.encode())) for k, v in (tags or {}).items())
    return b"\x08" + varint(index) + named + (blob(3, data) if data else b"")


def frames(*each: bytes) -> bytes:
    """A ``DataFrameList``."""
    return b"".join(blob(1, one) for one in each)
