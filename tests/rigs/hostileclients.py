"""Clients of an HTTP listener that mean it no good, for every program that has one."""

import asyncio
import contextlib
import socket
from typing import Final

Address = tuple[str, int]
LIMIT_S: Final = 60
_MIB: Final = 1024 * 1024
nothing: Final = b""
half_head: Final = b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A"
half_body: Final = b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\nhalf"


async def dial(
    address: Address, *, limit: int = 65536, source: str = ""
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A connection. source: the address it comes from, where that is another than usual."""
    async with asyncio.timeout(LIMIT_S):
        local = (source, 0) if source else None
        return await asyncio.open_connection(*address, limit=limit, local_addr=local)


async def long_field(address: Address) -> bytes:
    """The answer to a head with one header field of 144 MiB."""
    return await _pour(address, b"GET / HTTP/1.1\r\nHost: localhost\r\nX-A: ", bytes([97]) * _MIB, 144)


async def many_fields(address: Address) -> bytes:
    """The answer to a head with a million header fields."""
    return await _pour(address, b"GET / HTTP/1.1\r\nHost: localhost\r\n", b"a: b\r\n" * 10_000, 100)


async def _pour(address: Address, first: bytes, piece: bytes, times: int) -> bytes:
    """Reads while it sends: an answer that waits unread is lost when the server gives a client up that never ends."""
    reader, writer = await dial(address)
    answer = asyncio.create_task(reader.read(65536))
    async with asyncio.timeout(LIMIT_S):
        with contextlib.suppress(ConnectionError):
            writer.write(first)
            for _ in range(times):
                writer.write(piece)
                await writer.drain()
        with contextlib.suppress(ConnectionError):
            await answer
    writer.close()
    return b"" if answer.exception() else answer.result()


async def silent(address: Address, said: bytes, count: int) -> list[bytes]:
    """What ``count`` clients that say so much and no more are answered by the time they are closed."""

    async def one() -> bytes:
        # Said before the server, whose loop this may be, has accepted: the time for a head begins then.
        connection = socket.create_connection(address, timeout=LIMIT_S)
        connection.sendall(said)
        reader, writer = await asyncio.open_connection(sock=connection)
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read()
        writer.close()
        return answer

    return list(await asyncio.gather(*(one() for _ in range(count))))


def refused_by(answer: bytes) -> int | None:
    """The status of an answer; None of a connection that was closed without."""
    return int(answer.split(b" ", 2)[1]) if answer else None
