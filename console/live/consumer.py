"""One browser's websocket: says who may listen, sends what the hub queues, never lets a slow reader cost memory."""

import asyncio
import time
from typing import Annotated, Any, Final

import msgspec
from channels.db import database_sync_to_async
from channels.generic.websocket import AsyncWebsocketConsumer
from django.conf import settings
from msgspec import Meta

from console.accounts.rights import Act, Actor, may
from console.accounts.sessions import owner
from console.live.attendance import attendance
from console.live.feed import Feed
from console.live.lifespan import lifespan
from console.live.protocol import Backlog, Frame
from signalbox import log, metrics

RECHECK_S: Final = 15.0
"""How often a connection's login and rights are looked at again, besides at once when they change here."""
BEHIND_S: Final = 30.0
"""A reader that stays behind this long is closed."""
NOT_LOGGED_IN: Final = 4401
NOT_ALLOWED: Final = 4403
TOO_SLOW: Final = 4408
BAD_MESSAGE: Final = 4400
TOO_MANY: Final = 4429
NOT_RUNNING: Final = 1013
MESSAGE_LIMIT: Final = 16_384
"""Characters of one message; the server itself takes frames of 64 KiB."""
MESSAGES: Final = 30
"""Messages a connection may send at once, and again for every :data:`PER_S` seconds; each asks the database."""
PER_S: Final = 10.0
_CLOSED: Final = metrics.counter(
    "console_live_closed", "Websockets that the console closed, by the reason it gave.", "reason"
)
_REASONS: Final = {
    NOT_LOGGED_IN: "not_logged_in", NOT_ALLOWED: "not_allowed", TOO_SLOW: "too_slow",
    BAD_MESSAGE: "bad_message", TOO_MANY: "too_many", NOT_RUNNING: "not_running",
}  # fmt: skip

ACTS: Final[dict[str, Act]] = {
    "lanes": Act.SYSTEM_VIEW,
    "queues": Act.SYSTEM_VIEW,
    "workers": Act.SYSTEM_VIEW,
    "throughput": Act.SYSTEM_VIEW,
    "health": Act.SYSTEM_VIEW,
    "alarms": Act.SYSTEM_VIEW,
    "ticker": Act.JOBS_VIEW,
}
"""What each topic asks of its viewer."""


class Subscribe(msgspec.Struct, tag_field="t", tag="sub", forbid_unknown_fields=False):
    """What a browser may say: topics it wants, and what it holds already."""

    topics: Annotated[list[Annotated[str, Meta(max_length=32)]], Meta(max_length=16)]
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
    """Protocol of the spec, section 6.2.

    Close codes: 4400 bad message, 4401 logged out, 4403 not allowed, 4408 too slow, 4429 too many connections or
    messages.
    """

    async def connect(self) -> None:
        """Accepts a logged-in operator."""
        self.topics: set[str] = set()
        self._backlog = Backlog()
        self._ready = asyncio.Event()
        self._writer: asyncio.Task[None] | None = None
        self._checked_at = self._filled_at = time.monotonic()
        self._budget = float(MESSAGES)
        self._is_doubted = False
        self._user_id = 0
        self._feed: Feed | None = lifespan.feed
        await self.accept()
        user = await database_sync_to_async(self._fresh_user)()
        if user is None:
            await self._shut(NOT_LOGGED_IN)
        elif not attendance.enter(user.pk, self._doubt, settings.CONSOLE.live_per_user):
            log.warning("live.too_many_connections", user=user.get_username())
            await self._shut(TOO_MANY)
        elif self._feed is None:
            self._user_id = user.pk
            await self._shut(NOT_RUNNING)
        else:
            self._user_id = user.pk
            self._writer = asyncio.create_task(self._write(self._feed), name="live writer")

    async def disconnect(self, code: int) -> None:
        """The browser has gone."""
        attendance.leave(self._user_id, self._doubt)
        if self._feed is not None:
            self._feed.hub.leave(self)
        writer, self._writer = self._writer, None
        if writer is not None and writer is not asyncio.current_task():
            writer.cancel()
            await asyncio.wait([writer])

    async def receive(self, text_data: str | None = None, bytes_data: bytes | None = None) -> None:
        """A subscription. Anything else closes the connection."""
        if self._feed is None or self._writer is None:
            return
        wish = read(text_data)
        if wish is None or not self._has_budget(time.monotonic()):
            log.warning("live.message_refused", user_id=self._user_id, is_read=wish is not None)
            await self._end(self._feed, BAD_MESSAGE if wish is None else TOO_MANY)
            return
        allowed = await self._allowed(wish.topics)
        if allowed is None:
            await self._end(self._feed, NOT_ALLOWED)
            return
        self._feed.hub.subscribe(self, allowed, wish.resume, time.time())

    def push(self, frame: Frame) -> None:
        """Called by the hub."""
        self._backlog.push(frame)
        self._ready.set()

    def _doubt(self) -> None:
        """The operator's login or rights changed somewhere: look again before anything else is sent."""
        self._is_doubted = True
        self._ready.set()

    def _has_budget(self, now: float) -> bool:
        """Whether one more message is within bounds; takes it from the budget."""
        gained = (now - self._filled_at) * MESSAGES / PER_S
        self._budget, self._filled_at = min(float(MESSAGES), self._budget + gained) - 1, now
        return self._budget >= 0

    async def _write(self, feed: Feed) -> None:
        """Sends what is queued, at the pace the browser takes it."""
        while True:
            await self._ready.wait()
            self._ready.clear()
            is_due = self._is_doubted or time.monotonic() > self._checked_at + RECHECK_S
            if is_due and not await self._recheck(feed):
                return
            while not self._is_doubted and (item := self._backlog.pop()) is not None:
                now = time.time()
                frame = feed.view.topics.snapshot(item, now) if isinstance(item, str) else item
                await self.send(frame.text)
                behind_since = self._backlog.behind_since
                if behind_since is not None and now - behind_since > BEHIND_S:
                    log.info("live.viewer_too_slow", overflows=self._backlog.overflows)
                    await self._end(feed, TOO_SLOW)
                    return

    async def _recheck(self, feed: Feed) -> bool:
        self._checked_at, self._is_doubted = time.monotonic(), False
        if not await self._is_logged_in():
            await self._end(feed, NOT_LOGGED_IN)
            return False
        if self.topics and await self._allowed(sorted(self.topics)) is None:
            await self._end(feed, NOT_ALLOWED)
            return False
        return True

    async def _end(self, feed: Feed, code: int) -> None:
        feed.hub.leave(self)
        await self._shut(code)

    async def _shut(self, code: int) -> None:
        """Close, and count why."""
        _CLOSED.labels(_REASONS[code]).inc()
        await self.close(code)

    async def _is_logged_in(self) -> bool:
        """Asks the session store and the database, not what was true when the socket opened."""
        return await database_sync_to_async(self._fresh_user)() is not None

    async def _allowed(self, topics: list[str]) -> list[str] | None:
        """The topics, if they exist and all may be seen; None otherwise."""
        return await database_sync_to_async(self._check)(topics)

    def _check(self, topics: list[str]) -> list[str] | None:
        user = self._fresh_user()
        if user is None or not topics:
            return None
        actor = Actor(user=user, via="live")
        if all(topic in ACTS and may(actor, ACTS[topic]) for topic in topics):
            return topics
        return None

    def _fresh_user(self) -> Any:
        """The operator this session belongs to now, or None if it has ended or was switched off."""
        session = self.scope.get("session")
        return owner(session.session_key, time.time()) if session is not None else None
