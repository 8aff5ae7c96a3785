"""A server of the hooks on a unix socket, with a plugin that echoes: for the C core's client, and for raw frames."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import grpc.aio
import hpack

from gateway_plugin.hooks.calls import DISPATCH
from gateway_plugin.hooks.dispatcher import Dispatcher
from gateway_plugin.hooks.native.frames import PREFACE, frame
from gateway_plugin.hooks.server import PluginServer
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.settings import GatewaySettings
from signalbox.program import metrics
from tests.rigs.dialects import DIALECTS

LIMIT = 4 * 1024 * 1024
SETTINGS, PING, GOAWAY, DATA, HEADERS, RESET, WINDOW, CONTINUATION = 4, 6, 7, 0, 1, 3, 8, 9
END_STREAM, END_HEADERS, ACK, PADDED = 1, 4, 1, 8
HELLO = PREFACE + frame(SETTINGS, 0, 0)


class Plugin:
    """A dispatcher whose post hook echoes the body, after ``gate`` where the url says ``/wait``."""

    def __init__(self) -> None:
        self.gate = asyncio.Event()
        self.waiting = 0
        self.cancelled = asyncio.Event()
        self.arrived = asyncio.Event()

    async def post(self, obj: Object) -> JsonResponse:
        body = obj.request.raw_body
        if obj.request.url == "/wait":
            self.waiting += 1
            self.arrived.set()
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                self.cancelled.set()
                raise
            finally:
                self.waiting -= 1
        return JsonResponse(200, body, {})


class Rig:
    """A server, its plugin, and a client of the C core."""

    def __init__(self, plugin: Plugin, served: PluginServer, channel: grpc.aio.Channel) -> None:
        self.plugin = plugin
        self.served = served
        self.channel = channel
        self.raws: list[asyncio.StreamWriter] = []
        self.dispatch = channel.unary_unary(
            DISPATCH, request_serializer=Object.SerializeToString, response_deserializer=Object.FromString
        )

    async def echo(self, body: bytes, url: str = "/") -> str:
        obj = Object(hook_name="SignalboxPost")
        obj.request.url = url
        obj.request.raw_body = body
        replied: Object = await self.dispatch(obj, timeout=30)
        return replied.request.return_overrides.response_body

    async def bare(self, method: str, message: bytes, compression: grpc.Compression | None = None) -> bytes:
        call = self.channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        return bytes(await call(message, timeout=30, compression=compression))

    async def raw(self) -> "RawClient":
        address = self.served.address
        if address.startswith("unix:"):
            reader, writer = await asyncio.open_unix_connection(address.removeprefix("unix:"))
        else:
            host, _, port = address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
        self.raws.append(writer)
        return RawClient(reader, writer)


class RawClient:
    """Writes what it likes, reads frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.encoder = hpack.Encoder()

    def send(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frames))

    def greet(self) -> None:
        self.send(HELLO)

    def block(self, path: str = DISPATCH) -> bytes:
        fields = [(":method", "POST"), (":scheme", "http"), (":path", path), (":authority", "x")]
        return self.encoder.encode([*fields, ("te", "trailers"), ("content-type", "application/grpc")])

    def call(self, stream: int, message: bytes, *, path: str = DISPATCH, flag: int = 0) -> None:
        body = struct.pack(">BI", flag, len(message)) + message
        self.send(frame(HEADERS, END_HEADERS, stream, self.block(path)))
        self.send(frame(DATA, END_STREAM, stream, body))

    async def ping_for_ever(self) -> None:
        while True:
            self.send(frame(PING, 0, 0, bytes(8)) * 10_000)
            await self.writer.drain()

    async def read(self) -> tuple[int, int, int, bytes]:
        head = await asyncio.wait_for(self.reader.readexactly(9), 10)
        high, low, kind, flags, stream = struct.unpack(">HBBBI", head)
        return kind, flags, stream, await self.reader.readexactly(high << 8 | low)

    async def until(self, kind: int, *, is_ack: bool = False) -> tuple[int, bytes]:
        """The next frame of a kind: its stream and body."""
        while True:
            found, flags, stream, body = await self.read()
            if found == kind and (not is_ack or flags & ACK):
                return stream, body

    async def refused(self) -> int:
        """The error code the server ends the connection with."""
        _, body = await self.until(GOAWAY)
        while await asyncio.wait_for(self.reader.read(65536), 10):
            pass
        assert b"0x" not in body, "a reason that tells where something lies in our memory"
        return int(struct.unpack(">II", body[:8])[1])

    async def status(self) -> str:
        """The gRPC status of the next answer."""
        decoder = hpack.Decoder()
        while True:
            _, body = await self.until(HEADERS)
            for name, value in decoder.decode(body, raw=True):
                if name == b"grpc-status":
                    return value.decode()


def counted(reason: str) -> float:
    return metrics.REGISTRY.get_sample_value("signalbox_refused_total", {"reason": reason}) or 0


@asynccontextmanager
async def rig(folder: Path, transport: str, **fields: Any) -> AsyncIterator[Rig]:
    given: dict[str, Any] = {
        "key_pepper": "p",
        "transport": transport,
        "listen": f"unix://{folder}/p.sock",
        "max_connection_age_s": 0,
        "max_message_bytes": LIMIT,
        "max_body_bytes": LIMIT - 1_048_576,
        **fields,
    }
    settings = GatewaySettings(**given)
    plugin = Plugin()
    served = await PluginServer.start(
        settings, Dispatcher(lambda _: None, plugin.post, DIALECTS, secret=settings.secret), lambda: True
    )
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    async with grpc.aio.insecure_channel(served.address, options=options) as channel:
        made = Rig(plugin, served, channel)
        try:
            yield made
        finally:
            plugin.gate.set()
            for writer in made.raws:
                writer.close()
            await served.stop(5)


def shown(secret: str, size: int = 0) -> bytes:
    """A call that shows a secret. size: of its body."""
    config = f'{{"secret":"{secret}"}}'
    obj = Object(hook_name="SignalboxPost", spec={"config_data": config})
    obj.request.raw_body = b"x" * size
    return obj.SerializeToString()
