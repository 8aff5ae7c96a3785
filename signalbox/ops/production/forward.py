"""Ports that the compose file publishes: from this machine's loopback into a container."""

import asyncio
from types import TracebackType
from typing import Final, Self

from signalbox.ops.ports import HOST

CONNECT_S: Final = 10.0


class Forwarder:
    """Connections to a port of the loopback go on to a service. ``async with`` it."""

    def __init__(self, port: int, to: tuple[str, int]) -> None:
        self._port = port
        self._to = to
        self._server: asyncio.Server | None = None
        self._open: dict[asyncio.Event, list[asyncio.StreamWriter]] = {}

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, HOST, self._port)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._server is not None
        self._server.close()
        for ended, writers in list(self._open.items()):
            for writer in writers:
                writer.transport.abort()
            await ended.wait()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        ended = asyncio.Event()
        writers = self._open[ended] = [writer]
        try:
            async with asyncio.timeout(CONNECT_S):
                to_reader, to_writer = await asyncio.open_connection(*self._to)
            writers.append(to_writer)
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, to_writer, writer))
                group.create_task(_copy(to_reader, writer, to_writer))
        except OSError:  # nothing listens there, or not in time
            writer.transport.abort()
        finally:
            for each in writers:
                each.close()
            del self._open[ended]
            ended.set()


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
