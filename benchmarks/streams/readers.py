"""Readers of streams: ``python -m benchmarks.streams.readers URL KEY`` with a path a line on its input.

Prints ``open`` when every stream has had its head, and at the end of its input the delays of what has come since, in
milliseconds, as JSON. An event says when it was sent, behind ``at=``.
"""

import asyncio
import json
import re
import sys
import time
from typing import Final, cast
from urllib.parse import urlsplit

import uvloop

_SENT: Final = re.compile(rb"at=([0-9]+\.[0-9]+)")
_AT_ONCE: Final = 50
_LONGEST: Final = 32


class _Reader(asyncio.Protocol):
    def __init__(self, request: bytes, delays_ms: list[float]) -> None:
        self._request = request
        self._delays_ms = delays_ms
        self._held = b""
        self.begun: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        cast("asyncio.WriteTransport", transport).write(self._request)  # uvloop's is none by its bases

    def data_received(self, data: bytes) -> None:
        now = time.time()
        if not self.begun.done():
            if not data.startswith(b"HTTP/1.1 200"):
                self.begun.set_exception(RuntimeError(data.decode()))
                return
            self.begun.set_result(None)
        text = self._held + data
        end = 0
        for found in _SENT.finditer(text):
            self._delays_ms.append((now - float(found[1])) * 1000)
            end = found.end()
        self._held = text[max(end, len(text) - _LONGEST) :]


async def read(url: str, key: str, paths: list[str]) -> None:
    """Read streams until the input ends."""
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 80
    delays_ms: list[float] = []
    loop, gate = asyncio.get_running_loop(), asyncio.Semaphore(_AT_ONCE)

    async def begin(path: str) -> None:
        request = f"GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {key}\r\n\r\n".encode()
        async with gate:
            _, reader = await loop.create_connection(lambda: _Reader(request, delays_ms), host, port)
            await reader.begun

    async with asyncio.TaskGroup() as group:
        for path in paths:
            group.create_task(begin(path))
    delays_ms.clear()
    print("open", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    print(json.dumps(delays_ms), flush=True)


if __name__ == "__main__":
    lines = list(iter(lambda: sys.stdin.readline().strip(), ""))
    uvloop.run(read(sys.argv[1], sys.argv[2], lines))
