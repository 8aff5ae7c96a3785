"""Ports that the compose file publishes: from this machine's loopback into a container."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Final

from signalbox.ops.ports import HOST

CONNECT_S: Final = 10.0


@asynccontextmanager
async def forwarded(port: int, to: tuple[str, int]) -> AsyncIterator[None]:
    """Connections to a port of the loopback go on to a service, until this is left."""
    carried: dict[asyncio.Event, list[asyncio.StreamWriter]] = {}

    async def carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.Event()
        writers = carried[ended] = [writer]
        try:
            async with asyncio.timeout(CONNECT_S):
                to_reader, to_writer = await asyncio.open_connection(*to)
            writers.append(to_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, to_writer, writer))
                group.create_task(_copy(to_reader, writer, to_writer))
        except OSError:  # nothing listens there, or not in time
            writer.transport.abort()
        finally:
            for each in writers:
                each.close()
            del carried[ended]
            ended.set()

    server = await asyncio.start_server(carry, HOST, port)
    try:
        yield
    finally:
        server.close()
        for ended, writers in list(carried.items()):
            for writer in writers:
                writer.transport.abort()
            await ended.wait()


async def _copy(source: asyncio.StreamReader, target: asyncio.StreamWriter, back: asyncio.StreamWriter) -> None:
    """All of one way. Its end is passed on; a break of it breaks the other way too."""
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.write_eof()
    except OSError:
        target.transport.abort()
        back.transport.abort()
