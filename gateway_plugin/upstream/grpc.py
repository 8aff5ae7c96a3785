"""The upstream over gRPC: grpc.aio, gRPC's own server of the C core, with every bound before the first message.

A caller is known by its metadata before its message is read, so what a stranger sends stays with the stranger (flow
control), and what is read counts for an account. Methods are stream methods to gRPC, so that reading is ours to time;
to a client there is no difference.
"""

import asyncio
from collections.abc import Callable, Mapping
from time import perf_counter
from typing import Any, Final, NoReturn

import grpc.aio

from gateway_plugin.admission.addresses import FRONT_S_WORD
from gateway_plugin.admission.pool import Pool, PoolShare
from gateway_plugin.api.calls import GrpcCall, GrpcReply, Method
from gateway_plugin.codec.turns import Turns
from gateway_plugin.hooks.dispatcher import ANSWER_SECONDS, GRPC, Outcomes, count_refusal, counted
from gateway_plugin.hooks.health import HEALTH, NOT_SERVING, SERVING
from gateway_plugin.request import headers_of
from gateway_plugin.settings import GatewaySettings
from gateway_plugin.upstream.callers import Callers, require_single
from gateway_plugin.upstream.unpacking import is_packed, unpacked
from signalbox.front import traffic
from signalbox.front.traffic import Traffic
from signalbox.program.errors import (
    DeadlineExceeded,
    SignalboxError,
    TooLarge,
    meaning,
)

Context = grpc.aio.ServicerContext[Any, Any]

_BYTES: Final = "-bin"
"""Metadata whose name ends so is bytes (tracing libraries send it), and nobody's here to read."""
_MAX_HEADER_BYTES: Final = 65_536
_MOST_SAID_BYTES: Final = 6144
"""Clients take 8 KiB of metadata, and lose all of an answer that has more."""
_READ_S: Final = 60.0
"""How long the message of a caller whose key is good may take, until its turn and until it is whole."""
_PING_S: Final = 10


class GrpcUpstream:
    """A gRPC server.

    methods: by their full names. open_methods: those that need no key and take no message. is_healthy: whether requests
    can be accepted now.
    """

    def __init__(
        self,
        methods: Mapping[str, Method],
        open_methods: Mapping[str, Callable[[], bytes]],
        callers: Callers,
        bodies: Pool,
        settings: GatewaySettings,
        *,
        is_healthy: Callable[[], bool],
    ) -> None:
        self._callers = callers
        self._bodies = bodies
        self._limit_bytes = settings.max_upstream_bytes
        self._is_healthy = is_healthy
        self._outcomes = Outcomes()
        self._traffic = Traffic(traffic.GRPC)
        self._reading = Turns(max(2, settings.max_bodies_bytes // settings.max_upstream_bytes))
        calls: dict[str, Callable[[object, Context], Any]] = {n: self._serve(n, m) for n, m in methods.items()}
        calls |= {name: _open(answer) for name, answer in open_methods.items()}
        calls[HEALTH] = self._health
        self._server = grpc.aio.server(
            handlers=[_Methods(calls)], options=_options(settings, is_front=callers.is_front)
        )

    async def bind(self, address: str) -> int:
        """Listen on ``host:port``; returns the port. Raises :class:`RuntimeError`."""
        port = self._server.add_insecure_port(address)
        await self._server.start()
        return port

    async def stop(self, grace_s: float) -> None:
        """Refuse new calls at once, let those in flight end for at most ``grace_s``. Idempotent."""
        await self._server.stop(grace_s)

    # ------------------------------------------------------------------------------ calls

    def _serve(self, name: str, method: Method) -> Callable[[object, Context], Any]:
        async def call(_messages: object, context: Context) -> bytes:
            try:
                reply = await self._answer(method, context)
            except (asyncio.CancelledError, grpc.aio.AbortError):
                raise
            except Exception as error:  # noqa: BLE001  the edge of one request: becomes a status
                await self._refuse(context, error, name)
            self._outcomes.count(GRPC, 0)
            if reply.headers:
                await context.send_initial_metadata([(name.lower(), text) for name, text in reply.headers.items()])
            return reply.message

        return call

    async def _answer(self, method: Method, context: Context) -> GrpcReply:
        metadata = context.invocation_metadata() or ()
        lines = [(_bytes(name), _bytes(value)) for name, value in metadata if not name.endswith(_BYTES)]
        require_single(lines)
        headers = headers_of(lines)
        if self._callers.is_front:  # clients call it directly
            headers[FRONT_S_WORD] = _address(context.peer())
        key, _ = self._callers.of(headers)
        account = key.account_id
        try:
            with PoolShare(self._bodies, account) as share:
                message = await self._read(account, context)
                share.take(len(message))
                self._traffic.received(len(message))
                began = perf_counter()
                reply = await method(GrpcCall(key, headers, message, context.time_remaining(), share.take))
                ANSWER_SECONDS.observe(perf_counter() - began)
                self._traffic.sent(len(reply.message))
                return reply
        except grpc.aio.AbortError:
            raise
        except Exception as error:
            self._callers.counts.refuse(key.id, error)
            raise

    async def _read(self, account: str, context: Context) -> bytes:
        """The one message of a call, unpacked, when it is its account's turn to be read.

        Raises :class:`TooLarge`, and for a message or a turn that does not come in time :class:`DeadlineExceeded`,
        :class:`LimitExceeded` or :class:`Unavailable`.
        """
        is_read = False
        try:
            async with asyncio.timeout(_READ_S), self._reading.turn(account, _READ_S):
                is_read = True
                message = await context.read()
                if isinstance(message, bytes) and is_packed(message):
                    # In the turn, so that no more is unpacked at once than may be read; a thread, so that nobody waits.
                    message = await asyncio.to_thread(unpacked, message, self._limit_bytes)
        except TimeoutError as error:
            raise self._late(account, is_read=is_read) from error
        if not isinstance(message, bytes):  # gRPC lets none through that is too large, and answers it itself
            raise TooLarge(f"The call has no message, or one above {self._limit_bytes} bytes.", bound="grpc")
        return message

    def _late(self, account: str, *, is_read: bool) -> SignalboxError:
        if is_read:
            return DeadlineExceeded(f"The message did not come within {_READ_S:.0f} s.", bound="reading")
        return self._reading.late(account, what="large messages", bound="reading")

    async def _health(self, _messages: object, _context: Context) -> bytes:
        """``grpc.health.v1``, for anybody, and the same for every service: what a stranger sends is not read."""
        return SERVING if self._is_healthy() else NOT_SERVING

    async def _refuse(self, context: Context, error: Exception, name: str) -> NoReturn:
        found = counted(error, name)
        means = meaning(found.code)
        self._outcomes.count(GRPC, means.http)
        reported = []
        if isinstance(job_id := found.facts.get("job_id"), str):
            reported.append(("x-signalbox-job-id", job_id))
        if found.retry_after_s is not None:
            reported.append(("retry-after", str(max(1, round(found.retry_after_s)))))
        try:
            await context.abort(grpc.StatusCode[means.grpc], _cut(found.public_message), tuple(reported))
        except grpc.aio.InternalError:  # gRPC has answered already
            raise asyncio.CancelledError from None


class _Methods(grpc.GenericRpcHandler):  # type: ignore[type-arg]  # generic in the stubs, not in gRPC
    """The methods of a server. Messages pass as bytes."""

    def __init__(self, calls: Mapping[str, Callable[[object, Context], Any]]) -> None:
        self._methods = {name: grpc.stream_unary_rpc_method_handler(call) for name, call in calls.items()}

    def service(self, handler_call_details: grpc.HandlerCallDetails) -> Any:
        """The method that a call names; None: there is none, and gRPC says so."""
        method = self._methods.get(handler_call_details.method)
        if method is None:
            count_refusal("method_not_allowed:grpc")
        return method


def _open(answer: Callable[[], bytes]) -> Callable[[object, Context], Any]:
    async def call(_messages: object, _context: Context) -> bytes:
        return answer()

    return call


def _cut(text: str) -> str:
    """A text that fits into a client's metadata, where each byte beyond ASCII takes three."""
    return text if len(text.encode()) * 3 <= _MOST_SAID_BYTES else text[: _MOST_SAID_BYTES // 12]


def _bytes(text: str | bytes) -> bytes:
    return text.encode() if isinstance(text, str) else text


def _address(peer: str) -> str:
    """The address in gRPC's name of a connection: ``ipv4:1.2.3.4:5`` or ``ipv6:%5B::1%5D:5``; "" for any other."""
    kind, _, rest = peer.partition(":")
    if kind not in {"ipv4", "ipv6"}:
        return ""
    host = rest.rpartition(":")[0]
    return host.replace("%5B", "").replace("%5D", "").strip("[]")


def _options(settings: GatewaySettings, *, is_front: bool) -> list[tuple[str, int]]:
    return [
        ("grpc.max_receive_message_length", settings.max_upstream_bytes),
        ("grpc.max_send_message_length", -1),  # what a result may have is said in an error of ours
        ("grpc.max_metadata_size", _MAX_HEADER_BYTES),
        ("grpc.max_concurrent_streams", settings.max_concurrent),
        ("grpc.per_message_decompression", 0),  # unpacked by us, within the bound
        ("grpc.max_allowed_incoming_connections", settings.http_connections),
        ("grpc.http2.bdp_probe", 0),  # it would let clients send ahead of what the server reads
        ("grpc.http2.min_ping_interval_without_data_ms", _PING_S * 1000),
        ("grpc.max_connection_idle_ms", round(settings.http_idle_s * 1000)),
        ("grpc.so_reuseport", int(not is_front)),  # a new process listens before the old one drains
    ]
