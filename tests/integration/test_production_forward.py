"""A published port of the compose file: what comes to it goes on to the service, and back."""

import asyncio
from contextlib import AsyncExitStack

import pytest

from signalbox.ops.ports import HOST, free_port
from verification.production.forward import forwarded


async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    writer.write(await reader.read())
    writer.close()


async def test_all_of_both_ways_is_carried_and_each_end_passed_on() -> None:
    service, port = await asyncio.start_server(echo, HOST, 0), free_port()
    async with service, forwarded(port, service.sockets[0].getsockname()):
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"word" * 100_000)
        writer.write_eof()
        assert await reader.read() == b"word" * 100_000
        writer.close()


async def test_a_connection_ends_where_nothing_listens() -> None:
    port = free_port()
    async with forwarded(port, (HOST, free_port())):
        reader, writer = await asyncio.open_connection(HOST, port)
        assert await reader.read() == b""
        writer.close()


async def test_what_is_open_is_cut_when_it_is_left() -> None:
    is_there = asyncio.Event()

    async def hear(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        is_there.set()
        await reader.read()
        writer.close()

    service, port = await asyncio.start_server(hear, HOST, 0), free_port()
    async with service, AsyncExitStack() as held:
        await held.enter_async_context(forwarded(port, service.sockets[0].getsockname()))
        reader, writer = await asyncio.open_connection(HOST, port)
        writer.write(b"word")
        await is_there.wait()
        await held.aclose()
        assert await reader.read() == b""
        writer.close()
    with pytest.raises(OSError, match="Connect call failed"):
        await asyncio.open_connection(HOST, port)
