"""The plugin over gRPC, called as Tyk calls it: one channel, no TLS, fail fast when it is away."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import grpc

from gateway_plugin.hooks.calls import DISPATCH
from gateway_plugin.proto.coprocess_pb2 import Object
from signalbox.program.errors import Unavailable

_SIZES = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))

_CONNECT_MS = 5_000
"""How long an attempt to connect may take: gRPC's least pause between two attempts is that, and no pause after one that
has failed."""


@asynccontextmanager
async def remote_plugin(target: str) -> AsyncIterator[Callable[[Object], Awaitable[Object]]]:
    """Calls one hook of the plugin at ``target`` (``unix:///path``, ``host:port`` or ``dns:///name:port``).

    Raises :class:`Unavailable` for every gRPC error, and retries nothing. A call has no timeout of its own: the edge
    cancels it when the request's time is over. A second timer for the same instant would at times fire first and
    answer 503 where the connection has to end.
    """
    options = [
        *_SIZES,
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
        ("grpc.max_reconnect_backoff_ms", 1000),
    ]
    async with grpc.aio.insecure_channel(target.removeprefix("tcp://"), options=options) as channel:
        dispatch = channel.unary_unary(
            DISPATCH, request_serializer=Object.SerializeToString, response_deserializer=Object.FromString
        )

        async def call(sent: Object) -> Object:
            try:
                replied: Object = await dispatch(sent)
            except grpc.aio.AioRpcError as error:
                raise Unavailable(f"plugin: {error.code().name}", details=error.details()) from error
            return replied

        yield call
