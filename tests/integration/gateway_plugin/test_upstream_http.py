"""The HTTP upstream as a gateway's target: who is let in, what is bounded, and that any bytes may be answered."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway_plugin.api.dialect import Dialects
from gateway_plugin.api.hello import Hello
from gateway_plugin.jsonresponses import JsonResponse, json_response
from gateway_plugin.request import Request
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.http import HttpUpstream
from gateway_plugin.upstream.server import HttpServer
from signalbox.program.errors import QueueFull, SignalboxError
from signalbox.wire.keydocs import ApiKey
from tests.rigs.gateway import Key, key, rig
from tests.rigs.natsserver import NatsServer

LIMIT_BYTES = 100_000
OCTETS = {"Content-Type": "application/octet-stream"}


class Echo:
    """A dialect that answers with what it got."""

    limit_bytes = LIMIT_BYTES

    def takes(self, head: str) -> bool:
        return head.startswith("/echo/")

    def keyless(self, request: Request) -> JsonResponse | None:
        is_open = request.method in {"GET", "HEAD"} and request.url == "/echo/live"
        return JsonResponse(200, b"nobody\xff", OCTETS) if is_open else None

    async def answer(self, request: Request, key: ApiKey) -> JsonResponse:
        if request.url.startswith("/echo/full"):
            raise QueueFull("Too many.", retry_after_s=3.0)
        return JsonResponse(200, key.id.encode() + b"\xff" + request.raw_body, OCTETS)

    def refusal(self, error: SignalboxError, _url: str = "") -> JsonResponse:
        return json_response(400, {"error": error.public_message, "code": error.code})


@asynccontextmanager
async def upstream(nats: NatsServer, folder: Path) -> AsyncIterator[tuple[httpx.AsyncClient, Key]]:
    """A client of the upstream, and its key."""
    mine = key()
    async with rig(nats.url, folder) as made:
        await made.publish(mine)
        gateway = made.gateway
        app = HttpUpstream(
            Dialects(Echo(), Hello()), Callers(gateway.keyring, gateway.tokens), gateway.bodies, answer_s=30.0
        )
        server = await HttpServer.start(app, listen="127.0.0.1:0")
        try:
            async with httpx.AsyncClient(base_url=f"http://{server.address}", timeout=30) as client:
                yield client, mine
        finally:
            await server.close(1)


async def test_any_bytes_pass_both_ways(nats: NatsServer, tmp_path: Path) -> None:
    async with upstream(nats, tmp_path) as (client, mine):
        body = bytes(range(256)) * 300
        for headers in ({"Authorization": f"Bearer {mine.text}"}, {"x-api-key": mine.text}):
            answer = await client.post("/echo/a", content=body, headers=headers)
            assert answer.status_code == 200
            assert answer.content == mine.stored.id.encode() + b"\xff" + body
            assert answer.headers["Content-Type"] == "application/octet-stream"


async def test_a_key_is_wanted_once_unless_the_path_needs_none(nats: NatsServer, tmp_path: Path) -> None:
    async with upstream(nats, tmp_path) as (client, mine):
        good = ("Authorization", f"Bearer {mine.text}")
        for headers in ([], [("Authorization", "Bearer sbx_wrong")], [good, good]):
            refused = await client.get("/echo/a", headers=headers)
            assert refused.json()["code"] == "unauthorized", headers
        for _ in range(2):  # on one connection: no body is left on it
            head = await client.head("/echo/live")
            assert (head.content, head.headers["content-length"]) == (b"", "7")
        assert (await client.get("/echo/live")).content == b"nobody\xff"
        assert (await client.request("GET", "/echo/live", content=b"x")).json()["code"] == "invalid_request"


@pytest.mark.parametrize("is_chunked", [False, True])
async def test_a_body_over_the_limit_is_refused_and_holds_nothing(
    nats: NatsServer, tmp_path: Path, is_chunked: bool
) -> None:
    async with upstream(nats, tmp_path) as (client, mine):

        async def parts() -> AsyncIterator[bytes]:
            for _ in range(3):
                yield bytes(LIMIT_BYTES // 2)

        content = parts() if is_chunked else bytes(LIMIT_BYTES + 1)
        refused = await client.post("/echo/a", content=content, headers={"Authorization": mine.text})
        assert refused.json()["code"] == "too_large"
        assert (await client.post("/echo/a", content=b"", headers={"Authorization": mine.text})).status_code == 200


async def test_errors_are_in_the_shape_of_the_paths_dialect(nats: NatsServer, tmp_path: Path) -> None:
    async with upstream(nats, tmp_path) as (client, mine):
        full = await client.get("/echo/full", headers={"Authorization": mine.text})
        assert full.json() == {"error": "Too many.", "code": "queue_full"}
        other = await client.put("/other", headers={"Authorization": mine.text})
        assert (other.status_code, other.json()["code"]) == (405, "method_not_allowed")
        odd = await client.get("/echo/a", headers=[(b"Authorization", mine.text.encode()), (b"X-A", b"\xe9")])
        assert odd.status_code == 200
