"""One browser's websocket: says who may listen, sends what the hub queues, never lets a slow reader cost memory."""

import asyncio
import time
from collections.abc import Iterable
from contextlib import suppress
from enum import IntEnum
from typing import Annotated, Any, Final, NoReturn

import msgspec
from channels.db import database_sync_to_async
from channels.exceptions import StopConsumer
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from msgspec import Meta

from console.accounts.acts import Act
from console.accounts.rights import Actor, may
from console.accounts.sessions import owner
from console.board.projection import projected
from console.board.protocol import Backlog, Frame
from console.board.view import TOPICS
from console.feed.feed import Feed
from console.feed.running import running
from console.feed.watched import job_of
from console.live.attendance import attendance
from signalbox.program import log, metrics
from signalbox.program.tasks import TaskGroup

RECHECK_S: Final = 15.0
"""Seconds between checks of a connection's login and rights; a change in this process is checked at once."""
BEHIND_S: Final = 30.0
"""A reader that stays behind this long is closed."""
MESSAGE_LIMIT: Final = 16_384
"""Characters of one message; the server itself takes frames of 64 KiB."""
MESSAGES: Final = 30
"""Messages a connection may send at once, and again for every :data:`PER_S` seconds; each asks the database."""
PER_S: Final = 10.0
JOBS: Final = 4
"""Jobs that one connection may follow: a page follows one."""
_CLOSED: Final = metrics.counter(
    "console_live_closed", "Websockets that the console closed, by the reason it gave.", "reason"
)
_GONE: Final = (OSError, RuntimeError)
"""What a server raises for a socket that is closed: the first as ASGI specifies, the other as uvicorn does."""
ACTS: Final = {**dict.fromkeys(TOPICS, Act.SYSTEM_VIEW), "ticker": Act.JOBS_VIEW, "queuestates": Act.QUEUES_VIEW}
"""What each topic asks of its viewer."""


class Close(IntEnum):
    """Why the console closes a websocket: the code for the browser, its name in lower case for the counter."""

    NOT_RUNNING = 1013
    BAD_MESSAGE = 4400
    NOT_LOGGED_IN = 4401
    NOT_ALLOWED = 4403
    TOO_SLOW = 4408
    TOO_MANY = 4429
    """Connections of one operator, or messages of one connection."""


class Subscribe(msgspec.Struct, tag_field="t", tag="sub", forbid_unknown_fields=False):
    """What a browser may say: topics it wants, and what it holds already."""

    topics: Annotated[list[Annotated[str, Meta(max_length=40)]], Meta(max_length=16)]
    resume: Annotated[dict[str, Any], Meta(max_length=32)] = {}


_decode: Final = msgspec.json.Decoder(Subscribe).decode


def read(text: str | None) -> Subscribe | None:
    """What a browser said, or None if that is not a subscription: binary, too long, or of another form."""
    if not text or len(text) > MESSAGE_LIMIT:
        return None
    try:
        return _decode(text)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return None


class LiveConsumer(AsyncWebsocketConsumer):
    """One browser's live board; docs/live.md describes the protocol.

    Reader and writer end together, and with them the connection's place, whatever ends them: a disconnect
    that the server tells, a socket that is closed, a fault of ours.
    """

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.topics: set[str] = set()
        self._backlog = Backlog()
        self._ready = asyncio.Event()
        self._checked_at = self._filled_at = time.monotonic()
        self._budget = float(MESSAGES)
        self._is_doubted = self._is_shut = False
        self._user_id = 0
        self._only: tuple[str, ...] = ()
        self._feed: Feed | None = running.feed
        self._parts = TaskGroup()

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        """One connection, from its handshake to its end."""
        try:
            async with self._parts:
                await super().__call__(scope, receive, send)
                raise StopConsumer
        except* StopConsumer:
            pass
        finally:
            attendance.leave(self._user_id, self._doubt)
            if self._feed is not None:
                self._feed.hub.leave(self)

    async def connect(self) -> None:
        """Accepts a logged-in operator."""
        await self.accept()
        user = await database_sync_to_async(self._fresh_user)()
        if user is None:
            await self._shut(Close.NOT_LOGGED_IN)
        self._user_id, self._only = user.pk, tuple(user.only_models)
        if not attendance.enter(user.pk, self._doubt, settings.CONSOLE.live_per_user):
            log.warning("live.too_many_connections", user=user.get_username())
            await self._shut(Close.TOO_MANY)
        if self._feed is None:
            await self._shut(Close.NOT_RUNNING)
        self._parts.create_task(self._write(self._feed), name="live writer")

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A subscription. Anything else closes the connection."""
        asked = read(text_data)
        if asked is None or not self._has_budget(time.monotonic()):
            log.warning("live.message_refused", user_id=self._user_id, is_read=asked is not None)
            await self._shut(Close.BAD_MESSAGE if asked is None else Close.TOO_MANY)
        if sum(map(bool, map(job_of, {*self.topics, *asked.topics}))) > JOBS:
            await self._shut(Close.TOO_MANY)
        await self._require(asked.topics)
        if not asked.topics:
            await self._shut(Close.NOT_ALLOWED)
        if self._feed is None:
            await self._shut(Close.NOT_RUNNING)
        self._feed.hub.subscribe(self, asked.topics, asked.resume, time.time())

    def push(self, frame: Frame) -> None:
        """Called by the hub."""
        self._backlog.push(frame)
        self._ready.set()

    def _doubt(self) -> None:
        """Check login and rights before anything else is sent: they have changed."""
        self._is_doubted = True
        self._ready.set()

    def _has_budget(self, now: float) -> bool:
        """Whether one more message is within bounds; takes it from the budget."""
        gained = (now - self._filled_at) * MESSAGES / PER_S
        self._budget, self._filled_at = min(float(MESSAGES), self._budget + gained) - 1, now
        return self._budget >= 0

    async def _write(self, feed: Feed) -> NoReturn:
        """Sends what is queued, at the pace the browser takes it. Raises :class:`StopConsumer` at the end."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            is_due = self._is_doubted or time.monotonic() > self._checked_at + RECHECK_S
            if is_due:
                await self._recheck()
            while not self._is_doubted and (item := self._backlog.pop()) is not None:
                now = time.time()
                frame = feed.view.topics.snapshot(item, now) if isinstance(item, str) else item
                try:
                    await self.send(projected(frame.text, self._only) if self._only else frame.text)
                except _GONE as error:
                    raise StopConsumer from error
                behind_since = self._backlog.behind_since
                if behind_since is not None and now - behind_since > BEHIND_S:
                    log.info("live.viewer_too_slow", overflows=self._backlog.overflows)
                    await self._shut(Close.TOO_SLOW)

    async def _recheck(self) -> None:
        self._checked_at, self._is_doubted = time.monotonic(), False
        await self._require(self.topics)

    async def _shut(self, code: Close) -> NoReturn:
        """Close and count the reason; nothing where reader or writer has closed already."""
        if not self._is_shut:
            self._is_shut = True
            _CLOSED.labels(code.name.lower()).inc()
            with suppress(*_GONE):
                await self.close(code.value)
        raise StopConsumer

    async def _require(self, topics: Iterable[str]) -> None:
        """Close unless the login goes on, and all these topics exist and may be seen."""
        refusal = await database_sync_to_async(self._refusal)(topics)
        if refusal is not None:
            await self._shut(refusal)

    def _refusal(self, topics: Iterable[str]) -> Close | None:
        user = self._fresh_user()
        if user is None:
            return Close.NOT_LOGGED_IN
        actor = Actor(user=user, via="live")
        return None if all(_is_allowed(actor, topic) for topic in topics) else Close.NOT_ALLOWED

    def _fresh_user(self) -> Any:
        """The operator this session belongs to now, not when it opened; None if it has ended or was switched off."""
        session = self.scope.get("session")
        return owner(session.session_key, time.time()) if session is not None else None


def _is_allowed(actor: Actor, topic: str) -> bool:
    if job_id := job_of(topic):
        return may(actor, Act.JOBS_VIEW, place=("job", job_id))
    return topic in ACTS and may(actor, ACTS[topic])
