"""The connections of operators' tools, to a real socket that answers what a test tells it."""

import pytest

from signalbox.ops.httppool import ConnectionPool
from signalbox.program import errors
from tests.rigs.scriptedfront import front


async def test_a_chunked_answer_is_put_together() -> None:
    chunked = b'HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{"a":\r\n4;x=y\r\n 42}\r\n0\r\n\r\n'
    async with front(lambda _: chunked) as (url, connections):
        pool = ConnectionPool(url)
        for _ in range(2):
            response = await pool.request("GET", "/")
            assert response.body == b'{"a": 42}'
        await pool.close()
    assert len(connections) == 1  # the second request used the same connection


async def test_nobody_listening_is_unavailable_and_a_broken_answer_is_ambiguous() -> None:
    async with front(lambda _: b"HTTP/1.1 200 OK\r\nContent-Length: 99\r\n\r\nshort") as (url, _):
        pool = ConnectionPool(url, timeout_s=0.2)
        with pytest.raises(errors.DeadlineExceeded):
            await pool.request("GET", "/")
    with pytest.raises(errors.Unavailable):
        await ConnectionPool(url).request("GET", "/")
