"""The server of HTTP: where it listens, how it ends."""

import asyncio
from pathlib import Path

import httpx
import pytest
from msgspec.structs import replace

from gateway_plugin.listeners import Listeners
from gateway_plugin.upstream.server import HttpServer
from signalbox.program.errors import Misconfigured
from tests.rigs.edge import Held, app
from tests.rigs.gateway import rig
from tests.rigs.natsserver import NatsServer


async def test_a_request_in_flight_is_answered_before_the_end() -> None:
    held = Held()
    server = await HttpServer.start(app(held), listen="127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as client:
        asked = asyncio.create_task(client.get("/v1/x"))
        await asyncio.wait_for(held.asked.acquire(), 60)
        closing = asyncio.create_task(server.close(5))
        with pytest.raises(httpx.ConnectError):
            async with httpx.AsyncClient() as late:
                await late.get(f"http://{server.address}/v1/x")
        held.go.set()
        answer = await asked
        await asyncio.wait_for(closing, 60)
    assert (answer.status_code, answer.text[:6]) == (200, "/v1/x ")
    assert answer.headers["connection"] == "close"


async def test_request_that_outlasts_the_grace_is_cut() -> None:
    held = Held()
    server = await HttpServer.start(app(held), listen="127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as client:
        asked = asyncio.create_task(client.get("/v1/x"))
        await asyncio.wait_for(held.asked.acquire(), 60)
        await asyncio.wait_for(server.close(0.1), 60)
        with pytest.raises(httpx.TransportError):
            await asked
    assert held.left.is_set()


async def test_an_answer_later_than_its_time_never_comes_and_its_call_ends() -> None:
    held = Held()
    server = await HttpServer.start(app(held, answer_s=0.1), listen="127.0.0.1:0")
    async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=60) as client:
        with pytest.raises(httpx.RemoteProtocolError):
            await client.get("/v1/x")
    assert held.left.is_set()
    await server.close(1)


@pytest.mark.parametrize("path", ["/v1/models/a%2Fb:predict?x=1&y=%20z", "/v1/x?a;b", "/v1/../x", "//v1", "/v1/%zz"])
async def test_a_path_is_read_as_it_was_sent(path: str) -> None:
    held = Held()
    held.go.set()
    server = await HttpServer.start(app(held), listen="127.0.0.1:0")
    host, _, port = server.address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n".encode())
    answer = (await asyncio.wait_for(reader.read(), 60)).decode()
    writer.close()
    await server.close(1)
    assert answer.partition("\r\n\r\n")[2].startswith(f"{path} 0 ")


async def test_idle_connections_do_not_hold_the_end_up() -> None:
    held = Held()
    server = await HttpServer.start(app(held), listen="127.0.0.1:0")
    async with httpx.AsyncClient() as client:
        assert (await client.get(f"http://{server.address}/hello")).status_code == 200
        await asyncio.wait_for(server.close(600), 60)


@pytest.mark.parametrize("listen", ["8080", "127.0.0.1:http", "127.0.0.1:1:2"])
async def test_address_that_is_none_is_refused(listen: str) -> None:
    with pytest.raises(Misconfigured):
        await HttpServer.start(app(Held()), listen=listen)


async def test_taken_port_is_said_so() -> None:
    first = await HttpServer.start(app(Held()), listen="127.0.0.1:0")
    with pytest.raises(Misconfigured, match=first.address):
        await HttpServer.start(app(Held()), listen=first.address)
    await first.close(0)


async def test_more_connections_than_open_files_are_refused_at_start(nats: NatsServer, tmp_path: Path) -> None:
    async with rig(nats.url, tmp_path) as front:
        wanted = replace(front.gateway.settings, listen="", edge_listen="127.0.0.1:0", http_connections=2_000_000_000)
        with pytest.raises(Misconfigured, match=r"SIGNALBOX_GATEWAY_HTTP_CONNECTIONS.*ulimit -n"):
            await Listeners(wanted, front.gateway).start()
