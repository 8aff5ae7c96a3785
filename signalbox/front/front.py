"""The gates of one listener, for a server that takes a protocol class (uvicorn: ``http``) and an ASGI application.

The application finds its :class:`signalbox.front.gate.Exchange` in the scope, under :data:`EXCHANGE`; of a websocket,
where the listener has bounds for them, its :class:`signalbox.front.sockets.OpenSocket`.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any, Final

from signalbox.front.bounds import HttpBounds
from signalbox.front.connections import ADDRESS, Connections
from signalbox.front.gate import Gate, Shared, current
from signalbox.front.sockets import SocketBounds
from signalbox.front.traffic import EDGE, Traffic
from signalbox.program import log, metrics
from signalbox.wire.refused import RefusedConnections

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Any, Any, Any], Awaitable[None]]

EXCHANGE: Final = "signalbox.exchange"
_TICK_S: Final = 1.0
_OPEN: Final = metrics.gauge("http_connections", "Open connections of HTTP clients.")
_SOCKETS: Final = metrics.gauge("http_websockets", "Of them, websockets.")


class Front:
    """One listener."""

    def __init__(
        self,
        bounds: HttpBounds,
        *,
        refused: Callable[[str], None],
        name: str = EDGE,
        has_proxy: bool = False,
        sockets: SocketBounds | None = None,
        wall: Callable[[], float] = time.time,
    ) -> None:
        """refused: told the reason of each refusal. name: what its bytes are counted under.

        has_proxy: clients come through a proxy of ours, so that the addresses of connections say nothing.
        sockets: bounds of websockets, None = the application's own.
        """
        self._connections = Connections(
            most=bounds.http_connections, per_address=0 if has_proxy else bounds.http_connections_per_address
        )
        self._shared = Shared(bounds, refused, self._enter, self._leave, Traffic(name), sockets=sockets)
        self._wall = wall
        self._timer: asyncio.TimerHandle | None = None
        self._is_draining = False

    def protocol(self, inner: Callable[..., asyncio.Protocol]) -> type[asyncio.Protocol]:
        """A protocol class for a server: made as ``inner`` is, with a gate before each ``inner``."""
        shared = self._shared

        class Gated(Gate):
            def __init__(self, **given: Any) -> None:
                super().__init__(shared, lambda: inner(**given))

        return Gated

    def app(self, inner: Application) -> Application:
        """The application, which tells the gate when a request is answered."""

        async def answer(scope: Scope, receive: Receive, send: Send) -> None:
            gate = current.get() if scope["type"] in {"http", "websocket"} else None
            if gate is None:
                await inner(scope, receive, send)
                return
            if scope["type"] == "websocket":
                scope[EXCHANGE] = gate.begin_socket(is_draining=self._is_draining)
                await _hold_open(gate, inner, scope, receive, send)
                return
            exchange = scope[EXCHANGE] = gate.begin()

            async def reported(message: Message) -> None:
                if not exchange.is_started:
                    exchange.is_started = True
                    gate.outward.expect_head()
                    if self._is_draining or gate.is_last:
                        message["headers"] = [*message["headers"], (b"Connection", b"close")]
                await send(message)
                if not message.get("more_body") and message["type"] == "http.response.body":
                    gate.outward.release()
                    gate.answered(exchange)

            await inner(scope, receive, reported)

        return answer

    def refused_connections(self) -> RefusedConnections | None:
        """The connections turned away, and since when; None while there is room."""
        return self._connections.refused_connections()

    def drain(self) -> None:
        """Make each answer from now on its connection's last, and ask websockets to end."""
        self._is_draining = True
        for gate in list(self._shared.gates):
            gate.drain()

    def give_up(self) -> None:
        """Cuts every connection, and cancels the tasks that answer them."""
        for gate in list(self._shared.gates):
            gate.abort()

    def _enter(self, address: str) -> str:
        was_refusing = self._connections.refused_connections() is not None
        reason = self._connections.enter(address, self._wall())
        if not reason:
            _OPEN.inc()
        else:
            self._shared.refused(reason)
            if not was_refusing:
                log.warning(
                    "front.connections_refused",
                    reason=reason,
                    open=self._connections.open,
                    bound=self._shared.bounds.http_connections,
                    address=address if reason == ADDRESS else "",
                )
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(_TICK_S, self._tick)
        return reason

    def _leave(self, address: str) -> None:
        self._connections.leave(address)
        _OPEN.dec()

    def _tick(self) -> None:
        """Checks the times of all connections; runs every second while there are any."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        try:
            for gate in list(self._shared.gates):
                _check(gate, now)
            calmed = self._connections.calmed(self._wall())
            if calmed is not None:
                log.warning("front.connections_accepted", refused=calmed.refused, since=calmed.since)
        finally:  # whatever happens, the times of all connections go on
            is_needed = self._shared.gates or self._connections.refused_connections() is not None
            self._timer = loop.call_later(_TICK_S, self._tick) if is_needed else None


async def _hold_open(gate: Gate, inner: Application, scope: Scope, receive: Receive, send: Send) -> None:
    """Count a websocket while its application runs, and tell the gate when it is open."""

    async def reported(message: Message) -> None:
        await send(message)
        if message["type"] == "websocket.accept":
            gate.socket_opened()

    _SOCKETS.inc()
    try:
        await inner(scope, receive, reported)
    finally:
        _SOCKETS.dec()


def _check(gate: Gate, now: float) -> None:
    """Checks one connection's times, and cuts it if the check fails, so that the others are checked all the same."""
    try:
        gate.check(now)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this connection's alone
        log.exception("front.check_failed", error=error)
        gate.abort()
