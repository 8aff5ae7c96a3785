"""The transport ``grpc`` of the hooks: grpc.aio, gRPC's own server of the C core.

Messages are read one by one as the server has room for them (:mod:`gateway_plugin.hooks.reading`), so the methods are
stream methods to gRPC; to a client there is no difference.
"""

import asyncio
from collections.abc import Callable
from typing import Any, Final, NoReturn

import grpc.aio
from google.protobuf.message import DecodeError

from gateway_plugin.hooks.calls import BUSY, DISPATCH, EVENT, EVENT_REPLY, MALFORMED, reply
from gateway_plugin.hooks.dispatcher import Dispatcher, count_refusal
from gateway_plugin.hooks.health import HEALTH, NOT_SERVING, SERVING
from gateway_plugin.hooks.reading import Reading
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.settings import GatewaySettings
from signalbox.front.traffic import HOOKS, Traffic
from signalbox.program import log

_SPARE_STREAMS: Final = 2
_MAX_HEADER_BYTES: Final = 65_536
_IDENTITY_ONLY: Final = 1
"""Bit mask of the accepted compressions: a message that grows when it is unpacked would pass the limit."""

Context = grpc.aio.ServicerContext[Any, Any]


class GrpcServer:
    """The transport; see :class:`gateway_plugin.hooks.server.Transport`."""

    def __init__(self, settings: GatewaySettings, dispatcher: Dispatcher, is_healthy: Callable[[], bool]) -> None:
        self._settings = settings
        self._dispatcher = dispatcher
        self._is_healthy = is_healthy
        self._in_flight = 0
        self._traffic = Traffic(HOOKS)
        places = settings.max_bodies_bytes // settings.largest_body_bytes
        self._reading = Reading(places, is_proven=not settings.secret)
        self._server = grpc.aio.server(handlers=[_Methods(self)], options=_options(settings))

    async def bind(self, address: str) -> int:
        """Listen on ``unix:/path`` or ``host:port``; returns the port. Raises :class:`RuntimeError`."""
        port = self._server.add_insecure_port(address)
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once, let those in flight end for at most ``grace_s``. Idempotent."""
        await self._server.stop(grace_s)
        if self._in_flight:
            log.warning("gateway.calls_cut", calls=self._in_flight)

    # ------------------------------------------------------------------------------ calls

    async def dispatch(self, _messages: object, context: Context) -> bytes:
        """Answer one hook call."""
        peer = context.peer()
        try:
            async with self._reading.place(peer):
                message = await context.read()
        except TimeoutError:
            await _refuse(context, "limit_exceeded:proof", grpc.StatusCode.RESOURCE_EXHAUSTED, "too slow")
        if not isinstance(message, bytes):
            await _refuse_unread(context)
        self._traffic.received(len(message))
        obj = _object(message)
        if obj is None:
            await _refuse(context, "invalid_request:grpc", grpc.StatusCode.INTERNAL, MALFORMED)
        is_ours = self._dispatcher.trusts(obj)
        if is_ours:
            self._reading.prove(peer)
        if self._dispatcher.answered_at_once(obj, is_ours=is_ours):
            return self._sent(reply(obj))
        if self._in_flight >= self._settings.max_concurrent:
            await _refuse(context, "limit_exceeded:grpc", grpc.StatusCode.RESOURCE_EXHAUSTED, BUSY)
        self._in_flight += 1
        try:
            return self._sent(reply(await self._dispatcher.answer(obj)))
        finally:
            self._in_flight -= 1

    def _sent(self, message: bytes) -> bytes:
        self._traffic.sent(len(message))
        return message

    async def event(self, _messages: object, _context: Context) -> bytes:
        """Acknowledge an event of the gateway, which is ignored."""
        return EVENT_REPLY

    async def health(self, _messages: object, _context: Context) -> bytes:
        """``grpc.health.v1``: whether requests can be accepted now."""
        return SERVING if self._is_healthy() else NOT_SERVING


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs, not in gRPC
    """The methods of a server. Messages pass as bytes."""

    def __init__(self, server: GrpcServer) -> None:
        calls = {DISPATCH: server.dispatch, EVENT: server.event, HEALTH: server.health}
        self._methods = {name: grpc.stream_unary_rpc_method_handler(call) for name, call in calls.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The method that a call names; None: there is none, and gRPC says so."""
        method = self._methods.get(handler_call_details.method)
        if method is None:
            count_refusal("method_not_allowed:grpc")
        return method


def _object(message: bytes) -> Object | None:
    """The coprocess object in a message; None if it holds none."""
    try:
        return Object.FromString(message)
    except DecodeError:
        return None


async def _refuse(context: Context, reason: str, code: grpc.StatusCode, words: str) -> NoReturn:
    count_refusal(reason)
    await context.abort(code, words)


async def _refuse_unread(context: Context) -> NoReturn:
    """There was no message, or gRPC let none through: it answers one that is over the limit, or compressed, itself."""
    try:
        await context.abort(grpc.StatusCode.INTERNAL, MALFORMED)
    except grpc.aio.InternalError:
        count_refusal("too_large:grpc")
        raise asyncio.CancelledError from None


def _options(settings: GatewaySettings) -> list[tuple[str, int]]:
    options = [
        ("grpc.max_receive_message_length", settings.max_message_bytes),
        ("grpc.max_send_message_length", settings.max_message_bytes),
        ("grpc.max_metadata_size", _MAX_HEADER_BYTES),
        ("grpc.max_concurrent_streams", settings.max_concurrent * _SPARE_STREAMS),
        ("grpc.compression_enabled_algorithms_bitset", _IDENTITY_ONLY),
        ("grpc.http2.bdp_probe", 0),  # it would let clients send ahead of what the server reads
        ("grpc.so_reuseport", 1),
    ]
    if settings.max_connection_age_s:
        options.append(("grpc.max_connection_age_ms", round(settings.max_connection_age_s * 1000)))
        options.append(("grpc.max_connection_age_grace_ms", round(settings.longest_call_s * 1000)))
    return options
