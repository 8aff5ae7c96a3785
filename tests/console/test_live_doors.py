"""Who gets to the websocket, how often, and how soon they are shown out."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.test import Client
from msgspec.structs import replace

from console.accounts import sessions
from console.accounts.models import User
from console.accounts.rights import Actor, system_actor
from console.config import ConsoleSettings
from console.feed.feed import Feed
from console.live import consumer, origin
from console.live.attendance import Attendance, attendance
from console.live.lifespan import lifespan
from console.operators import services as accounts
from signalbox.program import metrics
from signalbox.program.settings import Wire
from tests.console.test_live_consumer import Tab, _log_in

pytestmark = pytest.mark.django_db(transaction=True)
ME = system_actor("tests")


@pytest.fixture
async def feed(wire: Wire) -> AsyncIterator[Feed]:
    """The process's feed, on a real NATS."""
    yield await lifespan.start(wire)
    await lifespan.stop()


def closed(reason: str) -> float:
    """Sockets the console has closed for this reason."""
    return metrics.REGISTRY.get_sample_value("signalbox_console_live_closed_total", {"reason": reason}) or 0.0


@pytest.mark.parametrize(
    ("page", "host", "is_own"),
    [
        ("http://localhost", "localhost", True),
        ("http://localhost", "localhost:80", True),
        ("http://localhost:8000", "localhost:8000", True),
        ("https://localhost", "localhost:443", False),
        ("https://localhost:8000", "localhost:8000", False),
        ("HTTPS://localhost", "localhost", False),
        ("http://[::1]:8000", "[::1]:8000", True),
        ("https://console.example", "inner:8000", True),  # trusted below
        ("", "localhost", False),
        ("null", "localhost", False),
        ("http://localhost:9000", "localhost:8000", False),
        ("http://evil.example", "evil.example", False),
        ("http://localhost.evil.example", "localhost", False),
        ("http://localhost@evil.example", "localhost", False),
        ("http://evil.example@localhost", "localhost", False),
        ("file://localhost", "localhost", False),
        ("http://", "", False),
        ("http://[::1", "localhost", False),
        ("chrome-extension://abc", "localhost", False),
    ],
)
def test_only_our_own_pages_are_let_in(page: str, host: str, is_own: bool, settings: Any) -> None:
    settings.CSRF_TRUSTED_ORIGINS = ["https://console.example"]
    assert origin.is_own(page, host, "http") is is_own


@pytest.mark.parametrize(
    ("is_https", "trust_proxy", "forwarded", "let_in"),
    [
        (False, False, b"", {b"http"}),
        (False, False, b"https", {b"http"}),
        (False, True, b"https", {b"https"}),
        (False, True, b"wss", {b"https"}),
        (False, True, b"http", {b"http"}),
        (False, True, b"ws", {b"http"}),
        (True, False, b"", {b"https"}),
        (True, True, b"http", {b"https"}),
    ],
)
async def test_a_page_of_the_other_scheme_is_another_page(
    console: ConsoleSettings, settings: Any, is_https: bool, trust_proxy: bool, forwarded: bytes, let_in: set[bytes]
) -> None:
    settings.CONSOLE = replace(console, is_https=is_https, trust_proxy=trust_proxy)
    passed: set[bytes] = set()
    for scheme in (b"http", b"https"):

        async def inner(*_: Any, scheme: bytes = scheme) -> None:
            passed.add(scheme)

        async def nothing(*_: Any) -> Any:
            return {}

        headers = [(b"origin", scheme + b"://localhost"), (b"host", b"localhost"), (b"x-forwarded-proto", forwarded)]
        await origin.SameOrigin(inner)({"type": "websocket", "headers": headers}, nothing, nothing)
    assert passed == let_in


async def test_a_foreign_page_is_refused_before_anything_is_looked_at_and_that_is_logged(
    feed: Feed, capsys: pytest.CaptureFixture[str]
) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie, origin=b"http://evil.example")
    assert not await tab.open()
    assert "live.origin_refused" in "".join(capsys.readouterr())


def _log_out(client: Client) -> None:
    client.post("/logout")


def _lock_out(_: Client) -> None:
    accounts.set_active(ME, "ada-operator", is_active=False)


def _change_password(_: Client) -> None:
    """Elsewhere: with another session of the same operator."""
    user = User.objects.get(username="ada-operator")
    accounts.change_own_password(Actor(user=user), "correct-horse", "quite another long password")


def _grow_old(client: Client) -> None:
    """And then some page is asked for."""
    session = client.session
    session["began_at"] -= django_settings.CONSOLE.session_s + 1
    session.save()
    client.get("/jobs")


def _demote(_: Client) -> None:
    accounts.set_role(ME, "ada-operator", "viewer")


@pytest.mark.parametrize("end", [_log_out, _lock_out, _change_password, _grow_old, _demote])
async def test_the_end_of_a_session_closes_its_sockets_at_once_and_asks_for_a_login(
    feed: Feed, monkeypatch: pytest.MonkeyPatch, end: Callable[[Client], None]
) -> None:
    monkeypatch.setattr(consumer, "RECHECK_S", 1e9)  # not by chance
    await sync_to_async(_log_in)("admin")  # somebody must stay admin
    client, cookie = await sync_to_async(_log_in)("operator")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    await tab.receive("tick")
    await sync_to_async(end)(client)
    assert await tab.closed() == consumer.Close.NOT_LOGGED_IN


async def test_a_message_after_the_end_of_the_session_asks_for_a_login_too(feed: Feed) -> None:
    client, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    await tab.receive("snap")
    await sync_to_async(client.session.delete)()  # which no signal tells
    await tab.subscribe("queues")
    assert await tab.closed() == consumer.Close.NOT_LOGGED_IN


async def test_a_role_that_may_not_see_the_board_is_told_so_at_once(
    feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(consumer, "RECHECK_S", 1e9)
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    await tab.receive("tick")
    user = await User.objects.aget(username="ada-viewer")
    await sync_to_async(user.groups.clear)()
    sessions.doubted.send(sender=None, user_id=user.pk)
    assert await tab.closed() == consumer.Close.NOT_ALLOWED


async def test_a_new_role_closes_the_socket_at_once_and_asks_for_a_new_login(feed: Feed) -> None:
    client, cookie = await sync_to_async(_log_in)("operator")
    tab = Tab(cookie)
    await tab.open()
    await tab.subscribe("lanes")
    await tab.receive("tick")
    await sync_to_async(_log_in)("admin")  # somebody must stay admin
    await sync_to_async(accounts.set_role)(ME, "ada-operator", "viewer")
    assert await tab.closed() == consumer.Close.NOT_LOGGED_IN
    answer = await sync_to_async(client.get)("/")
    assert (answer.status_code, answer["Location"]) == (302, "/login?next=/")


async def test_one_operator_opens_only_so_many_tabs(feed: Feed, console: ConsoleSettings, settings: Any) -> None:
    settings.CONSOLE = replace(console, live_per_user=2)
    _, cookie = await sync_to_async(_log_in)("viewer")
    _, other = await sync_to_async(_log_in)("operator")
    tabs = [Tab(cookie), Tab(cookie)]
    for tab in tabs:
        await tab.open()
        await tab.subscribe("lanes")
        await tab.receive("snap")
    third = Tab(cookie)
    await third.open()
    assert await third.closed() == consumer.Close.TOO_MANY
    theirs = Tab(other)
    await theirs.open()
    await theirs.subscribe("lanes")
    await theirs.receive("snap")
    await tabs[0].leave()
    fourth = Tab(cookie)
    await fourth.open()
    await fourth.subscribe("lanes")
    await fourth.receive("snap")
    for tab in (tabs[1], theirs, fourth):
        await tab.leave()
    user = await User.objects.aget(username="ada-viewer")
    assert attendance.count(user.pk) == 0


async def test_a_flood_of_messages_closes_the_socket(feed: Feed) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    tab = Tab(cookie)
    await tab.open()
    for _ in range(consumer.MESSAGES * 3):
        await tab.subscribe("lanes")
    assert await tab.closed() == consumer.Close.TOO_MANY


@pytest.mark.parametrize(
    ("text", "reason"), [("nonsense", "bad_message"), ('{"t": "sub", "topics": ["secrets"]}', "not_allowed")]
)
async def test_a_socket_closed_for_what_it_said_is_counted_by_reason(feed: Feed, text: str, reason: str) -> None:
    _, cookie = await sync_to_async(_log_in)("viewer")
    before = closed(reason)
    tab = Tab(cookie)
    await tab.open()
    await tab.say(text)
    await tab.closed()
    assert closed(reason) == before + 1


async def test_a_socket_closed_before_it_said_anything_is_counted_too(feed: Feed) -> None:
    before = closed("not_logged_in")
    tab = Tab()
    await tab.open()
    await tab.closed()
    assert closed("not_logged_in") == before + 1


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "nonsense",
        json.dumps({"t": "sub", "topics": ["lanes"] * 17}),
        json.dumps({"t": "sub", "topics": ["x" * 41]}),
        json.dumps({"t": "sub", "topics": ["lanes"], "resume": {str(n): 1 for n in range(33)}}),
        json.dumps({"t": "sub", "topics": ["lanes"], "resume": "x" * consumer.MESSAGE_LIMIT}),
        "[" * 10_000,
        '{"t":"sub","topics":["\ud800"]}',
    ],
)
def test_what_is_not_a_subscription_is_not_read_as_one(text: str) -> None:
    assert consumer.read(text) is None


def test_the_served_socket_takes_frames_of_64_kib_at_most() -> None:
    import inspect

    from console.programs.management.commands import serve

    assert "ws_max_size=65_536" in inspect.getsource(serve.Command.handle)
    assert consumer.MESSAGE_LIMIT < 65_536


async def test_a_connection_is_counted_once_however_often_it_enters() -> None:
    hall, woken = Attendance(), []
    wake = lambda: woken.append(1)  # noqa: E731  an identity of its own
    assert hall.enter(1, wake, 2)
    hall.doubt(user_id=1)
    hall.doubt(user_id=2)
    await sync_to_async(lambda: None)()
    assert woken == [1]
    hall.leave(1, wake)
    hall.leave(1, wake)
    assert hall.count(1) == 0
    assert django_settings.CONSOLE.live_per_user > 0
