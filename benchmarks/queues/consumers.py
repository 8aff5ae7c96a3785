"""Consumers of queues that cost little, so that they measure the server: a watch each, and a connection for commits.

``python -m benchmarks.queues.consumers URL KEY CONSUMERS ITEMS WINDOW PATH...`` shares its consumers over paths, has
that many items committed in all, one a request, and prints seconds from the first answer to the last. With 0 items it
prints ``open`` once all watches are, and holds them until its input ends.
"""

import asyncio
import base64
import json
import os
import sys
import time
from collections import Counter, deque
from typing import Final, cast
from urllib.parse import urlsplit

import uvloop

LONGEST_S: Final = 300.0
_AT_ONCE: Final = 32
_UPGRADE: Final = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
_BINARY, _CLOSE, _PING = 0x2, 0x8, 0x9
_PONG: Final = b"\x8a\x80\0\0\0\0"
"""An empty one, masked with zeros: our server's pings are empty too."""


class Round:
    """What all consumers of one run share."""

    def __init__(self, items: int) -> None:
        self.over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.statuses: Counter[int] = Counter()
        self.began = self.ended = 0.0
        self._items = items

    def committed(self, status: int) -> None:
        """Count an answer."""
        self.ended = time.perf_counter()
        self.began = self.began or self.ended
        self.statuses[status] += 1
        if self.statuses.total() >= self._items and not self.over.done():
            self.over.set_result(None)

    def fail(self, why: str) -> None:
        """End the run."""
        if not self.over.done():
            self.over.set_exception(RuntimeError(why))


class Commits(asyncio.Protocol):
    """A connection that commits, one index a request. head, tail: of the request, around the index."""

    def __init__(self, head: bytes, tail: bytes, shared: Round) -> None:
        self._head, self._tail = head, tail
        self._round = shared
        self._waiting: deque[int] = deque()
        self._is_busy = False
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.WriteTransport", transport)

    def commit(self, index: int) -> None:
        """Commit it once those before it are."""
        self._waiting.append(index)
        if not self._is_busy:
            self._send()

    def data_received(self, data: bytes) -> None:
        """Take in a part of an answer."""
        self._buffer += data
        head, found, body = self._buffer.partition(b"\r\n\r\n")
        if not found:
            return
        length = head.lower().partition(b"content-length:")[2].split(b"\r\n", 1)[0]
        if len(body) >= int(length or 0):
            status, self._buffer = int(head[9:12]), b""
            self._send()
            self._round.committed(status)

    def _send(self) -> None:
        self._is_busy = bool(self._waiting)
        if self._is_busy:
            assert self._transport is not None
            self._transport.write(self._head + b"%d" % self._waiting.popleft() + self._tail)


class Watching(asyncio.Protocol):
    """A watch: each item that comes is committed."""

    def __init__(self, request: bytes, commits: Commits | None, shared: Round) -> None:
        self._request = request
        self._commits = commits
        self._round = shared
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the watch."""
        self._transport = cast("asyncio.WriteTransport", transport)
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        """Take in frames."""
        self._buffer += data
        if not self.opened.done():
            head, found, rest = self._buffer.partition(b"\r\n\r\n")
            if not found:
                return
            if not head.startswith(b"HTTP/1.1 101"):
                self.opened.set_exception(RuntimeError(self._buffer.decode(errors="replace")))
                return
            self.opened.set_result(None)
            self._buffer = rest
        at = 0
        while (found_frame := _frame(self._buffer, at)) is not None:
            kind, body, at = found_frame
            self._take(kind, body)
        self._buffer = self._buffer[at:]

    def _take(self, kind: int, body: bytes) -> None:
        assert self._transport is not None
        if kind == _BINARY and self._commits is not None:
            self._commits.commit(_index(body))
        elif kind == _PING:
            self._transport.write(_PONG)
        elif kind == _CLOSE:
            self._round.fail(f"the watch was closed: {body!r}")


def _frame(buffer: bytes, at: int) -> tuple[int, bytes, int] | None:
    """Kind, body and end of a frame of a server; None while it is not whole."""
    if len(buffer) < at + 2:
        return None
    length, start = buffer[at + 1], at + 2
    if length >= 126:
        size = 2 if length == 126 else 8
        if len(buffer) < start + size:
            return None
        length, start = int.from_bytes(buffer[start : start + size]), start + size
    end = start + length
    return (buffer[at] & 0x0F, buffer[start:end], end) if len(buffer) >= end else None


def _index(item: bytes) -> int:
    """The first field of a ``DataFrame``."""
    value, shift = 0, 0
    for byte in item[1:]:
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    return value


async def consume(url: str, key: str, consumers: int, items: int, window: int, paths: list[str]) -> None:
    """Run consumers, and print."""
    parts = urlsplit(url)
    host, port = parts.hostname or "", parts.port or 80
    loop, gate, shared = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE), Round(items)

    async def begin(number: int) -> None:
        path = paths[number % len(paths)]
        who = f"Host: {parts.netloc}\r\nAuthorization: {key}\r\nX-EAS-QueueService-Redis-Uid: bench-{number}\r\n"
        token = base64.b64encode(os.urandom(16)).decode()
        upgrade = (
            f"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: {token}\r\n"
        )
        watch = f"GET {path}?_watch_=true&_window_={window} HTTP/1.1\r\n{who}{upgrade}\r\n".encode()
        head, tail = f"PUT {path}?_indexes_=".encode(), f" HTTP/1.1\r\n{who}Content-Length: 0\r\n\r\n".encode()
        async with gate:
            commits = None
            if items:
                _, commits = await loop.create_connection(lambda: Commits(head, tail, shared), host, port)
            _, watching = await loop.create_connection(lambda: Watching(watch, commits, shared), host, port)
            await watching.opened

    async with asyncio.TaskGroup() as group:
        for number in range(consumers):
            group.create_task(begin(number))
    if not items:
        print("open", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
        return
    async with asyncio.timeout(LONGEST_S):
        await shared.over
    print(json.dumps({"seconds": shared.ended - shared.began, "statuses": shared.statuses}), flush=True)


if __name__ == "__main__":
    where, who_asks, *numbers = sys.argv[1:6]
    how_many, of_items, most = map(int, numbers)
    uvloop.run(consume(where, who_asks, how_many, of_items, most, sys.argv[6:]))
