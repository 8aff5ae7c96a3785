"""The edge as an ASGI application: Tyk's chain of checks around the plugin's two hooks."""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple

from gateway_plugin.admission.pool import Pool, PoolShare, bodies_pool
from gateway_plugin.edge import gatewayerrors as errors
from gateway_plugin.edge import responses
from gateway_plugin.edge.admit import Admission
from gateway_plugin.edge.definition import CheckedApi, Definition
from gateway_plugin.edge.gatewayerrors import GatewayError
from gateway_plugin.edge.limits import KeyLimits, Quota, Rate
from gateway_plugin.edge.plugin import Call, LocalPlugin, MessagePlugin, Page, Passed, Plugin, Reply
from gateway_plugin.edge.responses import EdgeResponse, ErrorTemplates, Headers
from gateway_plugin.edge.target import Redirect, RequestTarget, read
from gateway_plugin.edge.upstream import Application, Handed, UpstreamPaths
from gateway_plugin.hooks.direct import DirectHooks
from gateway_plugin.hooks.dispatcher import count_refusal
from gateway_plugin.service.jsonresponses import refusal
from gateway_plugin.service.request import Request, headers_of
from gateway_plugin.upstream.body import BODIES_BYTES, BodyTooLargeError, ClientLeftError, Receive, RequestBody
from signalbox.front.front import EXCHANGE
from signalbox.front.gate import Exchange
from signalbox.program.errors import LimitExceeded, SignalboxError, TooLarge, Unavailable, Unimplemented

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]

BAD_HTTP: Final = "invalid_request:http"
_RETRY_AFTER: Final = b"Retry-After"
_BODILESS: Final = frozenset({204, 304})


class Admitted(NamedTuple):
    """A request whose key may call. shown: headers of its rate, for the answer."""

    passed: Passed
    quota: Quota | None
    shown: Headers


class Edge:
    """One front. plugin: a function that calls it by Tyk's messages, or its hooks in this process.

    bodies: what all bodies in flight are taken from, 512 MiB where nothing is said. upstream: the application for what
    the hooks do not answer. admission: what calls are charged by; one of its own where nothing is said.
    """

    def __init__(
        self,
        front: Definition,
        plugin: Call | DirectHooks,
        *,
        bodies: Pool | None = None,
        upstream: Application | None = None,
        admission: Admission | None = None,
    ) -> None:
        self._front = front
        self._plugin: Plugin = (
            LocalPlugin(front, plugin) if isinstance(plugin, DirectHooks) else MessagePlugin(front, plugin)
        )
        self._pages = ErrorTemplates(front)
        self._admission = admission or Admission(KeyLimits(time.monotonic, time.time), time.time)
        self._upstream = UpstreamPaths(front, upstream)
        self._bodies = bodies or bodies_pool(BODIES_BYTES)
        self._keyless = tuple((api.listen_path.encode(), api) for api in front.keyless)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answers one request. A client that leaves ends the plugin's call, as with Tyk.

        An answer that takes longer than the gateway's write timeout ends the connection without a
        word, as Go's server does it.
        """
        exchange: Exchange = scope[EXCHANGE]
        exchange.begin(self._front.answer_s)
        try:
            answer = await self.answer(scope, receive)
            if isinstance(answer, Handed):
                await self._upstream.answer(answer, receive, send)
                return
        except ClientLeftError:
            return
        except asyncio.CancelledError:
            if exchange.is_given_up:
                return  # the cancellation was ours, and no client is left to answer
            raise
        finally:
            exchange.end()
        await _send(answer, send)

    async def answer(self, scope: Scope, receive: Receive) -> EdgeResponse | Handed:
        """The answer to one request, from a hook or from the edge itself, or what goes on to the upstream."""
        target = read(scope["raw_path"], scope["query_string"])
        if target is None:
            count_refusal(BAD_HTTP)
            return responses.BAD_REQUEST
        headers = headers_of(scope["headers"])
        body = RequestBody(headers, receive)
        answer: EdgeResponse | Handed
        try:
            body.require_within(self._front.max_body_bytes)
            if isinstance(target, Redirect):
                answer = responses.moved(target.location)
            else:
                answer = self._mocked(scope, headers) or await self._routed(scope, target, headers, body)
        except BodyTooLargeError:
            count_refusal("too_large:http")
            answer = responses.TOO_LARGE
        if isinstance(answer, Handed):
            return answer
        # A client refused before its body was read sends the body all the same, and reads the answer only then.
        is_whole = body.is_over or await body.skip()
        return answer if is_whole else _closing(answer)

    def _mocked(self, scope: Scope, headers: dict[str, str]) -> EdgeResponse | None:
        """The answer of an API without a key, which the edge gives by itself; None for any other path."""
        for prefix, api in self._keyless:
            if scope["raw_path"].startswith(prefix):
                mock = api.mocks.get(scope["method"])
                if mock is None:
                    return self._page(errors.NOT_LISTED, headers)
                return EdgeResponse(mock.status, responses.wire_headers(mock.headers.items()), mock.body.encode())
        return None

    async def _routed(
        self, scope: Scope, target: RequestTarget, headers: dict[str, str], body: RequestBody
    ) -> EdgeResponse | Handed:
        """Check the key first, from the headers alone; what is for the upstream goes there before its body is read."""
        api = self._upstream.of(scope["raw_path"])
        if api is None:
            found = await self._admitted(self._front.hooked, scope["method"], target, headers)
            return await self._hooked(scope, target, headers, body, found) if isinstance(found, Admitted) else found
        try:
            self._upstream.require_served(api)
        except Unimplemented as error:
            return _refused(error, target, [])
        if api.checked is None:
            return Handed(self._upstream.handed(api, None, scope, headers), [])
        found = await self._admitted(api.checked, scope["method"], target, headers)
        if not isinstance(found, Admitted):
            return found
        return Handed(self._upstream.handed(api, found.passed, scope, headers), found.shown)

    async def _admitted(
        self, api: CheckedApi, method: str, target: RequestTarget, headers: dict[str, str]
    ) -> Admitted | EdgeResponse:
        """What a request of a key that may call brings along; the answer to any other."""
        passed = await self._plugin.auth(api, method, target, headers)
        if passed is None:
            return self._page(errors.PLUGIN_AWAY, headers)
        if not isinstance(passed, Passed):
            return self._answer_of(passed, headers, [])
        if not passed.session.token:
            return self._page(errors.NO_SESSION, headers)
        found = self._admission.judge(passed.session, api)
        shown = _rate_headers(found.rate) if found.rate and self._front.shows_rate else []
        if found.error is not None:
            return _later(self._page(found.error, headers, shown), found.left_s)
        return Admitted(passed, found.quota, shown)

    async def _hooked(
        self, scope: Scope, target: RequestTarget, headers: dict[str, str], body: RequestBody, admitted: Admitted
    ) -> EdgeResponse:
        """The answer of the Post hook, once the body is read."""
        passed, quota, shown = admitted
        client = scope.get("client")
        with PoolShare(self._bodies, passed.session.account) as share:
            try:
                data = await self._body(body, passed.session.body_bytes, share)
            except (LimitExceeded, Unavailable, TooLarge) as error:
                return _refused(error, target, shown)
            request = Request(scope["method"], target.url, headers, data)
            reply = await self._plugin.post(passed, request, client[0] if client else "", quota)
        if reply is None:
            return self._page(errors.HOOK_FAILED, headers, shown)
        if not reply.status:
            return self._page(errors.NOT_PROXIED, headers, shown)  # the target is a sink
        return self._answer_of(reply, headers, shown)

    async def _body(self, body: RequestBody, own: int, share: PoolShare) -> bytes:
        """Read the body of a request whose key may call. own: the key's limit, 0 = the gateway's."""
        most = self._front.max_body_bytes
        if not own or (most and own >= most):
            return await body.read(most, share)
        try:
            return await body.read(own, share)
        except BodyTooLargeError:
            raise TooLarge(
                f"The body is too large: at most {own} bytes of it are taken with this API key; send it in parts.",
                bound="key",
            ) from None

    def _page(self, error: GatewayError, headers: dict[str, str], shown: Headers | None = None) -> EdgeResponse:
        if error in errors.REASONS:
            count_refusal(errors.REASONS[error])
        page = self._pages.known(error, headers.get("Content-Type", ""))
        return page._replace(headers=page.headers + shown) if shown else page

    def _answer_of(self, reply: Reply, headers: dict[str, str], shown: Headers) -> EdgeResponse:
        """The answer that a hook gave, with the headers that the edge adds where the hook has none of that name."""
        given, status = reply.headers, reply.status
        written = responses.wire_headers(given.items())
        kept = [pair for pair in shown if pair[0].decode() not in given] if shown else shown
        if isinstance(reply, Page):
            error = GatewayError(status, reply.text or errors.PLUGIN_AWAY.text)
            page = self._pages.page(error, headers.get("Content-Type", ""))
            named = {name for name, _ in page.headers}
            written = [pair for pair in written if pair[0] not in named]
            return EdgeResponse(page.status, [*kept, *written, *page.headers], page.body)
        if reply.body and status not in _BODILESS and "Content-Type" not in given:
            written.append((b"Content-Type", b"text/plain; charset=utf-8"))
        return EdgeResponse(status, kept + written, reply.body)


async def _send(answer: EdgeResponse, send: Send) -> None:
    """Send one whole answer."""
    headers, body = answer.headers, b""
    if answer.status not in _BODILESS:
        body = answer.body
        headers = [*headers, (b"Content-Length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": body})


def _refused(error: SignalboxError, target: RequestTarget, shown: Headers) -> EdgeResponse:
    """An error of ours that no hook saw, in the shape the plugin gives it."""
    count_refusal(f"{error.code}:{error.facts['bound']}")
    given = refusal(error, target.url)
    return EdgeResponse(given.status, shown + responses.wire_headers(given.headers.items()), given.body)


def _closing(answer: EdgeResponse) -> EdgeResponse:
    """An answer that closes the connection: what comes next on it is the rest of a body."""
    if (b"Connection", b"close") in answer.headers:
        return answer
    return answer._replace(headers=[*answer.headers, (b"Connection", b"close")])


def _later(page: EdgeResponse, left_s: float | None) -> EdgeResponse:
    """The page of a limit, with the time of the next try; Tyk's overrides know constants only."""
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
