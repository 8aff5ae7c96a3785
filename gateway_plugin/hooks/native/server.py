"""gRPC's unary calls over our own HTTP/2: ``native``, the default transport of the hooks (docs/adr/0140)."""

import asyncio
import random
import struct
from collections.abc import Callable
from typing import Final

from google.protobuf.message import DecodeError

from gateway_plugin.hooks.calls import BUSY, DISPATCH, EVENT, EVENT_REPLY, MALFORMED, reply
from gateway_plugin.hooks.dispatcher import Dispatcher, count_refusal
from gateway_plugin.hooks.health import HEALTH, NOT_SERVING, SERVING
from gateway_plugin.hooks.native.answers import Stream
from gateway_plugin.hooks.native.buffers import Buffers
from gateway_plugin.hooks.native.connection import Connection
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.settings import GatewaySettings
from signalbox.program import log

_BUFFERED_BODIES: Final = 8
_UNPROVEN_BODIES: Final = 2
"""Bytes of unfinished messages, in largest messages, that all connections without proof of the secret may hold
together; at most half of what all connections may hold. The other half is for those with proof."""
_SPARE_STREAMS: Final = 2
_AGE_SPREAD: Final = 0.1
_PREFIX: Final = struct.Struct(">BI")


def _literal(name: str, value: str) -> bytes:
    """A header field that is compressed in no way, so that blocks can be made once (RFC 7541, 6.2.2)."""
    return b"\0%c%b%c%b" % (len(name), name.encode(), len(value), value.encode())


def _refusal(status: int, message: str) -> bytes:
    return _HEADERS + _literal("grpc-status", str(status)) + _literal("grpc-message", message)


_HEADERS: Final = b"\x88" + _literal("content-type", "application/grpc")
_TRAILERS: Final = _literal("grpc-status", "0")
_TOO_LARGE: Final = _refusal(8, "the message is too large")
_BUSY: Final = _refusal(8, BUSY)
_UNKNOWN: Final = _refusal(12, "no such method, or a compressed message")
_MALFORMED: Final = _refusal(13, MALFORMED)
_REASONS: Final = {
    _BUSY: "limit_exceeded:grpc",
    _UNKNOWN: "method_not_allowed:grpc",
    _MALFORMED: "invalid_request:grpc",
}


class NativeServer:
    """The transport; see :class:`gateway_plugin.hooks.server.Transport`."""

    def __init__(self, settings: GatewaySettings, dispatcher: Dispatcher, is_healthy: Callable[[], bool]) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._is_healthy = is_healthy
        self._loop = asyncio.get_running_loop()
        self._server: asyncio.Server | None = None
        self._connections: dict[Connection, asyncio.TimerHandle | None] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._is_empty = asyncio.Event()
        self._most = settings.max_message_bytes + _PREFIX.size
        total = max(settings.max_bodies_bytes, 2 * self._most)
        self._buffers = Buffers(total, min(_UNPROVEN_BODIES * self._most, total // 2))

    async def bind(self, address: str) -> int:
        """Listen on ``unix:/path`` or ``host:port``; returns the port. Raises :class:`OSError`."""
        kind, _, path = address.partition(":")
        if kind == "unix":
            self._server = await self._loop.create_unix_server(self._accept, path)
            return 0
        host, _, port = address.rpartition(":")
        self._server = await self._loop.create_server(self._accept, host.strip("[]"), int(port), reuse_port=True)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once, let those in flight end for at most ``grace_s``. Idempotent."""
        if self._server is not None:
            self._server.close()
        for connection in list(self._connections):
            connection.drain()
        try:
            async with asyncio.timeout(grace_s):
                while self._connections:
                    self._is_empty.clear()
                    await self._is_empty.wait()
        except TimeoutError:
            log.warning("gateway.calls_cut", calls=len(self._tasks))
        for connection in list(self._connections):
            connection.abort()
        if self._tasks:
            await asyncio.wait(self._tasks)

    # ------------------------------------------------------------------------------ connections

    def _accept(self) -> Connection:
        connection = Connection(
            self._call,
            self._closed,
            max_body_bytes=self._most,
            max_buffered_bytes=self._most * _BUFFERED_BODIES,
            buffers=self._buffers,
            is_proven=not self._settings.secret,
            max_streams=self._settings.max_concurrent * _SPARE_STREAMS,
            too_large=_TOO_LARGE,
            note_refusal=count_refusal,
        )
        age_s = self._settings.max_connection_age_s
        spread = random.uniform(1 - _AGE_SPREAD, 1 + _AGE_SPREAD)  # noqa: S311  not all at once
        self._connections[connection] = self._loop.call_later(age_s * spread, self._age, connection) if age_s else None
        return connection

    def _age(self, connection: Connection) -> None:
        """Ask an old connection to redial, and cut it once its longest call must be over."""
        connection.drain()
        if connection in self._connections:
            self._connections[connection] = self._loop.call_later(self._settings.longest_call_s, connection.abort)

    def _closed(self, connection: Connection) -> None:
        timer = self._connections.pop(connection, None)
        if timer is not None:
            timer.cancel()
        if not self._connections:
            self._is_empty.set()

    # ------------------------------------------------------------------------------ calls

    def _call(self, stream: Stream, body: bytes) -> bool:
        """Answer one call, or start to. Returns whether it shows the deployment's secret."""
        size = len(body) - _PREFIX.size
        if size < 0 or _PREFIX.unpack_from(body)[1] != size:
            _refuse(stream, _MALFORMED)
        elif body[0]:
            _refuse(stream, _UNKNOWN)
        elif stream.path == DISPATCH:
            return self._dispatch(stream, body[_PREFIX.size :])
        elif stream.path == HEALTH:
            _answer(stream, SERVING if self._is_healthy() else NOT_SERVING)
        elif stream.path == EVENT:
            _answer(stream, EVENT_REPLY)
        else:
            _refuse(stream, _UNKNOWN)
        return False

    def _dispatch(self, stream: Stream, message: bytes) -> bool:
        try:
            obj = Object.FromString(message)
        except DecodeError:
            _refuse(stream, _MALFORMED)
            return False
        is_ours = self._dispatcher.trusts(obj)
        if self._dispatcher.answered_at_once(obj, is_ours=is_ours):
            _answer(stream, reply(obj))
        elif len(self._tasks) >= self._settings.max_concurrent:
            _refuse(stream, _BUSY)
        else:
            task = self._loop.create_task(self._wait(stream, obj))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            stream.cancelled = task.cancel
        return is_ours

    async def _wait(self, stream: Stream, obj: Object) -> None:
        _answer(stream, reply(await self._dispatcher.answer(obj)))


def _refuse(stream: Stream, trailers: bytes) -> None:
    count_refusal(_REASONS[trailers])
    stream.refuse(trailers)


def _answer(stream: Stream, message: bytes) -> None:
    stream.answer(_HEADERS, _PREFIX.pack(0, len(message)) + message, _TRAILERS)
