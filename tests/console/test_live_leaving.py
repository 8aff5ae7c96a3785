"""A connection's place on the websocket ends with it, whatever it ends by."""

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed
from websockets.frames import CloseCode

from console.accounts.models import User
from console.config import ConsoleSettings
from console.feed.feed import Feed
from console.live import consumer
from console.live.attendance import attendance
from console.live.consumer import LiveConsumer
from console.live.lifespan import lifespan
from signalbox.program.settings import Wire
from tests.console.test_live_consumer import Tab, _log_in
from tests.console.test_serve import Visitor, served

__all__ = ["served"]
LIMIT_S = 60.0
SUBSCRIBE = json.dumps({"t": "sub", "topics": ["lanes"]})


@pytest.fixture
async def feed(wire: Wire, transactional_db: None) -> AsyncIterator[Feed]:
    """The process's feed, on a real NATS."""
    yield await lifespan.start(wire)
    await lifespan.stop()


async def present(feed: Feed) -> tuple[int, int]:
    """Connections that the operator holds, and that the hub sends to."""
    user = await User.objects.aget(username="ada-viewer")
    return attendance.count(user.pk), len(feed.hub)


class Server:
    """Speaks ASGI to one connection, and closes sockets as uvicorn does: what is sent after that is an error."""

    def __init__(self, cookie: str, fails: Callable[[str], Exception | None]) -> None:
        self._said: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._fails = fails
        self.sent: asyncio.Queue[str] = asyncio.Queue()
        self._cookie = cookie

    async def run(self) -> None:
        """Until the application has ended, as it may."""
        scope = {
            "type": "websocket",
            "path": "/ws/live",
            "query_string": b"",
            "subprotocols": [],
            "headers": [(b"cookie", self._cookie.encode())],
        }
        application: Any = AuthMiddlewareStack(LiveConsumer.as_asgi())
        with suppress(Exception):  # whatever a server makes of it
            await application(scope, self._said.get, self._send)

    def say(self, kind: str, **more: Any) -> None:
        """An event for the application."""
        self._said.put_nowait({"type": f"websocket.{kind}", **more})

    async def _send(self, message: dict[str, Any]) -> None:
        kind = message["type"].removeprefix("websocket.")
        self.sent.put_nowait(kind)
        error = self._fails(kind)
        if error is not None:
            raise error


@pytest.mark.parametrize("error", [RuntimeError("after websocket.close"), ConnectionResetError(), None])
@pytest.mark.parametrize("says", ["nonsense", '{"t": "sub", "topics": ["secrets"]}'])
async def test_who_says_nonsense_to_a_closed_socket_leaves(feed: Feed, says: str, error: Exception | None) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    server = Server(cookie, lambda kind: error if kind == "close" else None)
    server.say("connect")
    for _ in range(3):
        server.say("receive", text=says)
    async with asyncio.timeout(LIMIT_S):
        await server.run()  # no disconnect is ever told
    assert await present(feed) == (0, 0)


@pytest.mark.parametrize("error", [RuntimeError("after websocket.close"), ConnectionResetError()])
async def test_who_is_gone_when_the_writer_sends_leaves(feed: Feed, error: Exception) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    server = Server(cookie, lambda kind: error if kind == "send" else None)
    server.say("connect")
    server.say("receive", text=SUBSCRIBE)
    async with asyncio.timeout(LIMIT_S):
        await server.run()
    assert await present(feed) == (0, 0)


@pytest.mark.parametrize("part", ["_refusal", "_has_budget", "push", "_recheck"])
async def test_a_fault_of_ours_ends_the_connection_and_frees_its_place(
    feed: Feed, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise ZeroDivisionError

    _, cookie = await sync_to_async(_log_in)("viewer")
    monkeypatch.setattr(consumer, "RECHECK_S", -1.0)
    monkeypatch.setattr(LiveConsumer, part, fail)
    server = Server(cookie, lambda _: None)
    server.say("connect")
    server.say("receive", text=SUBSCRIBE)
    async with asyncio.timeout(LIMIT_S):
        await server.run()
    assert await present(feed) == (0, 0)


async def test_a_connection_that_the_server_cancels_frees_its_place(feed: Feed) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    server = Server(cookie, lambda _: None)
    server.say("connect")
    server.say("receive", text=SUBSCRIBE)
    connection = asyncio.create_task(server.run())
    async with asyncio.timeout(LIMIT_S):
        while await server.sent.get() != "send":
            pass
        assert await present(feed) == (1, 1)
        connection.cancel()
        await asyncio.wait([connection])
    assert await present(feed) == (0, 0)


async def test_a_browser_that_goes_at_once_frees_its_place(feed: Feed) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.leave()
    assert await present(feed) == (0, 0)


async def test_after_floods_on_every_place_of_an_operator_the_next_board_is_served(
    served: tuple[Visitor, str, "subprocess.Popen[bytes]"], console: ConsoleSettings
) -> None:
    """On the real server: each socket is flooded, and none is closed politely."""
    visitor, _, _ = served
    url = visitor.base.replace("http://", "ws://") + "/ws/live"

    def board() -> connect:
        headers = {"Cookie": visitor.cookies}
        return connect(url, origin=visitor.base, additional_headers=headers, ping_interval=None)  # type: ignore[arg-type]  # a str, as it is sent

    async def flood(socket: ClientConnection) -> int | None:
        with suppress(ConnectionClosed):
            for _ in range(consumer.MESSAGES * 5):
                await socket.send(SUBSCRIBE)
        with suppress(ConnectionClosed):
            while True:
                await socket.recv()
        return socket.close_code

    async with asyncio.timeout(2 * LIMIT_S):
        sockets = [await board() for _ in range(console.live_per_user)]
        codes = await asyncio.gather(*(flood(each) for each in sockets))
        # Where the server closes while the flood still comes, the kernel resets the connection, and the browser's may
        # lose the code with it.
        assert set(codes) <= {consumer.Close.TOO_MANY, CloseCode.ABNORMAL_CLOSURE}
        while True:  # its going is noticed a moment after the browser's
            async with board() as socket:
                await socket.send(SUBSCRIBE)
                with suppress(ConnectionClosed):
                    assert json.loads(await socket.recv())["t"] in {"snap", "tick"}
                    break
