"""The websocket, through Channels: who may listen, what they get, and when they are shown out."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from asgiref import testing
from asgiref.sync import sync_to_async
from channels.auth import AuthMiddlewareStack
from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.test import Client

from console.feed.feed import Feed
from console.live import consumer
from console.live.consumer import JOBS, Close, LiveConsumer
from console.live.lifespan import lifespan
from console.live.origin import SameOrigin
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from signalbox.wire.jobids import new_job_id
from tests.console.mirror import TOPICS, Mirror
from tests.console.traffic import GPU, Railway

pytestmark = pytest.mark.django_db(transaction=True)
ORIGIN = b"http://localhost"
_communicator: Any = testing.ApplicationCommunicator  # untyped


@pytest.fixture
async def feed(wire: Wire) -> AsyncIterator[Feed]:
    """The process's feed, on a real NATS."""
    yield await lifespan.start(wire)
    await lifespan.stop()


def _log_in(role: str | None) -> tuple[Client, str]:
    user = get_user_model().objects.create_user(username=f"ada-{role}", password="correct-horse")
    if role:
        user.groups.add(Group.objects.get(name=role))
    client = Client()
    client.force_login(user)
    (cookie,) = [f"{name}={morsel.value}" for name, morsel in client.cookies.items() if "session" in name]
    return client, cookie


class Tab:
    """A browser tab, spoken to as a server speaks ASGI. (Channels' own communicator needs Daphne.)"""

    def __init__(self, cookie: str = "", origin: bytes = ORIGIN) -> None:
        application = SameOrigin(AuthMiddlewareStack(LiveConsumer.as_asgi()))
        headers = [(b"origin", origin), (b"host", b"localhost"), (b"cookie", cookie.encode())]
        scope = {"type": "websocket", "path": "/ws/live", "headers": headers, "query_string": b"", "subprotocols": []}
        self._asgi: Any = _communicator(application, scope)

    async def open(self) -> bool:
        """Whether the server accepts."""
        await self._asgi.send_input({"type": "websocket.connect"})
        answer = await self._asgi.receive_output(timeout=60)
        return bool(answer["type"] == "websocket.accept")

    async def say(self, text: str) -> None:
        """One frame to the server."""
        await self._asgi.send_input({"type": "websocket.receive", "text": text})

    async def subscribe(self, *topics: str, **more: Any) -> None:
        """Asks for topics."""
        await self.say(json.dumps({"t": "sub", "topics": list(topics), **more}))

    async def text(self) -> str:
        """The next frame from the server."""
        output = await self._asgi.receive_output(timeout=60)
        assert output["type"] == "websocket.send", output
        return str(output["text"])

    async def receive(self, kind: str, topic: str = "") -> dict[str, Any]:
        """The next frame of a kind (and topic)."""
        while True:
            message: dict[str, Any] = json.loads(await self.text())
            if message["t"] == kind and (not topic or message["topic"] == topic):
                return message

    async def closed(self) -> int:
        """The close code, once it comes."""
        while True:
            output = await self._asgi.receive_output(timeout=60)
            if output["type"] == "websocket.close":
                return int(output["code"])

    async def leave(self) -> None:
        """The tab is closed."""
        await self._asgi.send_input({"type": "websocket.disconnect", "code": 1001})
        await self._asgi.wait(timeout=60)


async def test_a_viewer_follows_jobs_and_only_a_few_of_them(feed: Feed) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    topics = [f"job:{new_job_id(1.0, number)}" for number in range(JOBS + 1)]
    tab = Tab(cookie)
    assert await tab.open()
    await tab.subscribe(*topics[:JOBS])
    assert (await tab.receive("snap", topics[0]))["state"] == {}, "there is no such job"
    assert set(topics[:JOBS]) < set(feed.view.topics.topics)
    await tab.subscribe(topics[JOBS])
    assert await tab.closed() == Close.TOO_MANY
    await tab.leave()
    assert not set(topics) & set(feed.view.topics.topics)
    odd = Tab(cookie)
    assert await odd.open()
    await odd.subscribe("job:of-nobody")
    assert await odd.closed() == Close.NOT_ALLOWED


async def test_a_viewer_gets_every_topic_and_then_changes_in_sequence(feed: Feed, bus: Bus) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    assert await tab.open()
    await tab.subscribe(*TOPICS)
    mirror = Mirror()
    for _ in TOPICS:
        mirror.take(await tab.text())
    assert set(mirror.seqs) == set(TOPICS)
    railway = Railway(bus)
    await railway.acquire("worker-a")
    while mirror.rows["lanes"].get(GPU.id, {}).get("holder") != "worker-a":
        mirror.take(await tab.text())
    assert mirror.wants == set()
    await tab.leave()
    assert len(feed.hub) == 0


async def test_without_a_login_there_is_no_board(feed: Feed) -> None:
    tab = Tab()
    assert await tab.open()
    assert await tab.closed() == consumer.Close.NOT_LOGGED_IN


async def test_another_sites_page_cannot_listen_with_the_operators_cookie(feed: Feed) -> None:
    _, cookie = await sync_to_async(_log_in)("admin")
    tab = Tab(cookie, origin=b"http://elsewhere.example")
    assert await tab.open() is False


async def test_an_operator_without_a_role_may_not_listen(feed: Feed) -> None:
    _, cookie = await sync_to_async(_log_in)(None)
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    assert await tab.closed() == consumer.Close.NOT_ALLOWED


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ('{"t": "sub", "topics": ["lanes", "secrets"]}', consumer.Close.NOT_ALLOWED),
        ('{"t": "sub", "topics": "lanes"}', consumer.Close.BAD_MESSAGE),
        ("hello", consumer.Close.BAD_MESSAGE),
    ],
)
async def test_what_is_not_a_subscription_closes_the_socket(feed: Feed, text: str, code: int) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.say(text)
    assert await tab.closed() == code


async def test_a_socket_is_closed_when_its_operator_logs_out(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    client, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    await tab.receive("tick")
    monkeypatch.setattr(consumer, "RECHECK_S", 0.0)
    await sync_to_async(client.logout)()
    assert await tab.closed() == consumer.Close.NOT_LOGGED_IN


async def test_a_socket_is_closed_when_its_operator_loses_the_role(feed: Feed, monkeypatch: pytest.MonkeyPatch) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    await tab.receive("tick")
    user = await get_user_model().objects.aget(username="ada-viewer")
    await sync_to_async(user.groups.clear)()
    monkeypatch.setattr(consumer, "RECHECK_S", 0.0)
    assert await tab.closed() == consumer.Close.NOT_ALLOWED


async def test_a_viewer_that_resumes_within_the_ring_gets_deltas_and_no_snapshot(feed: Feed, bus: Bus) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    snapshot = await tab.receive("snap", "lanes")
    railway = Railway(bus)
    await railway.acquire("worker-a")
    await tab.receive("delta", "lanes")
    held = {"epoch": snapshot["epoch"], "lanes": snapshot["seq"]}
    again = Tab(cookie)
    await again.open()
    await again.subscribe("lanes", resume=held)
    first = json.loads(await again.text())
    assert (first["t"], first["seq"]) == ("delta", snapshot["seq"] + 1)
    await tab.leave()
    await again.leave()


async def test_a_process_without_a_feed_says_so() -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    assert await tab.closed() == consumer.Close.NOT_RUNNING
