"""Ports that the compose file publishes: from this machine's loopback into a container."""

import asyncio
from types import TracebackType
from typing import Self

from signalbox.ports import HOST


class Forwarder:
    """Connections to a port of the loopback go on to a service. ``async with`` it."""

    def __init__(self, port: int, to: tuple[str, int]) -> None:
        self._port = port
        self._to = to
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._carry, HOST, self._port)
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        assert self._server is not None
        self._server.close()

    async def _carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._to)
        except OSError:
            writer.transport.abort()
            return
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(_copy(reader, to_writer, writer))
                group.create_task(_copy(to_reader, writer, to_writer))
        finally:
            writer.close()
            to_writer.close()


async def _copy(
    source: asyncio.StreamReader, target: asyncio.StreamWriter, back: asyncio.StreamWriter
) -> None:
    """All of one way. Its end is passed on; a break of it breaks the other way too."""
    try:
        while data := await source.read(65_536):
            target.write(data)
            await target.drain()
        target.write_eof()
    except OSError:
        target.transport.abort()
        back.transport.abort()
