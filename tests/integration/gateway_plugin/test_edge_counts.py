"""What the edge refuses by itself is counted like any other refusal, by its reason."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway_plugin.upstream.server import HttpServer
from signalbox.front.traffic import BYTES
from tests.rigs.edge import LIMIT_S, Held, app, counted

CALL = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Edge:
    """A listening edge."""

    def __init__(self, server: HttpServer) -> None:
        self._server = server
        self.read_bytes = 0

    async def say(self, data: bytes) -> int:
        """The status of the answer to what may be no request."""
        host, _, port = self._server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read()
        writer.close()
        self.read_bytes = len(answer)
        return int(answer.split(b" ", 2)[1])


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    server = await HttpServer.start(app(Held()), listen="127.0.0.1:0")
    yield Edge(server)
    await server.close(1)


@pytest.mark.parametrize(
    ("reason", "status", "data"),
    [
        ("invalid_request:http", 400, b"\x16\x03\x01 what is this\r\n\r\n"),
        ("invalid_request:http", 400, CALL.replace(b"Host", b"Hostess")),
        ("invalid_request:http", 400, CALL.replace(b"models", b"models?a=\xff")),
        (
            "too_large:key",
            413,
            CALL.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue\r\nContent-Length: 99999999999"),
        ),
        ("method_not_allowed", 405, CALL.replace(b"GET /v1/models", b"DELETE /hello")),
    ],
)
async def test_what_is_no_request_of_ours_is_counted(edge: Edge, reason: str, status: int, data: bytes) -> None:
    before = counted(reason)
    answered = await edge.say(data)
    assert (answered, counted(reason)) == (status, before + 1)


@pytest.mark.parametrize("data", [CALL.replace(b"GET /v1/models", b"GET /hello"), b"\x16\x03\x01 what is this\r\n\r\n"])
async def test_bytes_from_and_to_clients_are_counted(edge: Edge, data: bytes) -> None:
    def moved() -> tuple[float, ...]:
        return tuple(BYTES.labels("edge", way)._value.get() for way in ("received", "sent"))

    before = moved()
    await edge.say(data)
    received, sent = (now - then for now, then in zip(moved(), before, strict=True))
    assert (received, sent) == (len(data), edge.read_bytes)
