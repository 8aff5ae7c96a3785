"""The edge as an ASGI application: Tyk's chain of checks around the plugin's two hooks."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final

from gateway_plugin.dispatcher import count_refusal
from gateway_plugin.edge import answers
from gateway_plugin.edge.answers import Answer, ErrorPages, Headers
from gateway_plugin.edge.definition import Front
from gateway_plugin.edge.limits import Limits, Rate
from gateway_plugin.edge.requests import ObjectMaker, canonical, headers_of
from gateway_plugin.edge.target import Redirect, Target, read
from gateway_plugin.proto.coprocess_pb2 import Object, ReturnOverrides, SessionState
from signalbox.errors import SignalboxError
from signalbox.front.front import EXCHANGE
from signalbox.front.gate import Exchange
from signalbox.log import get_logger

Call = Callable[[Object], Awaitable[Object]]
Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BAD_HTTP: Final = "invalid_request:http"
_DRAIN_S: Final = 2.0  # how long the rest of a refused body is read, so that the client sees why
_RETRY_AFTER: Final = b"Retry-After"
_BODILESS: Final = frozenset({204, 304})
_REASONS: Final = {
    answers.KEY_INACTIVE: "forbidden:inactive",
    answers.KEY_EXPIRED: "unauthorized:expired",
    answers.API_DISALLOWED: "forbidden:api",
    answers.NOT_LISTED: "forbidden:path",
    answers.RATE_EXCEEDED: "limit_exceeded:rate",
    answers.QUOTA_EXCEEDED: "limit_exceeded:quota",
}
"""Why a caller is refused here. What the plugin refuses it counts itself; the rest is no fault of a caller's."""

_log = get_logger()


class _TooLarge(Exception):
    """The body is above the gateway's limit."""


class _ClientLeft(Exception):
    """The connection ended before the request was complete."""


class Edge:
    """One front. call: the plugin, in process or over gRPC; any exception of it means it is away.

    monotonic, wall: clocks in seconds.
    """

    def __init__(
        self,
        front: Front,
        call: Call,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._front = front
        self._call = call
        self._wall = wall
        self._pages = ErrorPages(front)
        self._limits = Limits(monotonic, wall)
        self._objects = ObjectMaker(front.hooked, front.xff_depth)
        self._keyless = tuple((api.listen_path.encode(), api) for api in front.keyless)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. A client that leaves ends the plugin's call, as with Tyk.

        An answer that takes longer than the gateway's write timeout ends the connection without a
        word, as Go's server does it.
        """
        exchange: Exchange = scope[EXCHANGE]
        exchange.begin()
        loop = asyncio.get_running_loop()
        timer = loop.call_later(self._front.answer_s, exchange.give_up)
        try:
            answer = await self.answer(scope, receive)
        except _ClientLeft:
            return
        except asyncio.CancelledError:
            if exchange.is_given_up:
                return  # the cancellation was ours, and nobody is left to answer
            raise
        finally:
            timer.cancel()
            exchange.end()
        body = b"" if answer.status in _BODILESS else answer.body
        await _send(answer, body, send)

    async def answer(self, scope: Scope, receive: Receive) -> Answer:
        """The answer to one request, whoever gives it."""
        try:
            target = read(scope["raw_path"], scope["query_string"])
            headers = headers_of(scope["headers"])
        except UnicodeDecodeError:
            count_refusal(BAD_HTTP)
            return self._pages.known(*answers.PLUGIN_AWAY)
        if target is None:
            count_refusal(BAD_HTTP)
            return answers.bad_request()
        if scope["http_version"] == "1.1" and "Host" not in headers:
            count_refusal(BAD_HTTP)
            return answers.bad_request(": missing required Host header")
        try:
            body = await self._body(headers, receive)
        except _TooLarge:
            count_refusal("too_large:http")
            return answers.TOO_LARGE
        if isinstance(target, Redirect):
            return answers.moved(target.location)
        for prefix, api in self._keyless:
            if scope["raw_path"].startswith(prefix):
                mock = api.mocks.get(scope["method"])
                if mock is None:
                    return self._page(answers.NOT_LISTED, headers)
                return Answer(
                    mock.status, answers.wire_headers(mock.headers.items()), mock.body.encode()
                )
        return await self._hooked(scope, target, headers, body)

    async def _hooked(
        self, scope: Scope, target: Target, headers: dict[str, str], body: bytes
    ) -> Answer:
        try:
            sent = self._objects.auth(scope["method"], target, headers, body)
        except ValueError:  # a protobuf string must be UTF-8
            count_refusal(BAD_HTTP)
            return self._page(answers.PLUGIN_AWAY, headers)
        replied = await self._dispatch(sent)
        if replied is None:
            return self._page(answers.PLUGIN_AWAY, headers)
        overrides = replied.request.return_overrides
        if overrides.response_code > 0:
            return self._overridden(overrides, headers, [])
        session = replied.session
        if replied.metadata:
            session.metadata.MergeFrom(replied.metadata)
        token = session.metadata.get("token", "")
        if not token:
            return self._page(answers.NO_SESSION, headers)
        refusal = self._refusal(session)
        if refusal:
            return self._page(refusal, headers)
        rate = self._limits.take(token, session) if self._front.hooked.is_rate_limited else None
        shown = _rate_headers(rate) if rate and self._front.shows_rate else []
        if rate and not rate.is_allowed:
            return _later(self._page(answers.RATE_EXCEEDED, headers, shown), rate.left_s)
        quota = self._limits.spend(token, session) if self._front.hooked.has_quota else None
        if quota and not quota.is_allowed:
            return _later(self._page(answers.QUOTA_EXCEEDED, headers, shown), quota.left_s)
        return await self._post(sent, replied, target, headers, shown, scope)

    async def _post(
        self,
        authed: Object,
        replied: Object,
        target: Target,
        headers: dict[str, str],
        shown: Headers,
        scope: Scope,
    ) -> Answer:
        client = scope.get("client")
        try:
            sent = self._objects.post(authed, replied, target.url, client[0] if client else "")
        except ValueError as error:
            _log.warning("edge.reply_refused", error=str(error))
            return self._page(answers.HOOK_FAILED, headers, shown)
        final = await self._dispatch(sent)
        if final is None:
            return self._page(answers.HOOK_FAILED, headers, shown)
        overrides = final.request.return_overrides
        if overrides.response_code > 0:
            return self._overridden(overrides, headers, shown)
        return self._page(answers.NOT_PROXIED, headers, shown)  # the target is a sink

    async def _dispatch(self, sent: Object) -> Object | None:
        """The plugin's reply; None when it failed or gave back something else than it got."""
        try:
            replied = await self._call(sent)
        except SignalboxError as error:
            _log.warning("edge.plugin_failed", hook=sent.hook_name, error=error.code)
            return None
        except Exception as error:  # noqa: BLE001 - whatever it is, to the client the plugin is away
            _log.error("edge.plugin_failed", hook=sent.hook_name, error=repr(error))
            return None
        return replied if replied.HasField("request") else None

    def _refusal(self, session: SessionState) -> tuple[int, str] | None:
        if session.is_inactive:
            return answers.KEY_INACTIVE
        if 0 < session.expires < self._wall():
            return answers.KEY_EXPIRED
        if session.access_rights and self._front.hooked.api_id not in session.access_rights:
            return answers.API_DISALLOWED
        return None

    def _page(
        self, error: tuple[int, str], headers: dict[str, str], shown: Headers | None = None
    ) -> Answer:
        if error in _REASONS:
            count_refusal(_REASONS[error])
        page = self._pages.known(*error, headers.get("Content-Type", ""))
        return page._replace(headers=page.headers + shown) if shown else page

    def _overridden(
        self, overrides: ReturnOverrides, headers: dict[str, str], shown: Headers
    ) -> Answer:
        status = overrides.response_code
        body = overrides.response_error or overrides.response_body
        given = {canonical(name.encode()): value for name, value in overrides.headers.items()}
        written = answers.wire_headers(given.items())
        kept = [pair for pair in shown if pair[0].decode() not in given] if shown else shown
        if status >= 400 and not overrides.override_error:
            content_type = headers.get("Content-Type", "")
            page = self._pages.page(status, body or "Key not authorised", content_type)
            named = {name for name, _ in page.headers}
            written = [pair for pair in written if pair[0] not in named]
            return Answer(page.status, [*kept, *written, *page.headers], page.body)
        if body and status not in _BODILESS and "Content-Type" not in given:
            written.append((b"Content-Type", b"text/plain; charset=utf-8"))
        return Answer(status, kept + written, body.encode())

    async def _body(self, headers: dict[str, str], receive: Receive) -> bytes:
        """The whole body. Raises _TooLarge, after the client had time to send the rest."""
        declared = headers.get("Content-Length")
        if declared is None and "Transfer-Encoding" not in headers:
            return b""
        headers.pop("Transfer-Encoding", None)
        limit = self._front.max_body_bytes
        if limit and declared and int(declared) > limit:
            await _drain(headers, receive)
            raise _TooLarge
        message = await receive()
        if not message.get("more_body"):
            return _part(message)
        parts = [_part(message)]
        size = len(parts[0])
        while message.get("more_body"):
            message = await receive()
            parts.append(_part(message))
            size += len(parts[-1])
            if limit and size > limit:
                parts.clear()
                await _drain({}, receive)
                raise _TooLarge
        return b"".join(parts)


async def _send(answer: Answer, body: bytes, send: Send) -> None:
    """One whole answer."""
    headers = answer.headers
    if answer.status not in _BODILESS:
        headers = [*headers, (b"Content-Length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _part(message: dict[str, Any]) -> bytes:
    if message["type"] == "http.disconnect":
        raise _ClientLeft
    part: bytes = message["body"]
    return part


async def _drain(headers: dict[str, str], receive: Receive) -> None:
    """Reads on and throws away: a connection closed on unread bytes would lose our answer."""
    if "Expect" in headers:
        return
    try:
        async with asyncio.timeout(_DRAIN_S):
            while (await receive()).get("more_body"):
                pass
    except TimeoutError:
        return


def _later(page: Answer, left_s: float | None) -> Answer:
    """The page of a limit, with when it can be tried again; Tyk's overrides know constants only."""
    if left_s is None:
        return page
    kept = [pair for pair in page.headers if pair[0] != _RETRY_AFTER]
    return page._replace(headers=[*kept, (_RETRY_AFTER, b"%d" % max(1, math.ceil(left_s)))])


def _rate_headers(rate: Rate) -> Headers:
    return [
        (b"X-Ratelimit-Limit", b"%d" % rate.limit),
        (b"X-Ratelimit-Remaining", b"%d" % rate.remaining),
        (b"X-Ratelimit-Reset", b"%d" % rate.reset_at),
    ]
