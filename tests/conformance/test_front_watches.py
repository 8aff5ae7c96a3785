"""A watch through each front: opened, refused in the dialect's form, ended by either side, told of a plugin's stop."""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus
from websockets.typing import Origin

from tests.conformance.conftest import RUNNING
from tests.conformance.test_clients_eas import QUEUE, queued
from tests.conformance.test_signalbox_front import House, housed, prepare
from tests.rigs.gateway import ALL_SCOPES, Key, key
from tests.rigs.memoryqueues import QUEUE_SCOPES
from tests.rigs.natsserver import NatsServer

LIMIT_S = 60
WATCH = f"/v1/queues/{QUEUE}?_watch_=true&_window_=1"


@pytest.fixture
def house(kind: str, shared_server: NatsServer) -> Iterator[House]:
    if kind == RUNNING:
        pytest.skip("has no queue of ours")
    asyncio.run(prepare(shared_server))
    with housed(kind, shared_server) as made:
        yield made


def dialled(house: House, mine: Key | None, path: str = WATCH) -> connect:
    headers = {"Authorization": mine.text if mine else "sbx_test_nobody", "X-EAS-QueueService-Redis-Uid": "u1"}
    return connect(
        house.url.replace("http://", "ws://") + path, additional_headers=headers, origin=Origin("http://a.page")
    )


async def ended(socket: ClientConnection) -> tuple[int | None, str | None]:
    """Code and reason with which the server ends a watch."""
    async with asyncio.timeout(LIMIT_S):
        try:
            async for _ in socket:
                continue
        except ConnectionClosed:
            pass
    return socket.close_code, socket.close_reason


async def test_a_watch_is_opened_refused_and_ended_alike_through_every_front(house: House) -> None:
    mine = key(scopes=(*ALL_SCOPES, *QUEUE_SCOPES))
    refusals: list[Any] = []
    async with queued(house, mine), httpx.AsyncClient(base_url=house.url, timeout=LIMIT_S) as client:
        headers = {"Authorization": mine.text}
        for one, path in ((None, WATCH), (mine, WATCH.replace(QUEUE, "other")), (mine, WATCH + "&_x_=1")):
            with pytest.raises(InvalidStatus) as refused:
                await dialled(house, one, path)
            answer = refused.value.response
            refusals.append((answer.status_code, json.loads(answer.body or b"{}")["code"]))
        # One alone: whether what comes back or a new item is first, NATS leaves open.
        await client.post(f"/v1/queues/{QUEUE}", content=b"one", headers=headers)
        async with asyncio.timeout(LIMIT_S), dialled(house, mine) as first:
            frame = await first.recv()
            first.transport.abort()
        async with asyncio.timeout(LIMIT_S), dialled(house, mine) as second:
            again = await second.recv()
            assert await (await second.ping()) >= 0
            house.programs[0].signal(15)
            code, reason = await ended(second)
    assert refusals == [(401, "unauthorized"), (404, "not_found"), (400, "invalid_request")]
    assert isinstance(frame, bytes)
    assert frame == again, "what the first had not committed came back"
    assert (code, reason) == (1001, "this gateway plugin stops; connect again")
