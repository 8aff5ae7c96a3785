"""A watch as a websocket: what its frames are, how either side ends it, and what it may use of the server."""

import asyncio
import os
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway_plugin.queues.items import Consumer
from gateway_plugin.queues.watching.openwatch import Watch
from gateway_plugin.upstream import server as servers
from gateway_plugin.upstream import sockets
from gateway_plugin.upstream.server import HttpServer
from signalbox.front.bounds import HttpBounds
from signalbox.program import metrics
from signalbox.program.errors import Bug, Conflict, Unavailable
from tests.rigs.edge import counted
from tests.rigs.hostileclients import LIMIT_S, dial
from tests.rigs.memoryqueues import MemoryWatch, queue_front

ASKED = "/api/predict/chat?_watch_=true&_index_=0&_window_=2&_index_only_=false&_auto_commit_=false"
HEAD = (
    f"GET {ASKED} HTTP/1.1\r\nHost: x\r\nAuthorization: mine\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    "Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()


@asynccontextmanager
async def watching(
    server: HttpServer, path: str = ASKED, key: str = "mine", **more: Any
) -> AsyncIterator[ClientConnection]:
    headers = {"Authorization": key, "X-EAS-QueueService-Redis-Uid": "u1", **more.pop("headers", {})}
    async with (
        asyncio.timeout(LIMIT_S),
        connect(f"ws://{server.address}{path}", additional_headers=headers, **more) as found,
    ):
        yield found


async def closed_by(connection: ClientConnection) -> tuple[int, str]:
    """Code and reason of the server's close frame."""
    with suppress(ConnectionClosed):
        async for _ in connection:
            pass
    assert connection.close_code is not None
    return connection.close_code, connection.close_reason or ""


async def opened(front: Any) -> MemoryWatch:
    """The watch that is opened next."""
    async with asyncio.timeout(LIMIT_S):
        await front.queues.opened.acquire()
    return front.queues.watches[-1]  # type: ignore[no-any-return]


async def given_back(watch: MemoryWatch) -> None:
    async with asyncio.timeout(LIMIT_S):
        await watch.closed.wait()


async def test_each_item_is_one_binary_frame_and_a_commit_makes_room_for_the_next() -> None:
    async with queue_front() as (front, server, client):
        for text in (b"one", b"two", b"three"):
            await client.post("/v1/queues/chat?kind=cat", content=text)
        async with watching(server, origin="http://elsewhere") as socket:
            watch = await opened(front)
            frames = [await socket.recv(), await socket.recv()]
            await client.put("/v1/queues/chat?_indexes_=1")
            frames.append(await socket.recv())
            assert socket.protocol.extensions == []
        await given_back(watch)
    assert [isinstance(frame, bytes) and frame[:2] for frame in frames] == [b"\x08\x01", b"\x08\x02", b"\x08\x03"]
    assert (watch.side, watch.consumer) == ("source", Consumer("eas", "u1"))
    assert watch.watch == Watch(index=0, window=2)


async def test_what_a_watch_asks_for_reaches_the_queue() -> None:
    asked = "/v1/queues/chat/sink?_watch_=true&_index_=-1&_window_=99999&_index_only_=true&_auto_commit_=true&a=b"
    async with queue_front() as (front, server, _), watching(server, asked):
        watch = await opened(front)
    assert watch.side == "sink"
    assert watch.watch == Watch(index=-1, window=1024, is_index_only=True, is_auto_commit=True, tags={"a": "b"})


@pytest.mark.parametrize(
    ("path", "key", "status", "said"),
    [
        (ASKED, "nobody", 401, "Who?"),
        (ASKED, "reader", 403, "queues:watch"),
        (ASKED.replace("chat", "other"), "mine", 404, "no queue"),
        (ASKED.replace("_window_=2", "_window_=0"), "mine", 400, "_window_"),
        (ASKED.replace("_watch_=true", "_watch_=false"), "mine", 400, "parameter of get"),
        ("/v1/queues/chat", "mine", 400, "_watch_=true"),
        ("/api/predict/a/b?_watch_=true", "mine", 404, "nothing at"),
    ],
)
async def test_before_the_upgrade_a_refusal_is_an_answer_over_http(path: str, key: str, status: int, said: str) -> None:
    async with queue_front() as (_, server, client):
        with pytest.raises(InvalidStatus) as refused:
            async with watching(server, path, key):
                raise AssertionError("It was opened.")
        answer = refused.value.response
        plain = await client.get(path, headers={"Authorization": key})
    assert answer.status_code == status
    assert answer.body is not None
    assert said.encode() in answer.body
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert plain.status_code in {status, 400, 204}, "without the upgrade it is an ordinary call"


async def test_an_account_has_no_more_watches_than_its_share() -> None:
    async with queue_front(places=2) as (_, server, _), watching(server):
        with pytest.raises(InvalidStatus) as refused:
            async with watching(server):
                raise AssertionError("It was opened.")
        assert refused.value.response.status_code == 429
        async with watching(server, key="other"):
            pass


async def test_a_client_that_leaves_without_a_word_gives_back_what_it_held_at_once() -> None:
    async with queue_front() as (front, server, client):
        await client.post("/v1/queues/chat", content=b"one")
        async with watching(server) as socket:
            watch = await opened(front)
            await socket.recv()
            assert front.queues.given["source", "eas"] == {1: watch.consumer}
            socket.transport.abort()
            await given_back(watch)
        assert front.queues.given["source", "eas"] == {}


async def test_a_key_that_ends_ends_its_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sockets, "RECHECK_S", 0.05)
    async with queue_front() as (front, server, _), watching(server) as socket:
        watch = await opened(front)
        front.owners.ended.add("mine")
        code, reason = await closed_by(socket)
        await given_back(watch)
    assert (code, reason) == (1008, "unauthorized: The key has ended.")


@pytest.mark.parametrize(
    ("error", "code"), [(Conflict("moved " * 40), 1008), (Unavailable("later"), 1013), (Bug("ours"), 1011)]
)
async def test_a_watch_that_fails_says_so_in_its_close_frame(error: Any, code: int) -> None:
    async with queue_front() as (front, server, _), watching(server) as socket:
        watch = await opened(front)
        watch.failing = error
        front.queues.wake()
        found, reason = await closed_by(socket)
        await given_back(watch)
    assert found == code
    assert reason.startswith(f"{error.code}: ")
    assert len(reason) <= 123


async def test_a_complete_stream_ends_as_such() -> None:
    async with queue_front() as (front, server, _), watching(server) as socket:
        watch = await opened(front)
        watch.is_complete = True
        front.queues.wake()
        assert await closed_by(socket) == (1000, "complete")


async def test_a_server_that_stops_tells_its_watches_and_has_them_give_back() -> None:
    async with queue_front() as (front, server, _), watching(server) as socket:
        watch = await opened(front)
        closing = asyncio.create_task(server.close(5))
        code, _ = await closed_by(socket)
        await given_back(watch)
        await closing
    assert code in {1001, 1012}, "ours, or that of the server where its turn comes first"


async def test_what_clients_have_no_reason_to_send_is_passed_over_and_a_large_frame_is_not() -> None:
    async with queue_front() as (front, server, client), watching(server) as socket:
        watch = await opened(front)
        await socket.send("ping")
        await socket.send(b"x" * 4096)
        assert await asyncio.wait_for(await socket.ping("ping"), LIMIT_S) >= 0
        await client.post("/v1/queues/chat", content=b"one")
        assert isinstance(await socket.recv(), bytes)
        await socket.send(b"x" * 4097)
        code, _ = await closed_by(socket)
        await given_back(watch)
    assert code == 1009


async def test_who_says_nothing_at_all_is_cut_and_who_pings_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(servers, "_SOCKETS", servers._SOCKETS._replace(silence_s=1.0))
    before = counted("deadline_exceeded:websocket")
    async with queue_front() as (front, server, _):
        host, _, port = server.address.rpartition(":")
        _, writer = await dial((host, int(port)))
        writer.write(HEAD)
        silent = await opened(front)
        async with watching(server, ping_interval=0.2) as lively:
            await given_back(silent)
            assert await asyncio.wait_for(await lively.ping(), LIMIT_S) >= 0
        writer.close()
    assert counted("deadline_exceeded:websocket") == before + 1


async def test_a_flood_of_pings_from_who_reads_nothing_is_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    before = counted("limit_exceeded:websocket")
    ping = b"\x89\xfd" + b"mask" + b"x" * 125
    async with queue_front() as (front, server, _):
        host, _, port = server.address.rpartition(":")
        _, writer = await dial((host, int(port)), limit=1024)
        writer.write(HEAD)
        watch = await opened(front)
        async with asyncio.timeout(LIMIT_S):
            while not watch.closed.is_set():
                writer.write(ping * 2000)
                try:
                    await asyncio.wait_for(writer.drain(), 0.2)  # it stops reading, or cuts us
                except TimeoutError:
                    continue
                except ConnectionError:
                    break
            await given_back(watch)
        writer.transport.abort()
    assert counted("limit_exceeded:websocket") == before + 1


@pytest.mark.parametrize(
    "head",
    [
        HEAD.replace(b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n", b""),
        HEAD.replace(b"Sec-WebSocket-Version: 13", b"Sec-WebSocket-Version: 8"),
        HEAD.replace(b"dGhlIHNhbXBsZSBub25jZQ==", b"x"),
        HEAD.replace(b"Connection: Upgrade", b"Connection: close"),
        HEAD.replace(b"Host: x", b"Host: x\r\nX-A: " + b"a" * 9000),
        HEAD.replace(b"Host: x", b"Host: x\r\nX-A: \xff"),
        HEAD.replace(b"_watch_=true", b"_watch_=\xff"),
        HEAD.replace(b"Host: x", b"Host: x\r\nContent-Length: 00"),
        HEAD.replace(b"HTTP/1.1", b"HTTP/1.0"),
        HEAD.replace(b"GET ", b"POST "),
    ],
)
async def test_a_bad_handshake_is_the_client_s_fault_and_answered_at_once(head: bytes) -> None:
    async with queue_front() as (_, server, _):
        host, _, port = server.address.rpartition(":")
        reader, writer = await dial((host, int(port)))
        writer.write(head)
        async with asyncio.timeout(LIMIT_S):
            line = await reader.readline()
        writer.close()
    assert line.split(b" ")[1] in {b"400", b"426", b"200"}, line


@pytest.mark.parametrize(
    "frames",
    [
        b"\x82\x05hello",  # not masked
        b"\xf2\x80mask",  # reserved bits
        b"\x83\x80mask",  # reserved opcode
        b"\x09\x80mask",  # a ping in parts
        b"\x89\xfe\x00\x7emask" + b"x" * 126,  # a ping that is too long
        b"\x80\x80mask",  # goes on with nothing
        b"\x01\x80mask\x01\x80mask",  # begins twice
        b"\x82\xff" + struct.pack("!Q", 2**63) + b"mask",
        b"\x88\x81maskx",  # a close of one byte
        b"\x88\x82mask" + bytes(a ^ b for a, b in zip(struct.pack("!H", 999), b"ma", strict=True)),
        b"\x81\x82mask" + bytes(a ^ b for a, b in zip(b"\xc3\x28", b"ma", strict=True)),  # no UTF-8
    ],
)
async def test_a_malformed_frame_ends_its_watch_and_nothing_else(frames: bytes) -> None:
    async with queue_front() as (front, server, _), watching(server) as other:
        await opened(front)
        host, _, port = server.address.rpartition(":")
        reader, writer = await dial((host, int(port)))
        writer.write(HEAD)
        watch = await opened(front)
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), LIMIT_S)
        writer.write(frames)
        async with asyncio.timeout(LIMIT_S):
            said = await reader.read()
        await given_back(watch)
        writer.close()
        assert await asyncio.wait_for(await other.ping(), LIMIT_S) >= 0
    assert said[:1] == b"\x88", said
    assert struct.unpack("!H", said[2:4])[0] in {1002, 1007, 1009}


async def test_frames_before_the_handshake_is_answered_are_refused() -> None:
    async with queue_front() as (_, server, _):
        host, _, port = server.address.rpartition(":")
        reader, writer = await dial((host, int(port)))
        writer.write(HEAD + b"\x89\x80mask")
        async with asyncio.timeout(LIMIT_S):
            said = await reader.read()
        writer.close()
    assert said.startswith(b"HTTP/1.1 400 ")
    assert b"wait for the answer to its handshake" in said


async def test_noise_for_frames_leaves_nothing_open() -> None:
    async with queue_front() as (front, server, client):
        host, _, port = server.address.rpartition(":")
        for _ in range(100):
            _, writer = await dial((host, int(port)))
            writer.write(HEAD)
            watch = await opened(front)
            writer.write(os.urandom(40))
            writer.close()
            await given_back(watch)
        assert (await client.get("/v1/queues/chat?_count_=true")).text == "7"
        assert open_sockets() == 0


async def test_open_websockets_are_counted() -> None:
    async with queue_front() as (front, server, _):
        async with watching(server):
            watch = await opened(front)
            assert open_sockets() == 1
        await given_back(watch)


def open_sockets() -> float:
    return metrics.REGISTRY.get_sample_value("signalbox_http_websockets") or 0


def test_the_bounds_are_those_of_the_docs() -> None:
    bounds = servers._SOCKETS
    assert (bounds.silence_s, bounds.most_bytes, servers._FRAME_BYTES, sockets.RECHECK_S) == (30, 262_144, 4096, 15)
    assert HttpBounds().http_head_s == 10
