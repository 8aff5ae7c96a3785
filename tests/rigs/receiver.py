"""A receiver of webhooks on loopback that behaves as a test says, and remembers what it was sent."""

import asyncio
import contextlib
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import NamedTuple

from signalbox.ops.ports import HOST

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


class Received(NamedTuple):
    """One request. headers: names in small letters."""

    line: str
    headers: dict[str, str]
    body: bytes


Behaviour = Callable[["Received", asyncio.StreamWriter], Awaitable[None]]


class Receiver:
    """Answers with ``answers`` one after the other, and with the last of them from then on."""

    def __init__(self, *answers: bytes | Behaviour) -> None:
        self.received: list[Received] = []
        self.url = ""
        self.port = 0
        self._answers = list(answers or (OK,))
        self._came = asyncio.Condition()
        self._open: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    async def count(self, number: int, timeout_s: float = 20.0) -> list[Received]:
        """What was received, as soon as it is so many."""
        async with asyncio.timeout(timeout_s), self._came:
            await self._came.wait_for(lambda: len(self.received) >= number)
        return self.received

    async def named(self, number: int, timeout_s: float = 20.0) -> None:
        """Return as soon as so many different ids were received."""
        async with asyncio.timeout(timeout_s), self._came:
            await self._came.wait_for(lambda: len({got.headers["webhook-id"] for got in self.received}) >= number)

    @contextlib.asynccontextmanager
    async def serving(self, tls: ssl.SSLContext | None = None) -> AsyncIterator["Receiver"]:
        """Serve on a free port, the same at every start."""
        server = await asyncio.start_server(self._serve, HOST, self.port, ssl=tls)
        self.port = server.sockets[0].getsockname()[1]
        self.url = f"http://{HOST}:{self.port}/hook?x=1"
        try:
            yield self
        finally:
            server.close()
            for task, writer in self._open.items():
                task.cancel()
                writer.transport.abort()
            await asyncio.gather(*self._open, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._open[task] = writer
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
            headers = {
                name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:] if line)
            }
            request = Received(head[0], headers, await reader.readexactly(int(headers.get("content-length", "0"))))
            answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
            async with self._came:
                self.received.append(request)
                self._came.notify_all()
            if isinstance(answer, bytes):
                writer.write(answer)
                await writer.drain()
            else:
                await answer(request, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            del self._open[task]
            writer.close()


def answer(status: str, *headers: str, body: bytes = b"") -> bytes:
    """An answer with ``status``, such as ``500 Oh``."""
    lines = [f"HTTP/1.1 {status}", f"Content-Length: {len(body)}", *headers]
    return "\r\n".join([*lines, "", ""]).encode() + body


async def silence(_: Received, writer: asyncio.StreamWriter) -> None:
    """No answer, until the sender has gone."""
    await writer.wait_closed()
