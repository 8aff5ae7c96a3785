"""The upstream over HTTP: dialects whose answers may be any bytes, as an ASGI application or for an edge to call."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final, Protocol

from gateway_plugin.admission.keyring import account_of
from gateway_plugin.admission.pool import Pool, PoolShare
from gateway_plugin.hooks.dispatcher import Outcomes, counted
from gateway_plugin.service.jsonresponses import JsonResponse, refusal
from gateway_plugin.service.request import Request, headers_of
from gateway_plugin.upstream.body import BodyTooLargeError, ClientLeftError, RequestBody
from gateway_plugin.upstream.callers import Callers, require_single
from signalbox.front.front import EXCHANGE
from signalbox.front.gate import Exchange
from signalbox.program.errors import InvalidRequest, NotFound, SignalboxError, TooLarge
from signalbox.wire.messages import ApiKey

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]
Lines = Sequence[tuple[bytes, bytes]]

UPSTREAM: Final = "upstream"


class Dialect(Protocol):
    """A protocol whose paths begin with ``prefix``."""

    prefix: str

    def is_keyless(self, method: str, path: str) -> bool:
        """Whether a request needs no key."""

    async def answer(self, request: Request, key: ApiKey | None) -> JsonResponse:
        """The whole answer. key: None where none is needed. Raises errors of ours."""

    def refusal(self, error: SignalboxError) -> JsonResponse:
        """The answer that an error stands for."""


class HttpUpstream:
    """Answers requests that a front has let through.

    bodies: what bodies in flight are taken from. limit_bytes: of one. answer_s: longest time of an answer.
    """

    def __init__(
        self, dialects: Sequence[Dialect], callers: Callers, bodies: Pool, *, limit_bytes: int, answer_s: float
    ) -> None:
        self._dialects = dialects
        self._callers = callers
        self._bodies = bodies
        self._limit_bytes = limit_bytes
        self._answer_s = answer_s
        self._outcomes = Outcomes()

    async def __call__(self, scope: Scope, receive: Callable[[], Awaitable[dict[str, Any]]], send: Send) -> None:
        """Answer one request of a gateway. One that leaves ends its call."""
        exchange: Exchange = scope[EXCHANGE]
        exchange.begin(self._answer_s)
        try:
            answer, is_whole = await self._answered(scope, receive)
        except ClientLeftError:
            return
        except asyncio.CancelledError:
            if exchange.is_given_up:
                return  # the cancellation was ours, and no client is left to answer
            raise
        finally:
            exchange.end()
        lines = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        lines.append((b"Content-Length", b"%d" % len(answer.body)))
        if not is_whole:
            lines.append((b"Connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answered(
        self, scope: Scope, receive: Callable[[], Awaitable[dict[str, Any]]]
    ) -> tuple[JsonResponse, bool]:
        """The answer, and whether the whole body was read: a client reads the answer only once it has sent all."""
        query, lines = scope["query_string"], scope["headers"]
        target = scope["raw_path"] + (b"?" + query if query else b"")
        try:
            url = target.decode()
        except UnicodeDecodeError:
            return _refused(InvalidRequest("Path and query must be UTF-8.", bound="http"), None, ""), False
        headers = headers_of(lines)
        body = RequestBody(headers, receive)
        given = await self.answer(scope["method"], url, headers, lines, body)
        return given, body.is_over or await body.skip()

    async def answer(
        self, method: str, url: str, headers: dict[str, str], lines: Lines, body: RequestBody
    ) -> JsonResponse:
        """The whole answer to one request.

        headers: by canonical names, ``X-Client-Addr`` the front's own. lines: all of them as they came. Raises
        :class:`ClientLeftError` and cancellation, and nothing else.
        """
        dialect = next((one for one in self._dialects if url.startswith(one.prefix)), None)
        try:
            if dialect is None:
                raise NotFound(f"There is nothing at {url.partition('?')[0][:200]}.")
            if dialect.is_keyless(method, url.partition("?")[0]):
                given = await self._keyless(dialect, Request(method, url, headers, b""), body)
            else:
                require_single(lines)
                given = await self._keyed(dialect, Request(method, url, headers, b""), body)
        except ClientLeftError:
            raise
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            given = _refused(error, dialect, url)
        self._outcomes.count(UPSTREAM, given.status)
        return given

    async def _keyless(self, dialect: Dialect, request: Request, body: RequestBody) -> JsonResponse:
        if not body.is_over:
            raise InvalidRequest("This path takes no body.")
        return await dialect.answer(request, None)

    async def _keyed(self, dialect: Dialect, request: Request, body: RequestBody) -> JsonResponse:
        key = self._callers.key(request.headers)
        with PoolShare(self._bodies, account_of(key)) as share:
            try:
                request.raw_body = await body.read(self._limit_bytes, share)
            except BodyTooLargeError as error:
                raise TooLarge(
                    f"The body has more than {self._limit_bytes} bytes; send it in parts.",
                    bound="bytes",
                    limit_bytes=self._limit_bytes,
                ) from error
            return await dialect.answer(request, key)


def _refused(error: Exception, dialect: Dialect | None, url: str) -> JsonResponse:
    found = counted(error, UPSTREAM)
    return dialect.refusal(found) if dialect is not None else refusal(found, url)
