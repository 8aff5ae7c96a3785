"""An address that says ``tls://`` is never spoken to in the clear, whatever the server offers."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import certifi
import pytest

from signalbox.bus import Bus
from signalbox.errors import Unavailable
from signalbox.natsserver import NatsServer
from signalbox.settings import Wire

WAIT_S = 0.5
INFO = b'INFO {"server_id":"x","version":"2.12.0","max_payload":1048576,"headers":true}\r\n'


class Listener:
    """Greets like a NATS server without TLS, and keeps what it is told. heard: of each connection, once it ended."""

    def __init__(self) -> None:
        self.heard: asyncio.Queue[bytes] = asyncio.Queue()
        self.address = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(INFO)
        said = await reader.read(1024)
        self.heard.put_nowait(said)
        writer.close()


@asynccontextmanager
async def listening() -> AsyncIterator[Listener]:
    listener = Listener()
    server = await asyncio.start_server(listener.serve, "127.0.0.1", 0)
    host, port = server.sockets[0].getsockname()[:2]
    listener.address = f"{host}:{port}"
    async with server:
        yield listener


def wire(url: str, **fields: object) -> Wire:
    known = {"connect_timeout_s": WAIT_S, "nats_user": "gateway", "nats_password": "hunter22"}
    return Wire(nats_url=url, **{**known, **fields})  # type: ignore[arg-type]


async def test_a_server_without_tls_is_told_no_password_and_the_error_says_why() -> None:
    async with listening() as listener:
        with pytest.raises(Unavailable, match="the server offers no TLS"):
            await Bus.connect(wire(f"tls://{listener.address}"), role="gateway")
        assert await asyncio.wait_for(listener.heard.get(), 10) == b""


@pytest.mark.parametrize("url", ["{}", "nats://{}", "nats://{},tls://127.0.0.1:1"])
async def test_an_authority_or_one_tls_address_of_several_asks_for_it_too(url: str) -> None:
    async with listening() as listener:
        ca_file = "" if "tls" in url else certifi.where()
        asked = wire(url.format(listener.address), nats_ca_file=ca_file)
        with pytest.raises(Unavailable):
            await Bus.connect(asked, role="gateway")
        assert await asyncio.wait_for(listener.heard.get(), 10) == b""


async def test_without_either_the_password_is_sent() -> None:
    async with listening() as listener:
        with pytest.raises(Unavailable):
            await Bus.connect(wire(f"nats://{listener.address}"), role="gateway")
        assert b"hunter22" in await asyncio.wait_for(listener.heard.get(), 10)


async def test_a_real_server_without_tls_is_refused(nats: NatsServer) -> None:
    url = nats.url.replace("nats://", "tls://")
    with pytest.raises(Unavailable, match="the server offers no TLS"):
        await Bus.connect(Wire(nats_url=url, connect_timeout_s=WAIT_S), role="admin")
