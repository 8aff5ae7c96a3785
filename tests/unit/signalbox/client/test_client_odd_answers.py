"""The client, plain and asynchronous, and a front that is none of ours, slow, or another process's too."""

import asyncio
import math
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from signalbox.client import AsyncClient, Client, Submission, errors
from tests.rigs.scriptedfront import front, json_answer

CALLS: dict[str, Callable[[Client], Any]] = {
    "predict": lambda client: client.predict("m", {"x": np.ones(1, np.float32)}),
    "submit": lambda client: client.submit("m", instances=[1]),
    "submit_many": lambda client: client.submit_many([Submission("m", instances=[1])]),
    "job": lambda client: client.job("a"),
    "jobs": lambda client: list(client.jobs(limit=3)),
    "wait": lambda client: client.wait("a", timeout_s=0.1),
    "result": lambda client: client.result("a", timeout_s=0.1),
    "cancel_all": lambda client: client.cancel_all(["a"]),
    "events": lambda client: list(client.events("a")),
}
ODD = (
    b"{}",
    b"[" * 100_000,
    b'{"id": "a", "state": "succeeded", "created_at": "soon"}',
    b'{"jobs": 3, "done": "x"}',
    b'{"jobs": [{"error": 3}]}',
    b'{"outputs": [{"name": "y", "datatype": "BYTES", "shape": [1000000000000]}]}',
)
REFUSALS = (b'{"status": "bad"}', b'{"status": [1]}', b'{"self": 1, "retry_after_s": 2, "public_message": 3}', ODD[1])


def always(answer: bytes) -> Callable[[bytes], bytes]:
    return lambda _: answer


async def called(url: str, call: Callable[[Client], Any], **options: Any) -> Any:
    def plainly() -> Any:
        with Client(url, "k", **options) as client:
            return call(client)

    return await asyncio.to_thread(plainly)


@pytest.mark.parametrize("name", CALLS)
async def test_an_answer_that_is_none_of_ours_is_an_error_of_ours(name: str) -> None:
    for body in ODD:
        async with front(always(json_answer(200, body))) as (url, _):
            with pytest.raises(errors.Bug, match=r"URL Signalbox's|Is the client older"):
                await called(url, CALLS[name])


async def test_an_odd_refusal_is_named_by_its_status() -> None:
    for body in REFUSALS:
        async with front(always(json_answer(503, body, "Retry-After: \u00b2"))) as (url, _):
            with pytest.raises(errors.Unavailable):
                await called(url, lambda client: client.models(), retries=0)


async def test_an_answer_that_drips_takes_no_longer_than_the_call_may() -> None:
    left = asyncio.Semaphore(0)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.05)
        left.release()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with pytest.raises(errors.DeadlineExceeded):
            await called(url, lambda client: client.models(), timeout_s=0.3)
        async with AsyncClient(url, "k", timeout_s=0.3) as client:
            with pytest.raises(errors.DeadlineExceeded):
                await client.models()
        await left.acquire()
        await left.acquire()


async def test_a_call_may_take_for_ever() -> None:
    async with front(lambda _: json_answer(200, b'{"id": "a", "state": "succeeded"}')) as (url, _):
        job = await called(url, lambda client: client.wait("a", timeout_s=math.inf), timeout_s=math.inf)
        assert job.has_ended
        assert await called(url, lambda client: client.models(), timeout_s=math.inf)
        async with AsyncClient(url, "k", timeout_s=math.inf) as client:
            assert (await client.wait("a", timeout_s=math.inf)).has_ended


@pytest.mark.parametrize("key", ["", "two\nlines", "caf\u00e9"])
def test_what_is_no_key_is_refused_at_once_and_not_shown(key: str) -> None:
    with pytest.raises(ValueError, match="an API key is") as caught:
        Client("http://127.0.0.1:9", key)
    assert not key or key not in str(caught.value)


def test_a_tag_that_is_a_text_is_one_tag() -> None:
    assert Submission("m", tags="nightly").document()["tags"] == ["nightly"]


async def test_a_process_that_was_forked_has_connections_of_its_own() -> None:
    async with front(lambda _: json_answer(200, b'{"models": []}')) as (url, connections):
        done = await asyncio.create_subprocess_exec(sys.executable, "-c", FORKED, url, stdout=subprocess.PIPE)
        assert (await done.communicate())[0] == b"ok\n"
    assert len(connections) == 2


FORKED = """
import os, sys
from signalbox.client import Client
with Client(sys.argv[1], "k") as client:
    client.models()
    if child := os.fork():
        assert os.waitpid(child, 0)[1] == 0
        client.models()
        print("ok")
    else:
        client.models()
        os._exit(0)
"""


async def test_events_go_on_where_a_front_is_away_for_a_while() -> None:
    head = (
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nConnection: close\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    asked: list[bytes] = []

    def answer(request: bytes) -> bytes:
        asked.append(request)
        if 1 < len(asked) < 6:
            return json_answer(503, b"{}")
        state, end = ("queued", b"") if len(asked) == 1 else ("succeeded", b"event: end\ndata: {}\n\n")
        doc = b'{"id": "a", "state": "%s", "urls": {"result": "/r"}}' % state.encode()
        text = b"retry: 1\nid: %d\nevent: state\ndata: %s\n\n" % (len(asked), doc) + end
        return head + b"%x\r\n%s\r\n0\r\n\r\n" % (len(text), text)

    async with front(answer) as (url, _), AsyncClient(url, "k", retries=0) as client:
        assert [event.state async for event in client.events("a")] == ["queued", "succeeded"]
    assert b"Last-Event-ID: 1\r\n" in asked[-1]
