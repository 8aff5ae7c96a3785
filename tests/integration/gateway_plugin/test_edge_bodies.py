"""Bodies at the edge: the key first, then so many bytes of one key, of an account and of all."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from gateway_plugin.admission.pool import Pool, bodies_pool
from gateway_plugin.upstream.server import HttpServer
from tests.rigs.edge import LIMIT_S, Held, app, counted
from tests.rigs.edge import edge as edge_of
from tests.rigs.gateway import Key, ScriptedWorker, key, model, rig
from tests.rigs.natsserver import NatsServer

MIB = 1024 * 1024
HELD_BYTES = 66_000
"""Of a body that the server stops reading for, though it is whole."""
HEAD = b"POST /v1/x HTTP/1.1\r\nHost: h\r\nAuthorization: %s\r\n"


class Edge:
    """A listening edge whose bodies together have at most 16 MiB."""

    def __init__(self, held: Held, bodies: Pool, server: HttpServer, client: httpx.AsyncClient) -> None:
        self.held = held
        self.bodies = bodies
        self._address = server.address
        self._client = client

    async def post(self, account: str, body: bytes) -> httpx.Response:
        return await self._client.post("/v1/jobs", headers={"Authorization": account}, content=body)

    @asynccontextmanager
    async def raw(self) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
        host, _, port = self._address.rpartition(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        async with asyncio.timeout(LIMIT_S):
            yield reader, writer
        writer.close()


@pytest.fixture
async def edge() -> AsyncIterator[Edge]:
    held = Held(HELD_BYTES)
    bodies = bodies_pool(16 * MIB)
    server = await HttpServer.start(app(held, bodies), listen="127.0.0.1:0")
    url = f"http://{server.address}"
    async with httpx.AsyncClient(base_url=url, timeout=LIMIT_S) as client:
        yield Edge(held, bodies, server, client)
        held.go.set()
    await server.close(1)


@pytest.mark.parametrize("framing", [b"Content-Length: 30000000", b"Transfer-Encoding: chunked"])
async def test_the_key_is_looked_at_before_a_byte_of_the_body(edge: Edge, framing: bytes) -> None:
    async with edge.raw() as (reader, writer):
        writer.write(HEAD % b"nobody" + framing + b"\r\n\r\n")
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"\r\nconnection: close\r\n" in answer.lower()


async def test_who_waits_to_be_asked_for_a_body_without_a_key_is_not_asked(edge: Edge) -> None:
    async with edge.raw() as (reader, writer):
        expecting = b"Content-Length: 30000000\r\nExpect: 100-continue\r\n\r\n"
        writer.write(HEAD % b"nobody" + expecting)
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 401 ")
    assert b"100 Continue" not in answer


async def test_a_connection_goes_on_after_a_body_that_nobody_wanted(edge: Edge) -> None:
    async with edge.raw() as (reader, writer):
        for _ in range(2):
            writer.write(HEAD % b"nobody" + b"Content-Length: 5000000\r\n\r\n" + bytes(5_000_000))
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 401 ")
            assert b"Connection: close" not in head
            await reader.readexactly(int(head.lower().partition(b"content-length: ")[2].split(b"\r\n")[0]))


@pytest.mark.parametrize("chunked", [False, True])
async def test_a_body_past_what_its_key_may_send_is_413(edge: Edge, chunked: bool) -> None:
    async def parts() -> AsyncIterator[bytes]:
        yield bytes(65_537)

    before = counted("too_large:key")
    body = parts() if chunked else bytes(65_537)
    headers = {"Authorization": "reader"}
    got = await edge._client.post("/v1/jobs", headers=headers, content=body)
    assert got.status_code == 413
    assert "65536" in got.json()["detail"]
    assert counted("too_large:key") == before + 1
    assert " 65536 " in (await edge.post("reader", bytes(65_536))).text
    assert edge.held.sizes.qsize() == 1


async def test_bodies_in_flight_are_bounded_for_each_account_and_for_all(edge: Edge) -> None:
    reasons = ("limit_exceeded:bodies", "unavailable:bodies")
    before = [counted(reason) for reason in reasons]
    held = [asyncio.create_task(edge.post("flood", bytes(4 * MIB))) for _ in range(2)]
    for _ in held:
        await asyncio.wait_for(edge.held.sizes.get(), LIMIT_S)
    own = await edge.post("flood", bytes(4 * MIB))
    other = asyncio.create_task(edge.post("other", bytes(4 * MIB)))
    assert await asyncio.wait_for(edge.held.sizes.get(), LIMIT_S) == 4 * MIB
    full = await edge.post("third", bytes(5 * MIB))
    small = await edge.post("fourth", bytes(100))
    assert (own.status_code, full.status_code, small.status_code) == (429, 503, 200)
    for refused in (own, full):
        assert "nothing was accepted" in refused.json()["detail"]
        assert int(refused.headers["Retry-After"]) >= 1
    assert [counted(reason) for reason in reasons] == [was + 1 for was in before]
    edge.held.go.set()
    answers = await asyncio.gather(*held, other)
    assert {answer.status_code for answer in answers} == {200}
    assert (await edge.post("flood", bytes(8 * MIB))).status_code == 200


@pytest.mark.parametrize("leave", ["body", "answer"])
async def test_what_a_caller_who_leaves_held_is_free_again(edge: Edge, leave: str) -> None:
    async with edge.raw() as (_, writer):
        sent = bytes(HELD_BYTES if leave == "answer" else 10)
        writer.write(HEAD % b"flood" + b"Content-Length: %d\r\n\r\n" % HELD_BYTES + sent)
        if leave == "answer":
            await edge.held.sizes.get()
        await until(lambda: later(edge.bodies.of("flood") == HELD_BYTES))
        assert (await edge.post("flood", bytes(16 * MIB - 1))).status_code == 503
    if leave == "answer":
        await asyncio.wait_for(edge.held.left.wait(), LIMIT_S)
    await until(lambda: later(not edge.bodies.held))


async def test_a_body_that_was_let_in_is_not_refused_once_it_is_there(nats: NatsServer, tmp_path: Path) -> None:
    """It is judged once: later others have taken what was free then."""

    def predict(size: int) -> bytes:
        return b'{"instances":[1.0]}'.ljust(size)

    async with rig(nats.url, tmp_path, max_body_bytes=8_000, max_bodies_bytes=16_000) as front:
        mine, other = key(), key()
        await front.publish(model("half"), mine, other)
        async with edge_of(front) as client:
            waits: list[asyncio.Task[httpx.Response]] = []
            rest = asyncio.Event()

            async def slowly() -> AsyncIterator[bytes]:
                yield predict(4_000)[:100]
                await rest.wait()
                yield predict(4_000)[100:]

            async def send(whose: Key, body: bytes | AsyncIterator[bytes], held: int) -> None:
                """Begin a call, until the bodies in flight have so many bytes."""
                headers = {"Authorization": f"Bearer {whose.text}", "Content-Type": "application/json"}
                if not isinstance(body, bytes):
                    headers["Content-Length"] = "4000"
                call = client.post("/v1/models/half:predict", headers=headers, content=body)
                waits.append(asyncio.create_task(call))
                await until(lambda: later(front.gateway.bodies.held >= held))

            await send(mine, predict(4_000), 4_000)
            await send(mine, slowly(), 8_000)
            await send(other, predict(8_000), 16_000)
            await until(lambda: later(front.gateway._jobs._places.held == 2))
            rest.set()
            await until(lambda: later(front.gateway._jobs._places.held == 3 or waits[1].done()))
            async with ScriptedWorker(front.bus, "half"):
                answers = await asyncio.gather(*waits)
    assert [answer.status_code for answer in answers] == [200] * 3
    assert front.gateway.bodies.held == 0


async def later(is_true: bool) -> bool:
    await asyncio.sleep(0.01)
    return is_true


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not await condition():
            pass
