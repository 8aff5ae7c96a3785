"""What the edge refuses by itself is counted like any other refusal, by its reason."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest

from gateway_plugin.edge.server import EdgeServer
from gateway_plugin.proto.coprocess_pb2 import HookType, Object, SessionState
from signalbox.program import metrics

LIMIT_S = 60
CALL = b"GET /v1/models HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"


class Plugin:
    """Lets everybody in, with the session a test has set."""

    def __init__(self) -> None:
        self.session = SessionState()

    async def call(self, obj: Object) -> Object:
        if obj.hook_type == HookType.CustomKeyCheck:
            obj.session.CopyFrom(self.session)
            obj.session.metadata["token"] = "t"
            return obj
        obj.request.return_overrides.response_code = 200
        return obj


class Edge:
    """A listening edge."""

    def __init__(self, plugin: Plugin, server: EdgeServer) -> None:
        self.plugin = plugin
        self._server = server

    async def say(self, data: bytes) -> int:
        """The status of the answer to what may be no request."""
        host, _, port = self._server.address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(data)
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read()
        writer.close()
        return int(answer.split(b" ", 2)[1])


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    plugin = Plugin()
    server = await EdgeServer.start(plugin.call, listen="127.0.0.1:0")
    yield Edge(plugin, server)
    await server.close(1)


def counted(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("signalbox_refused_total", {"reason": reason}) or 0


@pytest.mark.parametrize(
    ("reason", "status", "data"),
    [
        ("invalid_request:http", 400, b"\x16\x03\x01 what is this\r\n\r\n"),
        ("invalid_request:http", 400, CALL.replace(b"models", b"%zz")),
        ("invalid_request:http", 400, CALL.replace(b"Host", b"Hostess")),
        ("invalid_request:http", 400, CALL.replace(b"models", b"models?a=\xff")),
        (
            "too_large:http",
            413,
            CALL.replace(b"Host: x", b"Host: x\r\nExpect: 100-continue\r\nContent-Length: 99999999999"),
        ),
        ("forbidden:path", 403, CALL.replace(b"GET /v1/models", b"DELETE /hello")),
    ],
)
async def test_what_is_no_request_of_ours_is_counted(edge: Edge, reason: str, status: int, data: bytes) -> None:
    before = counted(reason)
    answered = await edge.say(data)
    assert (answered, counted(reason)) == (status, before + 1)


@pytest.mark.parametrize(
    ("reason", "change", "free"),
    [
        ("limit_exceeded:rate", lambda s: s.MergeFrom(SessionState(rate=2, per=60)), 2),
        ("limit_exceeded:quota", lambda s: s.MergeFrom(SessionState(quota_max=1)), 1),
        ("unauthorized:expired", lambda s: s.MergeFrom(SessionState(expires=1)), 0),
        ("forbidden:inactive", lambda s: s.MergeFrom(SessionState(is_inactive=True)), 0),
    ],
)
async def test_a_key_at_its_limit_is_counted(
    edge: Edge, reason: str, change: Callable[[SessionState], None], free: int
) -> None:
    change(edge.plugin.session)
    before = counted(reason)
    for _ in range(free):
        assert await edge.say(CALL) == 200
    assert counted(reason) == before
    assert await edge.say(CALL) >= 400
    assert counted(reason) == before + 1
