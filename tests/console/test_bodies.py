"""How much of a request's body is taken: little from anybody, an archive from who may upload one."""

import asyncio
import json
import tempfile
from collections.abc import MutableMapping
from typing import Any

import pytest
from asgiref.sync import sync_to_async
from django.conf import settings as django_settings
from django.core.asgi import get_asgi_application
from django.db import OperationalError
from django.test import Client
from msgspec.structs import replace

from console.accounts.models import User
from console.accounts.rights import Actor
from console.config import ConsoleSettings
from console.operators import services as accounts
from console.web import bodylimit
from console.web.bodylimit import BodyLimit
from signalbox.program import metrics

pytestmark = pytest.mark.django_db(transaction=True)
SMALL = django_settings.DATA_UPLOAD_MAX_MEMORY_SIZE
CHUNK = 64 * 1024
PAGE, API = "/models/-/upload", "/api/models/digits/versions"


class Stranger:
    """A client that sends without end, or as much as it is told to, and what it is answered."""

    def __init__(self, path: str, *headers: tuple[bytes, bytes], size: int | None = None) -> None:
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "query_string": b"",
            "headers": [(b"host", b"localhost"), *headers],
        }
        self.sent = 0
        self.status = 0
        self.headers: dict[bytes, bytes] = {}
        self.body = b""
        self._size = size

    async def receive(self) -> MutableMapping[str, Any]:
        """The next piece of the body."""
        if self.sent == self._size:
            await asyncio.Event().wait()  # it listens for the answer
        self.sent += CHUNK
        assert self.sent < 8 * SMALL, "It is read without end."
        return {"type": "http.request", "body": bytes(CHUNK), "more_body": self.sent != self._size}

    async def send(self, message: MutableMapping[str, Any]) -> None:
        """A piece of the answer."""
        if message["type"] == "http.response.start":
            assert not self.status, "It is answered twice."
            self.status, self.headers = message["status"], dict(message["headers"])
        self.body += message.get("body", b"")

    async def ask(self) -> int:
        """The status of the answer."""
        await BodyLimit(get_asgi_application())(self.scope, self.receive, self.send)
        return self.status


@pytest.fixture(autouse=True)
def memory_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that goes to the disk fails the test."""

    def roll(_: Any) -> None:
        raise AssertionError("The body is on the disk.")

    monkeypatch.setattr(tempfile.SpooledTemporaryFile, "rollover", roll)


def refused() -> float:
    return metrics.REGISTRY.get_sample_value("signalbox_console_bodies_refused_total") or 0.0


def session_of(user: User) -> tuple[bytes, bytes]:
    client = Client()
    client.force_login(user)
    name = django_settings.SESSION_COOKIE_NAME
    return b"cookie", f"{name}={client.cookies[name].value}".encode()


def token_of(user: User) -> tuple[bytes, bytes]:
    _, text = accounts.create_token(Actor(user=user), "ci", 1)
    return b"authorization", f"Bearer {text}".encode()


@pytest.mark.parametrize("path", [PAGE, API, "/login", "/settings/password", "/no/such/page"])
async def test_a_body_without_end_is_cut_off_and_never_on_the_disk(path: str) -> None:
    before = refused()
    stranger = Stranger(path)
    assert await stranger.ask() == 413
    assert stranger.sent == SMALL + CHUNK
    assert stranger.headers[b"Connection"] == b"close"
    assert b"default-src 'self'" in stranger.headers[b"Content-Security-Policy"]
    assert refused() == before + 1


@pytest.mark.parametrize("path", [PAGE, API, "/login"])
async def test_a_body_that_says_it_is_too_long_is_not_read_at_all(path: str) -> None:
    stranger = Stranger(path, (b"content-length", str(SMALL + 1).encode()))
    assert await stranger.ask() == 413
    assert stranger.sent == 0


@pytest.mark.parametrize("path", [PAGE, API])
async def test_the_refusal_speaks_as_its_caller_does(path: str) -> None:
    stranger = Stranger(path, (b"x-request-id", b"trace-me-1234"))
    await stranger.ask()
    assert stranger.headers[b"X-Request-Id"] == b"trace-me-1234"
    if path == PAGE:
        assert b"trace-me-1234" in stranger.body
        assert b"<h1>" in stranger.body
    else:
        assert stranger.headers[b"Content-Type"] == b"application/problem+json"
        assert json.loads(stranger.body)["code"] == "too_large"


async def test_a_small_body_gets_the_answer_it_always_got() -> None:
    assert await Stranger(PAGE, size=CHUNK).ask() == 403  # no CSRF token
    assert await Stranger(API, size=CHUNK).ask() == 401
    assert await Stranger("/no/such/page", size=SMALL).ask() == 404


@pytest.mark.parametrize("show", [session_of, token_of])
async def test_who_may_upload_sends_an_archive_and_no_more(
    cast: dict[str, User], console: ConsoleSettings, settings: Any, monkeypatch: pytest.MonkeyPatch, show: Any
) -> None:
    settings.CONSOLE = replace(console, upload_max_bytes=3 * SMALL)
    monkeypatch.undo()  # an archive may lie on the disk
    proof = await sync_to_async(show)(cast["model manager"])
    for path in (API, PAGE):
        fits = Stranger(path, proof, size=3 * SMALL)
        assert await fits.ask() not in {401, 413}
        assert fits.sent == 3 * SMALL
    endless = Stranger(API, proof)
    assert await endless.ask() == 413
    assert endless.sent == 4 * SMALL + CHUNK
    assert await Stranger("/api/models", proof, size=3 * SMALL).ask() == 413


FORM = (
    b'--b\r\nContent-Disposition: form-data; name="archive"; filename="m.tar"\r\n'
    b"Content-Type: application/octet-stream\r\n\r\nno archive\r\n--b--\r\n"
)


class Given(Stranger):
    """A client that sends this body in pieces of seven bytes, with its length or without."""

    def __init__(self, path: str, kind: bytes, body: bytes, proof: tuple[bytes, bytes], *, is_chunked: bool) -> None:
        framing = (b"transfer-encoding", b"chunked") if is_chunked else (b"content-length", b"%d" % len(body))
        super().__init__(path, (b"content-type", kind), framing, proof)
        self._body = body

    async def receive(self) -> MutableMapping[str, Any]:
        if self.sent >= len(self._body):
            await asyncio.Event().wait()
        piece = self._body[self.sent : self.sent + 7]
        self.sent += 7
        return {"type": "http.request", "body": piece, "more_body": self.sent < len(self._body)}


@pytest.mark.parametrize(
    ("path", "kind", "body", "status", "words"),
    [
        (API, b"multipart/form-data; boundary=b", FORM, 400, b"archive"),
        ("/api/accounts", b"application/json", b'{"name": "chunks", "more": 1}', 400, b"more"),
        ("/api/keys", b"application/json", b"{", 400, b"JSON"),
    ],
)
async def test_a_body_without_a_length_is_read_as_one_that_says_it(
    cast: dict[str, User], path: str, kind: bytes, body: bytes, status: int, words: bytes
) -> None:
    proof = await sync_to_async(token_of)(cast["admin"])
    answers = []
    for is_chunked in (False, True):
        client = Given(path, kind, body, proof, is_chunked=is_chunked)
        assert await client.ask() == status
        assert b"submitted" not in client.body
        assert words in client.body
        answers.append(json.loads(client.body)["detail"])
    assert answers[0] == answers[1]


@pytest.mark.parametrize("show", [session_of, token_of])
async def test_who_may_not_upload_is_a_stranger(cast: dict[str, User], show: Any) -> None:
    proof = await sync_to_async(show)(cast["operator"])
    assert await Stranger(API, proof).ask() == 413


@pytest.mark.parametrize("is_session", [True, False])
async def test_a_login_or_token_that_has_ended_is_none(cast: dict[str, User], is_session: bool) -> None:
    def end() -> tuple[bytes, bytes]:
        proof = (session_of if is_session else token_of)(cast["model manager"])
        User.objects.filter(username="model-manager").update(is_active=False)
        return proof

    assert await Stranger(API, await sync_to_async(end)()).ask() == 413


@pytest.mark.parametrize(
    "header",
    [
        (b"authorization", b"Bearer sbo_" + b"a" * 12 + b"_" + b"b" * 43),
        (b"authorization", b"Bearer"),
        (b"authorization", b"Basic \xff"),
        (b"cookie", b"signalbox_session=" + b"a" * 32),
        (b"content-length", b"many"),
    ],
)
async def test_nonsense_opens_nothing(header: tuple[bytes, bytes]) -> None:
    for path in (PAGE, API):
        assert await Stranger(path, header).ask() == 413


async def test_without_the_database_no_archive_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    def away(_: Any) -> bool:
        raise OperationalError

    monkeypatch.setattr(bodylimit, "_may_upload", away)
    stranger = Stranger(API)
    assert await stranger.ask() == 503
    assert stranger.sent == 0
    assert stranger.headers[b"Retry-After"] == b"5"
    assert json.loads(stranger.body)["code"] == "unavailable"
