"""The API client against a real socket that answers what a test tells it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest

from signalbox.client import Client
from signalbox.client.pool import ConnectionPool
from signalbox.program import errors

Answer = Callable[[bytes], bytes]


@asynccontextmanager
async def front(answer: Answer) -> AsyncIterator[tuple[str, list[int]]]:
    """A server; yields its URL and a list that grows by one at each connection."""
    connections: list[int] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(1)
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                length = next(
                    (
                        int(line.split(b":")[1])
                        for line in head.lower().split(b"\r\n")
                        if line.startswith(b"content-length:")
                    ),
                    0,
                )
                writer.write(answer(head + await reader.readexactly(length)))
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        port = server.sockets[0].getsockname()[1]
        yield f"http://127.0.0.1:{port}", connections


def json_answer(status: int, body: bytes, *headers: str) -> bytes:
    lines = [f"HTTP/1.1 {status} X", f"Content-Length: {len(body)}", *headers]
    return ("\r\n".join(lines) + "\r\n\r\n").encode() + body


async def test_predict_sends_the_key_and_the_rows_and_returns_the_answer() -> None:
    seen: list[bytes] = []

    def answer(request: bytes) -> bytes:
        seen.append(request)
        return json_answer(200, b'{"predictions": [2.5]}')

    async with front(answer) as (url, _), Client(url, "sb_key") as client:
        reply = await client.predict("half", instances=[1.0], signature="s", version=3)
    assert reply == {"predictions": [2.5]}
    assert seen[0].startswith(b"POST /v1/models/half/versions/3:predict HTTP/1.1\r\n")
    assert b"Authorization: Bearer sb_key\r\n" in seen[0]
    assert seen[0].endswith(b'{"signature_name":"s","instances":[1.0]}')


async def test_a_chunked_answer_is_put_together() -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n4;x=y\r\n 42}\r\n0\r\n\r\n'
    async with front(lambda _: chunked) as (url, connections):
        pool = ConnectionPool(url)
        for _ in range(2):
            response = await pool.request("GET", "/")
            assert response.body == b'{"a": 42}'
        await pool.close()
    assert len(connections) == 1  # the second request used the same connection


async def test_a_problem_becomes_the_error_of_its_code_with_message_and_retry_after() -> None:
    body = b'{"code": "queue_full", "detail": "The queue is full.", "status": 429}'
    async with front(lambda _: json_answer(429, body, "Retry-After: 7")) as (url, _), Client(url, "k") as client:
        with pytest.raises(errors.QueueFull, match="queue is full") as caught:
            await client.submit("m", instances=[1])
    assert caught.value.retry_after_s == 7


@pytest.mark.parametrize(
    ("status", "kind"),
    [
        (400, errors.InvalidRequest),
        (401, errors.Unauthorized),
        (403, errors.Forbidden),
        (404, errors.NotFound),
        (413, errors.TooLarge),
        (503, errors.Unavailable),
        (504, errors.DeadlineExceeded),
    ],
)
async def test_an_error_without_a_code_is_named_by_its_status(status: int, kind: type[errors.SignalboxError]) -> None:
    answer = json_answer(status, b'{"error": "words"}')
    async with front(lambda _: answer) as (url, _), Client(url, "k") as client:
        with pytest.raises(kind, match="words") as caught:
            await client.predict("m", instances=[1])
    assert type(caught.value) is kind


async def test_wait_asks_until_the_job_has_ended() -> None:
    states = iter(["queued", "running", "succeeded"])

    def answer(request: bytes) -> bytes:
        assert request.startswith(b"GET /v1/jobs/j1 ")
        return json_answer(200, f'{{"id": "j1", "state": "{next(states)}"}}'.encode())

    async with front(answer) as (url, _), Client(url, "k") as client:
        status = await client.wait("j1", timeout_s=10)
    assert status.state == "succeeded"
    assert status.has_ended


async def test_wait_gives_up_after_its_timeout() -> None:
    answer = json_answer(200, b'{"id": "j1", "state": "queued"}')
    async with front(lambda _: answer) as (url, _), Client(url, "k") as client:
        with pytest.raises(errors.DeadlineExceeded):
            await client.wait("j1", timeout_s=0.05)


async def test_nobody_listening_is_unavailable_and_a_broken_answer_is_ambiguous() -> None:
    async with front(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort") as (url, _):
        pool = ConnectionPool(url, timeout_s=0.2)
        with pytest.raises(errors.DeadlineExceeded):
            await pool.request("GET", "/")
    with pytest.raises(errors.Unavailable):
        await ConnectionPool(url).request("GET", "/")


async def test_either_instances_or_inputs_must_be_given() -> None:
    client = Client("http://127.0.0.1:1", "k")
    with pytest.raises(errors.InvalidRequest):
        await client.predict("m")
    with pytest.raises(errors.InvalidRequest):
        await client.predict("m", instances=[1], inputs=[1])
