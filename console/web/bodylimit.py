"""Bounds the size of request bodies, by route and caller.

Django puts a body on the disk, all of it, before it asks a middleware or a view anything; so the bound stands
in front of Django. What it refuses, Django words: with the request id, the headers and the form of any other answer.

Of a body that came in chunks, without a length, Django reads no form and the REST framework nothing: both go by
``Content-Length``. All of it is there before they look, so here its length is added.
"""

import asyncio
import io
import time
from typing import Any, Final

from asgiref.sync import ThreadSensitiveContext
from channels.db import database_sync_to_async
from django.conf import settings
from django.core.handlers.asgi import ASGIRequest
from django.urls import Resolver404, resolve
from rest_framework.exceptions import AuthenticationFailed
from rest_framework.request import Request

from console.accounts.acts import Act
from console.accounts.authentication import OperatorTokenAuthentication
from console.accounts.rights import Actor, may
from console.accounts.sessions import owner
from console.database import DATABASE_FAULTS, database_away
from console.web.middleware import REFUSAL
from signalbox.front.front import Message, Receive, Scope, Send
from signalbox.program import log, metrics
from signalbox.program.errors import SignalboxError, TooLarge

_UPLOADS: Final = frozenset({"upload-model", "api-versions"})
"""Routes that take archives, as the URLs name them."""
_LENGTH: Final = b"content-length"
_REFUSED: Final = metrics.counter(
    "console_bodies_refused", "Requests to the console refused because of their body's size."
)


class BodyLimit:
    """Takes a body of at most ``DATA_UPLOAD_MAX_MEMORY_SIZE``, which Django keeps in memory.

    Only an archive may be longer, up to ``upload_max_bytes`` (and the form around it), and only from a login
    or a token that may upload models: that is looked up before a byte of the body is read.
    """

    def __init__(self, inner: Any) -> None:
        self._inner = inner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Hand the request on, or have it refused and the rest of its body left unread."""
        try:
            cap = await _cap(scope)
        except DATABASE_FAULTS as error:
            log.warning("console.body_bound_unknown", reason=type(error).__name__)
            await self._refuse(scope, send, database_away())
            return
        scope = {**scope, "headers": list(scope["headers"])}
        body = _Body(receive, cap, scope["headers"])
        if _declared(scope) <= cap:
            await self._inner(scope, body.receive, send)
            if not body.is_over:
                return
        _REFUSED.inc()
        log.warning("console.body_refused", path=str(scope["path"])[:200], cap_bytes=cap)
        await self._refuse(
            scope,
            send,
            TooLarge(
                f"The body is longer than the {cap} bytes taken here. An archive may be longer, sent to"
                " where models are uploaded with a login or a token that may upload them."
            ),
        )

    async def _refuse(self, scope: Scope, send: Send, error: SignalboxError) -> None:
        await self._inner({**scope, REFUSAL: error}, _nothing(), send)


class _Body:
    """Counts what is read. Past the cap the client has gone, as far as Django sees: it throws away what it has.

    headers: of the request; they get the length of a body that said none, once it is whole.
    """

    def __init__(self, receive: Receive, cap: int, headers: list[tuple[bytes, bytes]]) -> None:
        self._receive, self._cap, self._left, self.is_over = receive, cap, cap, False
        self._headers = headers
        self._has_length = any(name == _LENGTH for name, _ in headers)

    async def receive(self) -> Message:
        """The next message of the request."""
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            self.is_over = True
            return {"type": "http.disconnect"}
        if not self._has_length and message["type"] == "http.request" and not message.get("more_body"):
            self._has_length = True
            self._headers.append((_LENGTH, b"%d" % (self._cap - self._left)))
        return message


async def _cap(scope: Scope) -> int:
    """Bytes this request's body may have."""
    small: int = settings.DATA_UPLOAD_MAX_MEMORY_SIZE
    if scope["method"] != "POST":
        return small
    async with ThreadSensitiveContext():  # as Django does: no request waits for another's
        is_upload = await database_sync_to_async(_may_upload)(scope)
    return settings.CONSOLE.upload_max_bytes + small if is_upload else small


def _may_upload(scope: Scope) -> bool:
    try:
        request = ASGIRequest(scope, io.BytesIO())
        if resolve(request.path_info).url_name not in _UPLOADS:
            return False
        known = OperatorTokenAuthentication().authenticate(Request(request))
    except (UnicodeDecodeError, Resolver404, AuthenticationFailed):
        return False  # Django and the view say what is wrong, to a small request
    key = request.COOKIES.get(settings.SESSION_COOKIE_NAME)
    user = known[0] if known else owner(key, time.time())
    return may(Actor(user=user), Act.MODELS_REGISTER)


def _declared(scope: Scope) -> int:
    """The declared length; 0 without one: the bytes that come are counted anyway."""
    sizes = [value for name, value in scope["headers"] if name == _LENGTH]
    return max((int(size) for size in sizes if size.isdigit() and len(size) < 19), default=0)


def _nothing() -> Receive:
    """Messages of an empty body, and then of a client that waits for its answer."""
    is_reported = False

    async def receive() -> Message:
        nonlocal is_reported
        if is_reported:
            await asyncio.Event().wait()  # Django gives up listening once it has answered
        is_reported = True
        return {"type": "http.request", "body": b"", "more_body": False}

    return receive
