"""The plugin over gRPC, called as Tyk calls it: one channel, no TLS, fail fast when it is away."""

from types import TracebackType
from typing import Self

import grpc

from gateway_plugin.proto.coprocess_pb2 import Object
from signalbox.program.errors import Unavailable

_METHOD = "/coprocess.Dispatcher/Dispatch"
_SIZES = (("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1))

_CONNECT_MS = 5_000
"""How long an attempt to connect may take: gRPC's least pause between two attempts is that, and no pause after one that
has failed."""


class RemotePlugin:
    """A plugin at ``target`` (``unix:///path``, ``host:port`` or ``dns:///name:port``). Retries nothing.

    A call has no timeout of its own: the edge cancels it when the request's time is over. A second timer for the
    same instant would at times fire first and answer 503 where the connection has to end.
    """

    def __init__(self, target: str) -> None:
        self._channel = grpc.aio.insecure_channel(
            target.removeprefix("tcp://"),
            options=[
                *_SIZES,
                ("grpc.initial_reconnect_backoff_ms", 100),
                ("grpc.min_reconnect_backoff_ms", _CONNECT_MS),
                ("grpc.max_reconnect_backoff_ms", 1000),
            ],
        )
        self._dispatch = self._channel.unary_unary(
            _METHOD, request_serializer=Object.SerializeToString, response_deserializer=Object.FromString
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._channel.close(grace=None)

    async def call(self, sent: Object) -> Object:
        """One hook. Raises :class:`Unavailable` for every gRPC error."""
        try:
            replied: Object = await self._dispatch(sent)
        except grpc.aio.AioRpcError as error:
            raise Unavailable(f"plugin: {error.code().name}", details=error.details()) from error
        return replied
