"""The gRPC upstream: who is let in, what is bounded, and how errors reach a client."""

import asyncio
import contextlib
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import grpc.aio
import pytest

from gateway_plugin.admission.limits import KeyLimits
from gateway_plugin.api.calls import GrpcCall, GrpcReply
from gateway_plugin.hooks.health import HEALTH, SERVING
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.grpc import GrpcUpstream
from gateway_plugin.upstream.unpacking import is_packed, unpacked
from signalbox.program.errors import InvalidRequest, QueueFull, TooLarge
from signalbox.program.metrics import REGISTRY
from tests.rigs.gateway import Key, Rig, key, rig
from tests.rigs.natsserver import NatsServer

ECHO = "/test.Echo/Say"
FULL = "/test.Echo/Full"
OPEN = "/test.Echo/Open"
LIMIT_BYTES = 1 << 20
LIMIT_S = 20


async def _echo(call: GrpcCall) -> GrpcReply:
    seen = f"{call.key.id} {call.headers.get('X-Client-Addr', '-')} {call.timeout_s is not None} ".encode()
    return GrpcReply(seen + call.body, {"X-Signalbox-Job-Id": "one"})


async def _full(_: GrpcCall) -> GrpcReply:
    raise QueueFull("Too many.", retry_after_s=3.0, job_id="two")


class Client:
    """A channel to the upstream."""

    def __init__(self, address: str, channel: grpc.aio.Channel) -> None:
        self._address = address
        self._channel = channel

    @asynccontextmanager
    async def another(self) -> AsyncIterator["Client"]:
        """A client on a connection of its own."""
        options = [("grpc.use_local_subchannel_pool", 1)]
        async with grpc.aio.insecure_channel(self._address, options=options) as channel:
            yield Client(self._address, channel)

    def call(self, method: str, body: bytes = b"hello", *metadata: tuple[str, str | bytes], **more: Any) -> Any:
        """A call as any client makes it; awaited, it is the reply."""
        say = self._channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        return say(body, metadata=metadata, timeout=LIMIT_S, **more)

    async def refusal(self, method: str, body: bytes, *metadata: tuple[str, str], **more: Any) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.call(method, body, *metadata, **more)
        return caught.value


@asynccontextmanager
async def upstream(made: Rig, *, is_front: bool = False) -> AsyncIterator[Client]:
    """The upstream before a gateway, and a client of it."""
    gateway = made.gateway
    server = GrpcUpstream(
        {ECHO: _echo, FULL: _full},
        {OPEN: lambda: b"live"},
        Callers(gateway.keyring, gateway.tokens, charge=KeyLimits().charge if is_front else None),
        gateway.bodies,
        gateway.settings,
        is_healthy=lambda: True,
    )
    port = await server.bind("127.0.0.1:0")
    try:
        address = f"127.0.0.1:{port}"
        async with grpc.aio.insecure_channel(address) as channel:
            yield Client(address, channel)
    finally:
        await server.stop(1)


@asynccontextmanager
async def ready(
    nats: NatsServer, folder: Path, *, is_front: bool = False, places: int = 512, http_connections: int = 4096
) -> AsyncIterator[tuple[Client, Key]]:
    """A client of an upstream, and its key. places: messages that are read at once."""
    mine = key()
    sizes: dict[str, Any] = {
        "max_upstream_bytes": LIMIT_BYTES,
        "max_bodies_bytes": places * LIMIT_BYTES,
        "max_body_bytes": LIMIT_BYTES,
        "http_connections": http_connections,
    }
    async with rig(nats.url, folder, **sizes) as made:
        await made.publish(mine)
        async with upstream(made, is_front=is_front) as client:
            yield client, mine


async def test_a_good_key_gets_its_reply_with_the_jobs_id(nats: NatsServer, tmp_path: Path) -> None:
    async with ready(nats, tmp_path) as (client, mine):
        for metadata in (("authorization", f"Bearer {mine.text}"), ("x-api-key", mine.text)):
            call = client.call(ECHO, b"hello", metadata, ("x-client-addr", "1.2.3.4"))
            assert await call == f"{mine.stored.id} 1.2.3.4 True hello".encode()
            assert dict(await call.initial_metadata())["x-signalbox-job-id"] == "one"


async def test_the_time_of_an_answer_is_counted(nats: NatsServer, tmp_path: Path) -> None:
    before = REGISTRY.get_sample_value("signalbox_gateway_answer_seconds_count") or 0.0
    async with ready(nats, tmp_path) as (client, mine):
        await client.call(ECHO, b"hello", ("x-api-key", mine.text))
    assert REGISTRY.get_sample_value("signalbox_gateway_answer_seconds_count") == before + 1


async def test_metadata_of_bytes_is_nobody_s_to_judge(nats: NatsServer, tmp_path: Path) -> None:
    """Tracing libraries send it."""
    trace = (("grpc-trace-bin", b"\0\xff\xfe\0\1"), ("x-client-addr-bin", b"\xe9"), ("x-any-bin", b"\xe9"))
    async with ready(nats, tmp_path) as (client, mine):
        said = await client.call(ECHO, b"", ("authorization", mine.text), *trace)
        assert said.split()[:2] == [mine.stored.id.encode(), b"-"]


async def test_where_clients_call_it_directly_their_address_is_that_of_the_connection(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with ready(nats, tmp_path, is_front=True) as (client, mine):
        said = await client.call(ECHO, b"", ("authorization", mine.text), ("x-client-addr", "1.2.3.4"))
        assert said.split()[1] == b"127.0.0.1"


async def test_a_missing_a_wrong_and_a_repeated_key_are_unauthenticated(nats: NatsServer, tmp_path: Path) -> None:
    async with ready(nats, tmp_path) as (client, mine):
        good = ("authorization", f"Bearer {mine.text}")
        for metadata in ((), (("authorization", "Bearer sbx_wrong"),), (good, good)):
            error = await client.refusal(ECHO, b"", *metadata)
            assert error.code() is grpc.StatusCode.UNAUTHENTICATED, error


async def test_an_error_is_a_status_with_the_jobs_id_and_the_time_of_the_next_try(
    nats: NatsServer, tmp_path: Path
) -> None:
    async with ready(nats, tmp_path) as (client, mine):
        error = await client.refusal(FULL, b"", ("authorization", mine.text))
        assert (error.code(), error.details()) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "Too many.")
        reported: dict[str, object] = dict(error.trailing_metadata())  # type: ignore[arg-type]  # tuples, whatever the stubs say
        assert (reported["x-signalbox-job-id"], reported["retry-after"]) == ("two", "3")
        missing = await client.refusal("/test.Echo/None", b"", ("authorization", mine.text))
        assert missing.code() is grpc.StatusCode.UNIMPLEMENTED


@pytest.mark.parametrize("packing", [grpc.Compression.Gzip, grpc.Compression.Deflate])
async def test_a_packed_message_is_unpacked_within_the_bound(
    nats: NatsServer, tmp_path: Path, packing: grpc.Compression
) -> None:
    async with ready(nats, tmp_path) as (client, mine):
        good = ("authorization", mine.text)
        said = await client.call(ECHO, b"a" * 100_000, good, compression=packing)
        assert said.endswith(b" " + b"a" * 100_000)
        error = await client.refusal(ECHO, bytes(LIMIT_BYTES + 1), good, compression=packing)
        assert error.code() is grpc.StatusCode.INVALID_ARGUMENT, error


async def test_a_message_over_the_limit_is_refused(nats: NatsServer, tmp_path: Path) -> None:
    async with ready(nats, tmp_path) as (client, mine):
        error = await client.refusal(ECHO, bytes(LIMIT_BYTES + 1), ("authorization", mine.text))
        assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert (await client.call(ECHO, bytes(LIMIT_BYTES), ("authorization", mine.text))).endswith(bytes(LIMIT_BYTES))


async def test_many_calls_take_turns_to_be_read(nats: NatsServer, tmp_path: Path) -> None:
    async with ready(nats, tmp_path, places=2) as (client, mine):
        bodies = [b"%d" % number * 1000 for number in range(200)]
        said = await asyncio.gather(*(client.call(ECHO, body, ("authorization", mine.text)) for body in bodies))
        assert [each.split()[-1] for each in said] == bodies


async def test_connections_above_the_bound_are_turned_away(nats: NatsServer, tmp_path: Path) -> None:
    async with ready(nats, tmp_path, http_connections=16) as (client, mine), contextlib.AsyncExitStack() as stack:
        good = ("authorization", mine.text)
        assert (await client.call(ECHO, b"", good)).endswith(b" ")
        others = [await stack.enter_async_context(client.another()) for _ in range(16)]
        for other in others[:15]:
            assert (await other.call(ECHO, b"", good)).endswith(b" ")
        assert (await others[15].refusal(ECHO, b"", good)).code() is grpc.StatusCode.UNAVAILABLE


async def test_health_needs_no_key(nats: NatsServer, tmp_path: Path) -> None:
    async with ready(nats, tmp_path) as (client, _):
        assert await client.call(OPEN, b"") == b"live"
        assert await client.call(HEALTH, b"") == SERVING
        # More than a message may have: it would be refused if it were read.
        assert await client.call(HEALTH, bytes(LIMIT_BYTES + 1)) == SERVING


def test_unpacking_stops_at_the_bound() -> None:
    packed = zlib.compress(bytes(1000))
    assert unpacked(packed, 1000) == bytes(1000)
    with pytest.raises(TooLarge):
        unpacked(packed, 999)
    for broken in (packed[:-1], packed + b"x", b"\x1f\x8b" + bytes(20)):
        with pytest.raises(InvalidRequest):
            unpacked(broken, 1000)
    assert is_packed(packed)
    assert not is_packed(b"\x0a\x01a")
