"""The plugin over a real gRPC unix socket and a real NATS, with a worker that is a script.

The worker pulls, claims and commits as a real one does, but computes in this process: the plugin's
tests need ends of jobs, not TensorFlow.
"""

import asyncio
import json
import struct
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import grpc.aio

from gateway_plugin.gateway import Gateway
from gateway_plugin.hooks.calls import SERVICE
from gateway_plugin.hooks.server import PluginServer
from gateway_plugin.proto.coprocess_pb2 import HookType, Object
from gateway_plugin.settings import GatewaySettings
from signalbox.bus import table
from signalbox.bus.client import Bus
from signalbox.bus.pull import Delivery, Puller
from signalbox.jobs import delivery, life, payloads
from signalbox.jobs.commits import persist
from signalbox.jobs.records import Records
from signalbox.program import keys
from signalbox.program.errors import StaleRevision
from signalbox.program.settings import Wire
from signalbox.wire import names, tensors
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import ErrorInfo, Record, State, header
from signalbox.wire.modeldocs import Limits, Model, Signature, TensorSpec, Version
from signalbox.wire.names import PRIORITIES, Bucket, Header, Stream
from signalbox.wire.tensors import Tensor
from signalbox.wire.workerdocs import Residency
from tests.rigs.presence import presence

PEPPER = "pepper of the tests"
ALL_SCOPES = ("jobs:submit", "jobs:read", "jobs:cancel", "jobs:urgent")
HALF_PLUS_TWO = Signature(
    inputs={"x": TensorSpec(dtype="float32", shape=(-1,))}, outputs={"y": TensorSpec(dtype="float32", shape=(-1,))}
)


class Reply(NamedTuple):
    """What the front would send to the client."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def doc(self) -> Any:
        return json.loads(self.body)


class Key(NamedTuple):
    """An API key as its owner holds it, and as the console stores it."""

    text: str
    stored: ApiKey


def model(name: str = "half", **fields: Any) -> Model:
    """A model of one version with half_plus_two's signature."""
    versions = (Version(version=1, path="/nowhere", signatures={"serving_default": HALF_PLUS_TWO}),)
    return Model(**{"name": name, "versions": versions, "default_version": 1, **fields})


def limits(**fields: Any) -> Limits:
    return Limits(**fields)


def key(pepper: str = PEPPER, /, **fields: Any) -> Key:
    """A fresh key that may do everything, unless told otherwise."""
    text, kid = keys.mint("test")
    known = {"id": kid, "account_id": kid, "hmac": keys.digest(pepper, text), "scopes": ALL_SCOPES}
    return Key(text, ApiKey(**{**known, "updated_at": time.time(), **fields}))


class Rig:
    """A plugin that listens, and a client that calls it as the gateway does."""

    def __init__(self, bus: Bus, gateway: Gateway, server: PluginServer, api: str) -> None:
        self.bus = bus
        self.gateway = gateway
        self.server = server
        self.spec = {"APIID": "signalbox", "OrgID": "signalbox", "config_data": api}
        self._channel = grpc.aio.insecure_channel(
            server.address, options=[("grpc.max_receive_message_length", 64 * 1024 * 1024)]
        )
        self._dispatch = self._channel.unary_unary(
            f"/{SERVICE}/Dispatch", request_serializer=Object.SerializeToString, response_deserializer=Object.FromString
        )

    async def close(self) -> None:
        await self._channel.close(None)

    async def queued(self) -> int:
        """Jobs in ``JOBS``."""
        info = await self.bus.request_json(f"$JS.API.STREAM.INFO.{Stream.JOBS}")
        return int(info["state"]["messages"])

    def object(self, hook: str, method: str, path: str, body: bytes, headers: dict[str, str]) -> Object:
        """An object as the gateway sends it."""
        obj = Object(hook_name=hook, spec=self.spec)
        obj.hook_type = HookType.CustomKeyCheck if hook == "SignalboxAuth" else HookType.Post
        obj.request.method = method
        obj.request.url = path
        obj.request.request_uri = path
        obj.request.scheme = "http"
        obj.request.raw_body = body
        obj.request.headers.update({"Host": "front", **headers})
        obj.request.return_overrides.response_code = -1
        return obj

    async def dispatch(self, obj: Object) -> Object:
        done: Object = await self._dispatch(obj, timeout=60)
        return done

    async def authenticate(self, credential: dict[str, str]) -> Object:
        """The auth hook's reply."""
        obj = self.object("SignalboxAuth", "GET", "/v1/models", b"", credential)
        return await self.dispatch(obj)

    async def call(
        self, method: str, path: str, body: Any = None, *, key: Key, headers: dict[str, str] | None = None
    ) -> Reply:
        """One request through both hooks."""
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        sent = {"Authorization": f"Bearer {key.text}", **(headers or {})}
        checked = await self.dispatch(self.object("SignalboxAuth", method, path, data, sent))
        refused = reply_of(checked)
        if refused is not None:
            return refused
        obj = self.object("SignalboxPost", method, path, data, sent)
        obj.session.CopyFrom(checked.session)
        obj.metadata.update(checked.metadata)
        answered = reply_of(await self.dispatch(obj))
        assert answered is not None
        return answered

    async def publish(self, *documents: Model | Key) -> None:
        """Put models and keys where the plugin sees them, and wait until it does."""
        for document in documents:
            if isinstance(document, Model):
                name = names.token(document.name)
                revision = await table.put(self.bus, Bucket.MODELS, name, document)
                await reached(self.gateway._models, name, revision)
            else:
                name = document.stored.id
                revision = await table.put(self.bus, Bucket.KEYS, name, document.stored)
                await reached(self.gateway._keys, name, revision)


async def reached(watched: table.Table[Any], name: str, revision: int) -> None:
    """Return when a table knows a revision."""
    await holds(watched, lambda: watched.revision(name) >= revision)


async def holds(watched: table.Table[Any], condition: Callable[[], object]) -> None:
    """Return when ``condition()`` holds, looked at after each document of a table."""
    seen = asyncio.Event()
    watched.on_change(lambda *_: seen.set())
    async with asyncio.timeout(60):
        while not condition():
            await seen.wait()
            seen.clear()


def reply_of(obj: Object) -> Reply | None:
    """The direct reply in a hook's answer, None where the request goes on."""
    overrides = obj.request.return_overrides
    if overrides.response_code <= 0:
        return None
    assert overrides.response_code < 400 or overrides.override_error
    return Reply(overrides.response_code, dict(overrides.headers), overrides.response_body.encode())


@asynccontextmanager
async def rig(url: str, folder: Path, *, admin_wire: Wire | None = None, **fields: Any) -> AsyncIterator[Rig]:
    """A plugin on ``folder/plugin.sock``. fields: its settings. admin_wire: of the test's own connection."""
    settings = GatewaySettings(
        **{
            "nats_url": url,
            "key_pepper": PEPPER,
            "listen": f"unix://{folder}/plugin.sock",
            "secret": "between us",
            **fields,
        }
    )
    admin = await Bus.connect(admin_wire or settings, role="admin")
    own = await Bus.connect(settings, role="gateway")
    gateway = await Gateway.start(own, settings)
    server = await PluginServer.start(settings, gateway.dispatcher, lambda: gateway.is_healthy)
    made = Rig(admin, gateway, server, json.dumps({"secret": "between us"}))
    try:
        yield made
    finally:
        await made.close()
        gateway.stop_waiting()
        await server.stop(5)
        await gateway.close()
        await own.close()
        await admin.close()


Compute = Callable[[Sequence[Tensor]], Sequence[Tensor] | ErrorInfo]


def half_plus_two(inputs: Sequence[Tensor]) -> list[Tensor]:
    """``y = x / 2 + 2``."""
    (x,) = inputs
    values = struct.unpack(f"<{len(x.data) // 4}f", x.data)
    data = struct.pack(f"<{len(values)}f", *(value / 2 + 2 for value in values))
    return [Tensor("y", "float32", x.shape, data)]


_ASKED: Final = 500
"""Jobs of a class that a scripted worker asks for at once, and half as many again when half of them have come."""


class ScriptedWorker:
    """Serves one model. hold: set while jobs are to be claimed but not finished. versions: those that are ready."""

    def __init__(
        self, bus: Bus, model_name: str, compute: Compute = half_plus_two, *, versions: tuple[int, ...] = (1,)
    ) -> None:
        self._bus = bus
        self._model = model_name
        self._compute = compute
        self._versions = versions
        self._records = Records(bus)
        self._pullers: list[Puller] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.go = asyncio.Event()
        self.go.set()
        self.is_silent = False
        self.claimed = asyncio.Event()
        self.finished = asyncio.Event()

    async def __aenter__(self) -> Self:
        models = tuple(Residency(model=self._model, version=v, state="ready") for v in self._versions)
        worker = presence("w1", rates={self._model: 50.0}, token=1, models=models)
        await table.put(self._bus, Bucket.WORKERS, "w1", worker, ttl_s=60)
        for priority in PRIORITIES:
            found = await delivery.find(self._bus, self._model, priority, 0)
            puller = await self._bus.pull(found.name, self._on_delivery)
            puller.on_idle = partial(puller.ask, _ASKED)
            puller.ask(_ASKED)
            self._pullers.append(puller)
        return self

    async def __aexit__(self, *_: object) -> None:
        for puller in self._pullers:
            await puller.close()
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await table.remove(self._bus, Bucket.WORKERS, "w1")

    def _on_delivery(self, pulled: Delivery) -> None:
        for puller in self._pullers:
            if puller.outstanding < _ASKED // 2:
                puller.ask(_ASKED // 2)
        task = asyncio.create_task(self._run(pulled))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, pulled: Delivery) -> None:
        job = pulled.job
        found = await persist(lambda: self._records.read(job.id))
        if found is not None and found[0].state is not State.QUEUED:
            return
        now = time.time()
        before = found[0] if found else None
        stages = [("batch", now)]
        record = life.claimed(job, before, worker="w1", gpu="CPU-test-0", token=1, now=now, stages=stages)
        try:
            revision = await self._records.write(record, expect=found[1] if found else 0)
        except StaleRevision:  # it was claimed by its other message
            return
        self.claimed.set()
        await self.go.wait()
        frame = pulled.data if job.ref is None else await payloads.fetch(self._bus, job.ref)
        result = self._compute(tensors.decode(frame))
        if job.outputs and not isinstance(result, ErrorInfo):
            result = [tensor for tensor in result if tensor.name in job.outputs]
        await self._commit(job.reply, record, revision, result)

    async def _commit(self, reply: str, record: Record, revision: int, result: Sequence[Tensor] | ErrorInfo) -> None:
        body, now = b"", time.time()
        if isinstance(result, ErrorInfo):
            ended = life.failed(record, result, now=now)
        else:
            body = tensors.encode(result)
            ref = None
            if len(body) > 262_144:
                ref, body = await payloads.store(self._bus, record.account_id, record.id, "out1", body), b""
            stages = [("batch", record.claimed_at or now), ("run", now)]
            ended = life.succeeded(record, now=now, stages=stages, batch=1, size_bytes=len(body), ref=ref)
        latest = await persist(lambda: self._records.read(record.id))
        assert latest is not None
        if latest[0].cancel_requested:
            ended, body = life.cancelled(latest[0], now=now), b""
        await self._records.write(ended, body, expect=latest[1])
        self.finished.set()
        if reply and not self.is_silent:
            await self._bus.publish(reply, body, headers={Header.RECORD: header(ended)})
