"""A small HTTP/1.1 client on asyncio streams: keep-alive, lengths, chunks, TLS. Nothing else.

It serves the API client, ``signalbox up`` and ``signalbox demo``, which so need no HTTP package.
Source: RFC 9112.
"""

import asyncio
import ssl
from collections.abc import Mapping
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from signalbox.program.errors import Ambiguous, DeadlineExceeded, Unavailable

MAX_HEAD_BYTES: Final = 65_536


class Response(NamedTuple):
    """An answer. headers: names in lower case; of repeated ones the last."""

    status: int
    headers: Mapping[str, str]
    body: bytes


class _Connection(NamedTuple):
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter


class Pool:
    """Keep-alive connections to one origin. At most ``size`` requests are in flight; more wait."""

    def __init__(self, url: str, *, size: int = 16, timeout_s: float = 60.0) -> None:
        parts = urlsplit(url)
        if parts.scheme not in {"http", "https"} or not parts.hostname:
            raise ValueError(f"not an http(s) URL: {url!r}")
        self._host = parts.hostname
        self._is_tls = parts.scheme == "https"
        self._port = parts.port or (443 if self._is_tls else 80)
        self._base = parts.path.rstrip("/")
        self._authority = parts.netloc.rpartition("@")[2]
        self._timeout_s = timeout_s
        self._idle: list[_Connection] = []
        self._room = asyncio.Semaphore(size)

    async def request(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
        *,
        timeout_s: float | None = None,
    ) -> Response:
        """One request and its whole answer, whatever its status.

        Raises :class:`Unavailable` when nobody listens, :class:`Ambiguous` when the connection broke
        before the answer was whole, :class:`DeadlineExceeded` after ``timeout_s``.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        head = self._head(method, path, len(body), headers or {})
        try:
            async with asyncio.timeout(limit_s), self._room:
                return await self._exchange(head + body, method)
        except TimeoutError as error:
            raise DeadlineExceeded(f"No answer from {self._authority} in {limit_s:g} s.") from error

    async def close(self) -> None:
        """Close the idle connections."""
        while self._idle:
            self._idle.pop().writer.close()

    def _head(self, method: str, path: str, length: int, headers: Mapping[str, str]) -> bytes:
        lines = [f"{method} {self._base}{path} HTTP/1.1", f"Host: {self._authority}"]
        if length or method not in {"GET", "HEAD", "DELETE"}:
            lines.append(f"Content-Length: {length}")
        lines += [f"{name}: {value}" for name, value in headers.items()]
        return ("\r\n".join(lines) + "\r\n\r\n").encode("latin-1")

    async def _exchange(self, request: bytes, method: str) -> Response:
        connection = await self._connect()
        is_reusable = False
        try:
            connection.writer.write(request)
            await connection.writer.drain()
            response, is_reusable = await _read(connection.reader, method)
        except (OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError) as error:
            raise Ambiguous(f"{self._authority} closed the connection without an answer.") from error
        finally:
            if is_reusable:
                self._idle.append(connection)
            else:
                connection.writer.close()
        return response

    async def _connect(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if not connection.reader.at_eof() and not connection.writer.is_closing():
                return connection
            connection.writer.close()
        try:
            return _Connection(
                *await asyncio.open_connection(
                    self._host,
                    self._port,
                    limit=MAX_HEAD_BYTES,
                    ssl=ssl.create_default_context() if self._is_tls else None,
                )
            )
        except OSError as error:
            raise Unavailable(f"Nobody listens at {self._authority}: {error}.") from error


async def _read(reader: asyncio.StreamReader, method: str) -> tuple[Response, bool]:
    """One response, and whether the connection may be used again."""
    status, headers = await _read_head(reader)
    while 100 <= status < 200:  # interim answers
        status, headers = await _read_head(reader)
    is_reusable = headers.get("connection", "").lower() != "close"
    if method == "HEAD" or status in {204, 304}:
        return Response(status, headers, b""), is_reusable
    if "chunked" in headers.get("transfer-encoding", "").lower():
        return Response(status, headers, await _read_chunks(reader)), is_reusable
    if "content-length" in headers:
        body = await reader.readexactly(int(headers["content-length"]))
        return Response(status, headers, body), is_reusable
    return Response(status, headers, await reader.read()), False


async def _read_head(reader: asyncio.StreamReader) -> tuple[int, dict[str, str]]:
    head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
    first, *lines = head.rstrip("\r\n").split("\r\n")
    headers = {}
    for line in lines:
        name, _, value = line.partition(":")
        headers[name.strip().lower()] = value.strip()
    return int(first.split(" ", 2)[1]), headers


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    parts = []
    while size := int((await reader.readuntil(b"\r\n")).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readexactly(2)
    while await reader.readuntil(b"\r\n") != b"\r\n":  # trailers
        pass
    return b"".join(parts)
