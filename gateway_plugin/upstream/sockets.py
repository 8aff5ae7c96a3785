"""Websockets of the dialects, as an ASGI application: opened as a call is answered, and ended when the key ends."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, NoReturn

from uvicorn.protocols.utils import ClientDisconnected

from gateway_plugin.admission.addresses import FRONT_S_WORD
from gateway_plugin.admission.limits import Rate
from gateway_plugin.api.dialect import Dialects, Socket, Sockets
from gateway_plugin.hooks.dispatcher import Outcomes, counted
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.request import Request, headers_of
from gateway_plugin.upstream.callers import Callers, require_single
from signalbox.front.front import EXCHANGE
from signalbox.front.sockets import OpenSocket
from signalbox.program import log
from signalbox.program.errors import InvalidRequest, SignalboxError, Unavailable, meaning
from signalbox.program.tasks import TaskGroup
from signalbox.wire.keydocs import ApiKey

Scope = dict[str, Any]
Receive = Callable[[], Awaitable[dict[str, Any]]]
Send = Callable[[dict[str, Any]], Awaitable[None]]

RECHECK_S: Final = 15.0
"""How often the key of an open websocket is looked at again."""
_CLOSE_S: Final = 10.0
"""Longest time in which an ended websocket lets go of what it holds."""
_LONGEST_REASON: Final = 123
"""Bytes of the reason in a close frame (RFC 6455, 5.5)."""


class Ending(NamedTuple):
    """How a websocket ends: what its close frame says."""

    code: int
    reason: str


COMPLETE: Final = Ending(1000, "complete")
GOING_AWAY: Final = Ending(1001, "this gateway plugin stops; connect again")
_LEFT: Final = Ending(0, "")
"""The client has gone: nobody reads a frame."""


class SocketUpstream:
    """Answers requests for a websocket. answer_s: longest time of the opening."""

    def __init__(
        self, dialects: Dialects, sockets: Sockets | None, callers: Callers, *, answer_s: float, name: str
    ) -> None:
        self._dialects = dialects
        self._sockets = sockets
        self._callers = callers
        self._answer_s = answer_s
        self._name = name
        self._outcomes = Outcomes()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One websocket, from the request for it to its end; a refusal is an answer over HTTP.

        Raises what tells the server that no client is left to be answered, and nothing else.
        """
        headers = headers_of(scope["headers"])
        query = scope["query_string"]
        url = (scope["raw_path"] + b"?" + query if query else scope["raw_path"]).decode()
        key: ApiKey | None = None
        rate: object = None
        try:
            require_single(scope["headers"])
            if self._callers.is_front:
                headers[FRONT_S_WORD] = scope["client"][0] if scope.get("client") else ""
            key, rate = self._callers.of(headers, url)
            sockets = self._sockets
            if sockets is None or self._dialects.of(url) is not sockets:
                raise InvalidRequest("There is no websocket at this path.")
            sockets.places.take(key.account_id)
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            await self._refuse(error, url, key, rate, send)
        try:
            await self._hold(sockets, Request("GET", url, headers, b""), key, rate, scope, receive, send)
        finally:
            sockets.places.release(key.account_id)

    async def _hold(
        self,
        sockets: Sockets,
        request: Request,
        key: ApiKey,
        rate: object,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        try:
            async with asyncio.timeout(self._answer_s):
                socket = await sockets.open(request, key)
        except TimeoutError:
            await self._refuse(Unavailable("NATS does not answer in time; try again."), request.url, key, rate, send)
        except Exception as error:  # noqa: BLE001  the edge of one request: never raised
            await self._refuse(error, request.url, key, rate, send)
        self._outcomes.count(self._name, 101)
        given = rate.headers if isinstance(rate, Rate) else {}
        lines = [(name.encode(), value.encode()) for name, value in given.items()]
        try:
            await _answer(send, {"type": "websocket.accept", "headers": lines})
            talk = _Conversation(socket, key, self._callers, self._name)
            ending = await talk.run(scope.get(EXCHANGE), receive, send)
            if ending is _LEFT:
                raise ClientDisconnected
            await _sent(send, {"type": "websocket.close", "code": ending.code, "reason": ending.reason})
        finally:
            await _let_go(socket)

    async def _refuse(self, error: Exception, url: str, key: ApiKey | None, rate: object, send: Send) -> NoReturn:
        found = counted(error, self._name)
        if key is not None:
            self._callers.counts.refuse(key.id, found)
        given: JsonResponse = self._dialects.of(url).refusal(found, url)
        rate = found.facts.get("rate", rate)
        if isinstance(rate, Rate):
            given = given._replace(headers={**given.headers, **rate.headers})
        self._outcomes.count(self._name, given.status)
        lines = [(name.encode(), value.encode()) for name, value in given.headers.items()]
        await _answer(send, {"type": "websocket.http.response.start", "status": given.status, "headers": lines})
        await _answer(send, {"type": "websocket.http.response.body", "body": given.body})
        raise ClientDisconnected  # else uvicorn reports a websocket that was never opened as our error


class _Conversation:
    """An open websocket: frames go out as they come, until one side ends it."""

    def __init__(self, socket: Socket, key: ApiKey, callers: Callers, name: str) -> None:
        self._socket = socket
        self._key = key
        self._callers = callers
        self._name = name
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[Ending] = self._loop.create_future()
        self._timer = self._loop.call_later(RECHECK_S, self._look_at_key)

    async def run(self, opened: OpenSocket | None, receive: Receive, send: Send) -> Ending:
        """Returns how it ends."""
        if opened is not None:
            opened.on_drain(lambda: self._end(GOING_AWAY))
        try:
            async with TaskGroup() as group:
                tasks = [group.create_task(self._pass_on(send)), group.create_task(self._listen(receive))]
                ending = await self._over
                for task in tasks:
                    task.cancel()
        finally:
            self._timer.cancel()
        return ending

    def _end(self, ending: Ending) -> None:
        if not self._over.done():
            self._over.set_result(ending)

    async def _pass_on(self, send: Send) -> None:
        """Send each frame as soon as the client has taken most of those before it."""
        try:
            while (part := await self._socket.next()) is not None:
                if not await _sent(send, {"type": "websocket.send", "bytes": part}):
                    self._end(_LEFT)
                    return
        except Exception as error:  # noqa: BLE001  the edge of one websocket: never raised
            self._end(_ending_of(counted(error, self._name)))
        else:
            self._end(COMPLETE)

    async def _listen(self, receive: Receive) -> None:
        """Read on to the end, and past what clients have no reason to send."""
        message = {"type": ""}
        while message["type"] != "websocket.disconnect":
            message = await receive()
        self._end(_LEFT)

    def _look_at_key(self) -> None:
        try:
            self._key = self._callers.still(self._key)
            self._socket.check(self._key)
        except Exception as error:  # noqa: BLE001  the edge of one websocket: never raised
            found = counted(error, self._name)
            self._callers.counts.refuse(self._key.id, found)
            self._end(_ending_of(found))
        else:
            self._timer = self._loop.call_later(RECHECK_S, self._look_at_key)


def _ending_of(error: SignalboxError) -> Ending:
    """1008 where the caller may change something, 1013 where it may try again, 1011 for what is our failure."""
    status = meaning(error.code).http
    code = 1008 if status < 500 else 1013 if status == 503 else 1011
    text = f"{error.code}: {error.public_message}".encode()[:_LONGEST_REASON]
    return Ending(code, text.decode(errors="ignore"))


async def _sent(send: Send, message: dict[str, Any]) -> bool:
    """Whether the server took a message. It raises, each time something else, where the client has gone, has sent what
    is no frame, or is being closed already."""
    try:
        await send(message)
    except Exception as error:  # noqa: BLE001  whatever it is, nobody is left to be told
        log.debug("websocket.not_sent", error=repr(error))
        return False
    return True


async def _answer(send: Send, message: dict[str, Any]) -> None:
    """Send a part of the answer to the request for a websocket."""
    if not await _sent(send, message):
        raise ClientDisconnected


async def _let_go(socket: Socket) -> None:
    """Close within a bound."""
    try:
        async with asyncio.timeout(_CLOSE_S):
            await socket.close()
    except Exception as error:  # noqa: BLE001  what it held is taken from it when its time is over
        log.exception("websocket.close_failed", error=error)
