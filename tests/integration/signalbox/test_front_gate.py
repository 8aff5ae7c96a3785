"""What strangers can take of the edge's listener before anybody knows them, while another caller goes on."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import cast

import httpx
import pytest
from msgspec.structs import replace

from gateway_plugin.upstream.server import HttpServer
from signalbox.front.bounds import HttpBounds
from signalbox.front.front import Front
from signalbox.front.gate import Gate, Shared
from signalbox.front.traffic import EDGE, Traffic
from tests.rigs.edge import Held, app, counted
from tests.rigs.hostileclients import (
    LIMIT_S,
    Address,
    dial,
    half_body,
    half_head,
    long_field,
    many_fields,
    nothing,
    refused_by,
    silent,
)

CALL = b"GET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n"
QUICK = HttpBounds(http_head_s=1.0, http_body_s=1.0)


Serve = Callable[..., Awaitable[Address]]


@pytest.fixture
async def plugin() -> Held:
    held = Held()
    held.go.set()
    return held


@pytest.fixture
async def serve(plugin: Held) -> AsyncIterator[Serve]:
    servers: list[HttpServer] = []

    async def start(bounds: HttpBounds = QUICK) -> Address:
        server = await HttpServer.start(app(plugin), listen="127.0.0.1:0", bounds=bounds)
        servers.append(server)
        host, _, port = server.address.rpartition(":")
        return host, int(port)

    yield start
    for server in servers:
        await server.close(1)


@asynccontextmanager
async def another_caller(address: Address) -> AsyncIterator[None]:
    """Somebody whose calls go on all the while; each of them must succeed."""
    has_called = asyncio.Event()

    async def call_often() -> None:
        async with httpx.AsyncClient(base_url=f"http://{address[0]}:{address[1]}") as client:
            while True:
                answer = await client.post("/v1/models/x:predict", json={}, timeout=LIMIT_S)
                assert answer.status_code == 200
                has_called.set()
                await asyncio.sleep(0)

    caller = asyncio.create_task(call_often())
    try:
        async with asyncio.timeout(LIMIT_S):
            await has_called.wait()
        yield
        has_called.clear()
        async with asyncio.timeout(LIMIT_S):
            await has_called.wait()
    finally:
        caller.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await caller


@pytest.mark.parametrize(("attack", "reason"), [(long_field, "too_large:head"), (many_fields, "too_large:head")])
async def test_heads_without_end_are_431_and_cost_nobody_anything(
    serve: Serve, attack: Callable[[Address], Awaitable[bytes]], reason: str
) -> None:
    address = await serve(HttpBounds())
    before = counted(reason)
    async with another_caller(address):
        answers = await asyncio.gather(*(attack(address) for _ in range(4)))
    assert [answer.split(b"\r\n")[0] for answer in answers] == [b"HTTP/1.1 431 Request Header Fields Too Large"] * 4
    assert counted(reason) == before + 4


@pytest.mark.parametrize(
    ("say", "status", "reason"),
    [
        (nothing, None, "deadline_exceeded:head"),
        (half_head, 408, "deadline_exceeded:head"),
        (half_body, 408, "deadline_exceeded:body"),
    ],
)
async def test_five_hundred_silent_clients_are_closed(
    serve: Serve, say: bytes, status: int | None, reason: str
) -> None:
    address = await serve()
    before = counted(reason)
    async with another_caller(address):
        answers = await silent(address, say, 500)
    assert {refused_by(answer) for answer in answers} == {status}
    assert counted(reason) == before + 500


async def test_connections_past_the_bounds_are_503_until_others_have_gone(serve: Serve) -> None:
    reasons = ("limit_exceeded:connections", "unavailable:connections")
    for change, reason in zip(({"http_connections_per_address": 20}, {"http_connections": 20}), reasons, strict=True):
        address = await serve(replace(HttpBounds(), **change))
        before = counted(reason)
        held = [await dial(address) for _ in range(20)]
        reader, writer = await dial(address)
        writer.write(CALL)
        async with asyncio.timeout(LIMIT_S):
            answer = await reader.read()
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"\r\nRetry-After: " in answer
        writer.close()
        assert counted(reason) == before + 1
        for _, idle in held:
            idle.close()
            await idle.wait_closed()
        async with another_caller(address):
            pass


async def test_a_long_wait_and_what_is_computed_meanwhile_are_nobodys_fault(serve: Serve, plugin: Held) -> None:
    plugin.go.clear()
    reader, writer = await dial(await serve())
    writer.write(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\n\r\nabc")
    await plugin.asked.acquire()
    silent_ones = await silent((await serve())[:2], half_head, 3)  # all their time passes meanwhile
    assert {refused_by(answer) for answer in silent_ones} == {408}
    plugin.go.set()
    async with asyncio.timeout(LIMIT_S):
        assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_body_that_comes_slowly_but_comes_is_taken(serve: Serve) -> None:
    """Longer than the time for a body, in pieces each of which is progress."""
    address = await serve()
    reader, writer = await dial(address)
    pieces = 8
    writer.write(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (pieces * 32768))
    for _ in range(pieces):
        writer.write(bytes(32768))
        await asyncio.sleep(QUICK.http_body_s / 3)  # time itself is what is tested
    async with asyncio.timeout(LIMIT_S):
        assert b" 200 " in await reader.readline()
        head = await reader.readuntil(b"\r\n\r\n")
        assert b"content-length" in head
        assert f"/v1/x {pieces * 32768} ".encode() in await reader.read(200)
    writer.close()


@pytest.mark.parametrize("expect", [b"x", b"100-continue"])
async def test_who_expects_something_and_sends_no_body_is_408(serve: Serve, expect: bytes) -> None:
    address = await serve()
    before = counted("deadline_exceeded:body")
    reader, writer = await dial(address)
    writer.write(b"POST /v1/x HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\nExpect: %b\r\n\r\n" % expect)
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    assert (b"HTTP/1.1 100 " in answer) == (expect == b"100-continue")
    assert b"HTTP/1.1 408 " in answer
    assert counted("deadline_exceeded:body") == before + 1
    writer.close()


async def test_an_error_in_one_connection_s_times_ends_nobody_else_s() -> None:
    def breaks(_: str) -> None:
        raise ZeroDivisionError

    front = Front(QUICK, refused=breaks)
    loop = asyncio.get_running_loop()
    server = await loop.create_server(front.protocol(asyncio.Protocol), "127.0.0.1", 0)
    async with server:
        clients = [await dial(server.sockets[0].getsockname()) for _ in range(3)]
        async with asyncio.timeout(LIMIT_S):
            for reader, writer in clients:
                with contextlib.suppress(ConnectionResetError):
                    assert await reader.read() == b""
                writer.close()


async def test_trailers_become_no_headers(serve: Serve) -> None:
    reader, writer = await dial(await serve())
    writer.write(
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"3\r\nabc\r\n0\r\nX-Evil: yes\r\nAuthorization: Bearer other\r\n\r\n"
    )
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert b"/v1/x 3 " in answer
    assert b"X-Evil" not in answer
    assert b"Authorization" not in answer
    writer.close()


async def test_chunks_of_one_byte_arrive_whole_and_the_next_request_too(serve: Serve) -> None:
    reader, writer = await dial(await serve())
    chunked = b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
    writer.write(chunked + b"1\r\na\r\n" * 70_000 + b"0\r\n\r\n")
    writer.write(CALL.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    assert b"/v1/x 70000 " in answer
    assert answer.count(b"HTTP/1.1 200 ") == 2
    writer.close()


async def test_pipelined_requests_are_answered_in_their_order(serve: Serve) -> None:
    reader, writer = await dial(await serve())
    requests = [
        b"POST /v1/%d HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (i, i) + bytes(i) for i in range(200)
    ]
    writer.write(b"".join(requests) + CALL.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
    async with asyncio.timeout(LIMIT_S):
        answer = await reader.read()
    at = [answer.index(b"/v1/%d %d " % (i, i)) for i in range(200)]
    assert at == sorted(at)
    assert answer.count(b"HTTP/1.1 200 ") == 201
    writer.close()


async def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(serve: Serve) -> None:
    before = counted("deadline_exceeded:answer")
    _, writer = await dial(await serve(), limit=1024)

    async def ask_on_and_read_nothing() -> None:
        while True:
            writer.write(b"GET /v1/%b HTTP/1.1\r\nHost: x\r\n\r\n" % (b"x" * 30_000))
            await writer.drain()

    with pytest.raises(ConnectionError):
        await asyncio.wait_for(ask_on_and_read_nothing(), LIMIT_S)
    assert counted("deadline_exceeded:answer") == before + 1
    writer.close()


async def test_an_answer_that_is_taken_is_sent_to_its_end_however_long_that_takes() -> None:
    """Though the server closes behind it, before the request's body is whole."""
    step, steps = 12 * 1024 * 1024, 4  # a step is more than the sockets' buffers hold

    class Answers(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.transport = cast("asyncio.Transport", transport)

        def data_received(self, _: bytes) -> None:
            self.transport.write(bytes(step * steps))
            self.transport.close()

    loop = asyncio.get_running_loop()
    shared = Shared(QUICK, refused=lambda _: None, enter=lambda _: "", leave=lambda _: None, traffic=Traffic(EDGE))
    server = await loop.create_server(lambda: Gate(shared, Answers), "127.0.0.1", 0)
    async with server, asyncio.timeout(LIMIT_S):
        reader, writer = await dial(server.sockets[0].getsockname())
        writer.write(half_body)
        for number in range(steps):
            await reader.readexactly(step)
            for gate in list(shared.gates):
                gate.check(loop.time() + 100 * (number + 1))
        assert await reader.read() == b""
        writer.close()


@pytest.mark.parametrize(
    "framed", [b"Content-Length: 3\r\n\r\nabc", b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
async def test_an_offer_of_http2_is_ignored_and_the_body_and_the_connection_kept(serve: Serve, framed: bytes) -> None:
    """Java's HttpClient and ``curl --http2`` make it with each request."""
    reader, writer = await dial(await serve())
    offer = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAEAAEAAAAIAAAAA\r\n"
    for _ in range(2):
        writer.write(b"POST /v1/x HTTP/1.1\r\nHost: x\r\n" + offer + framed)
        async with asyncio.timeout(LIMIT_S):
            assert (await reader.readline()).startswith(b"HTTP/1.1 200 ")
            assert b"/v1/x 3 " in await reader.readuntil(b"X-Client-Addr")
    writer.close()


async def test_an_offer_of_a_websocket_where_there_is_none_is_ignored_and_the_connection_goes_on(serve: Serve) -> None:
    reader, writer = await dial(await serve())
    for _ in range(2):
        writer.write(CALL.replace(b"\r\n\r\n", b"\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n"))
        async with asyncio.timeout(LIMIT_S):
            head = await reader.readuntil(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 200 ")
            assert b"\r\nconnection: close\r\n" not in head.lower()
            await reader.readexactly(int(head.lower().split(b"content-length: ")[1].split(b"\r\n")[0]))
    writer.close()


async def answer_to(address: Address, sent: bytes) -> bytes:
    """All that a client gets which sends so much and closes its sending half."""
    reader, writer = await dial(address)
    writer.write(sent)
    writer.write_eof()
    try:
        async with asyncio.timeout(LIMIT_S):
            return await reader.read()
    finally:
        writer.close()


async def test_a_client_that_sends_no_more_gets_its_answers(serve: Serve) -> None:
    """As ``nc -N``, and clients of sockets that say the end of what they send."""
    address = await serve()
    chunked = (
        b"POST /v1/x HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n" + b"1\r\na\r\n" * 3000 + b"0\r\n\r\n"
    )
    old = b"GET /v1/old HTTP/1.0\r\n\r\n"
    for sent, wanted in (
        (CALL, 1),
        (half_body, 0),
        (chunked, 1),
        (old, 1),
        (CALL + chunked + CALL, 3),
        (CALL + b"GET", 1),
    ):
        answer = await answer_to(address, sent)
        assert answer.count(b"HTTP/1.1 200 ") == answer.count(b"HTTP/1.1 ") == wanted
    assert b"/v1/x 3000 " in await answer_to(address, chunked)
    assert await answer_to(address, half_head) == b""


async def test_a_client_that_sends_no_more_and_waits_is_told_to_and_gets_its_answer(serve: Serve, plugin: Held) -> None:
    plugin.go.clear()
    reader, writer = await dial(await serve())
    writer.write(CALL)
    writer.write_eof()
    async with asyncio.timeout(LIMIT_S):
        assert await reader.readuntil(b"\r\n\r\n") == b"HTTP/1.1 100 Continue\r\n\r\n"
        plugin.go.set()
        assert (await reader.read()).startswith(b"HTTP/1.1 200 ")
    writer.close()


async def test_a_client_that_leaves_ends_its_call(serve: Serve, plugin: Held) -> None:
    plugin.go.clear()
    _, writer = await dial(await serve())
    writer.write(CALL)
    await plugin.asked.acquire()
    writer.close()
    async with asyncio.timeout(LIMIT_S):
        await plugin.left.wait()
