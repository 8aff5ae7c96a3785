"""The dialects over HTTP, as an ASGI application: the upstream of a gateway, and the edge where there is none."""

import asyncio
import math
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final

from gateway_plugin.admission.addresses import FRONT_S_WORD
from gateway_plugin.admission.keyring import SUBMIT
from gateway_plugin.admission.limits import Rate
from gateway_plugin.admission.pool import Pool, PoolShare
from gateway_plugin.api.dialect import Dialect, Dialects, Sockets, Uploads
from gateway_plugin.hooks.dispatcher import ANSWER_SECONDS, Outcomes, count_refusal, counted
from gateway_plugin.jsonresponses import JsonResponse, StreamResponse
from gateway_plugin.request import Request, headers_of
from gateway_plugin.service.queues import PUT
from gateway_plugin.upstream.body import BodyTooLargeError, ClientLeftError, Receive, RequestBody
from gateway_plugin.upstream.callers import Callers, require_single
from gateway_plugin.upstream.sockets import SocketUpstream
from signalbox.front.front import EXCHANGE
from signalbox.front.gate import Exchange
from signalbox.program.errors import InvalidRequest, TooLarge
from signalbox.program.tasks import TaskGroup
from signalbox.wire.keydocs import ApiKey

Scope = dict[str, Any]
Send = Callable[[dict[str, Any]], Awaitable[None]]

_NO_INPUTS_BYTES: Final = 65_536
"""The largest body of a key that submits nothing."""
_SENDING: Final = frozenset({SUBMIT, PUT})
"""Scopes of keys that send inputs or items."""
_UPLOAD_HOLDS_BYTES: Final = 1024 * 1024
"""What an upload has in memory at any time."""
_MOST_WAITING: Final = 64
"""Parts of a stream that wait for a slow reader, beside what its connection holds; one more, and it is cut off."""
_MOST_PACED: Final = 2
"""The same of a stream whose parts are made as they are read; one that takes none for the time of an answer is cut off.
"""
_SLOW_READER: Final = "limit_exceeded:stream_reader"


class HttpUpstream:
    """Answers requests of a gateway that has let them through, or of callers themselves.

    bodies: what bodies in flight are taken from. answer_s: longest time of an answer,
    the body's way here included. uploads: what takes bodies as they come. sockets: the dialect that has websockets.
    """

    def __init__(
        self,
        dialects: Dialects,
        callers: Callers,
        bodies: Pool,
        *,
        answer_s: float,
        uploads: Uploads | None = None,
        sockets: Sockets | None = None,
    ) -> None:
        self._dialects = dialects
        self._uploads = uploads
        self._callers = callers
        self._bodies = bodies
        self._answer_s = answer_s
        self._name = "edge" if callers.is_front else "upstream"
        self._outcomes = Outcomes()
        self._sockets = SocketUpstream(dialects, sockets, callers, answer_s=answer_s, name=self._name)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request. A client that leaves ends its call."""
        if scope["type"] == "websocket":
            await self._sockets(scope, receive, send)
            return
        exchange: Exchange = scope[EXCHANGE]
        exchange.begin(self._answer_s)
        headers = headers_of(scope["headers"])
        body = RequestBody(headers, receive)
        try:
            answer = await self._answered(scope, headers, body)
            if isinstance(answer, StreamResponse):
                await self._stream(exchange, answer, send)
                return
            # A client refused before its body was read sends the body all the same, and reads the answer only then.
            is_whole = body.is_over or await body.skip()
        except ClientLeftError:
            return
        except asyncio.CancelledError:
            if exchange.is_given_up:
                return  # the cancellation was ours, and no client is left to answer
            raise
        finally:
            exchange.end()
        lines = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
        if answer.status not in {HTTPStatus.NO_CONTENT, HTTPStatus.NOT_MODIFIED}:
            lines.append((b"Content-Length", b"%d" % len(answer.body)))
        if not is_whole:
            lines.append((b"Connection", b"close"))
        await send({"type": "http.response.start", "status": answer.status, "headers": lines})
        await send({"type": "http.response.body", "body": answer.body})

    async def _stream(self, exchange: Exchange, answer: StreamResponse, send: Send) -> None:
        """Send an answer in parts, for as long as it goes on and the client stays."""
        exchange.begin(math.inf)
        waiting: asyncio.Queue[bytes] = asyncio.Queue(_MOST_PACED if answer.is_paced else _MOST_WAITING)

        def ask() -> None:
            if answer.nothing and waiting.empty():  # else what waits asks
                waiting.put_nowait(answer.nothing)

        exchange.ask = ask
        async with aclosing(answer.parts) as parts, TaskGroup() as group:
            lines = [(name.encode(), value.encode()) for name, value in answer.headers.items()]
            await send({"type": "http.response.start", "status": answer.status, "headers": lines})
            group.create_task(_send_all(waiting, send))
            try:
                async for part in parts:
                    if answer.is_paced:
                        async with asyncio.timeout(self._answer_s):
                            await waiting.put(part)
                    else:
                        waiting.put_nowait(part)
            except (asyncio.QueueFull, TimeoutError):
                count_refusal(_SLOW_READER)
                exchange.cut()
            except Exception as error:  # noqa: BLE001  the edge of one request: never raised
                counted(error, self._name)
                exchange.cut()
            else:
                exchange.begin(self._answer_s)  # for what is still to be sent
            await waiting.put(b"")

    async def _answered(
        self, scope: Scope, headers: dict[str, str], body: RequestBody
    ) -> JsonResponse | StreamResponse:
        """The answer. Raises :class:`ClientLeftError` and cancellation, and nothing else."""
        path, query = scope["raw_path"], scope["query_string"]
        dialect = self._dialects.of("")
        key: ApiKey | None = None
        rate: object = None
        url = ""
        given: JsonResponse | StreamResponse | None
        try:
            url = _text(path + b"?" + query if query else path)
            dialect = self._dialects.of(url)
            request = Request(scope["method"], url, headers, b"")
            given = dialect.keyless(request)
            if given is None:
                require_single(scope["headers"])
                if self._callers.is_front:
                    headers[FRONT_S_WORD] = scope["client"][0] if scope.get("client") else ""
                key, rate = self._callers.of(headers, url)
                given = await self._keyed(dialect, request, key, body)
            elif not body.is_over:
                raise InvalidRequest("This path takes no body.")
        except ClientLeftError:
            raise
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            found = counted(error, self._name)
            if key is not None:
                self._callers.counts.refuse(key.id, found)
            given = dialect.refusal(found, url)
            rate = found.facts.get("rate", rate)
        self._outcomes.count(self._name, given.status)
        return given._replace(headers={**given.headers, **rate.headers}) if isinstance(rate, Rate) else given

    async def _keyed(
        self, dialect: Dialect, request: Request, key: ApiKey, body: RequestBody
    ) -> JsonResponse | StreamResponse:
        with PoolShare(self._bodies, key.account_id) as share:
            uploads = self._uploads
            if uploads is not None and uploads.is_upload(request):
                share.take(_UPLOAD_HOLDS_BYTES)
                try:
                    async with aclosing(body.parts(uploads.most_bytes)) as parts:
                        return await uploads.upload(request, key, parts)
                except BodyTooLargeError as error:
                    raise TooLarge(
                        f"The body is too large: a file has at most {uploads.most_bytes} bytes with all that is around "
                        "it.",
                        bound="upload",
                        limit_bytes=uploads.most_bytes,
                    ) from error
            may_send = not _SENDING.isdisjoint(key.scopes)
            most = dialect.limit_bytes if may_send else min(_NO_INPUTS_BYTES, dialect.limit_bytes)
            try:
                request.raw_body = await body.read(most, share)
            except BodyTooLargeError as error:
                raise TooLarge(
                    f"The body is too large: at most {most} bytes of it are taken with this API key; send it in parts.",
                    bound="key",
                    limit_bytes=most,
                ) from error
            began = perf_counter()
            given = await dialect.answer(request, key)
            ANSWER_SECONDS.observe(perf_counter() - began)
            return given


async def _send_all(waiting: asyncio.Queue[bytes], send: Send) -> None:
    """Send parts until an empty one, which ends the answer."""
    part = b"."
    while part:
        part = await waiting.get()
        await send({"type": "http.response.body", "body": part, "more_body": bool(part)})


def _text(target: bytes) -> str:
    try:
        return target.decode()
    except UnicodeDecodeError as error:
        raise InvalidRequest("Path and query must be UTF-8.", bound="http") from error
