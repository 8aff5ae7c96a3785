"""Fuzzes the plugin with dispatch objects, as a gateway or an impostor sends them.

The plugin is the real one, from the dispatcher to the group writer's callers, over a stream store in memory. Each
object is answered with a direct reply (or passed on by the auth hook) and never with an internal error; one that is
refused has stored nothing, one that is accepted has stored exactly one job.
"""

import asyncio
import atexit
import json
import time
from collections.abc import AsyncIterator, Callable, Hashable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from google.protobuf.message import DecodeError

from gateway_plugin.gateway import Gateway
from gateway_plugin.hooks.dispatcher import AUTH, POST
from gateway_plugin.jsonresponses import JOB_ID
from gateway_plugin.proto.coprocess_pb2 import Object
from gateway_plugin.settings import GatewaySettings
from signalbox.bus.client import ConsumerInfo, Message
from signalbox.bus.jetstream import Stored
from signalbox.bus.stalls import Stalls
from signalbox.program import keys
from signalbox.program.errors import StaleRevision
from signalbox.wire import names
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import encode
from signalbox.wire.modeldocs import Model, Signature, TensorSpec, Version
from signalbox.wire.names import Bucket, Stream

SEEDS: Final = Path(__file__).parent / "corpus" / "dispatch"
SHARE: Final = 50_000
SECRET: Final = "between us"
PEPPER: Final = "pepper"
KID: Final = "FuzzFuzzFuzz"
KEY: Final = "sbx_test_FuzzFuzzFuzz_" + "A" * 43
JOB: Final = "01234567-89ab-4def-8123-456789abcdef"
TOKENS: Final = tuple(
    word.encode()
    for word in (
        AUTH,
        POST,
        "GET",
        "POST",
        "DELETE",
        "PUT",
        "/v1/models",
        "/v1/models/half:predict",
        "/v1/models/half/versions/1:predict",
        "/v1/models/half/metadata",
        "/v1/jobs",
        "/v1/predict",
        f"/v1/jobs/{JOB}",
        f"/v1/jobs/{JOB}/cancel",
        "%2e%2e%2f",
        "//",
        "?",
        "\x00",
        "\r\n",
        "\ufffd",
        "Authorization: ",
        "X-Api-Key: ",
        "Prefer: respond-async",
        "Prefer: wait=0",
        "\n\n",
        ": ",
        "Content-Encoding: gzip",
        "Idempotency-Key: ",
        "Traceparent: ",
        "X-Client-Addr: ",
        "!key_id=",
        "!secret=",
        "!hook_type=",
        "!api=",
        "!org=",
        KID,
        JOB,
        '"priority": "hi"',
        '"deadline_s": 1',
        '{"model": "half", "input": {"x": [1.0]}}',
        '{"instances": [1.0]}',
        "NaN",
        "\ud7ff",
    )
)
_HOOKS: Final = {AUTH[:10]: AUTH, POST[:10]: POST}
_ALLOWED: Final = frozenset({200, 202, 400, 401, 403, 404, 405, 409, 410, 413, 415, 422, 429, 504})


class MemoryBus:
    """The streams as far as the plugin uses them: last message per subject, compare-and-set, events."""

    instance: Final = "fuzz"
    is_connected: Final = True

    def __init__(self) -> None:
        self.stalls = Stalls()
        self.stored: dict[str, Stored] = {}
        self.seq = 0
        self.written: list[str] = []

    def grouped(self, stream: Stream) -> "MemoryBus":
        return self

    async def write(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        expect: int | None = None,
        **_: object,
    ) -> int:
        last = self.stored[subject].seq if subject in self.stored else 0
        if expect is not None and expect != last:
            raise StaleRevision(last)
        self.seq += 1
        self.stored[subject] = Stored(subject, self.seq, time.time(), dict(headers or {}), data)
        self.written.append(subject)
        return self.seq

    async def leader_get(self, stream: str, subject: str) -> Stored | None:
        if not subject.startswith("jobs.*"):
            return self.stored.get(subject)
        end = subject.rpartition("*")[2]
        return next((s for name, s in self.stored.items() if name.endswith(end) and name[0] == "j"), None)

    async def list_latest(self, stream: str, subjects: Sequence[str]) -> list[Stored]:
        prefix = subjects[0].removesuffix(">")
        return [s for name, s in self.stored.items() if name.startswith(prefix)]

    async def list_pages(self, stream: str, subjects: Sequence[str]) -> AsyncIterator[list[Stored]]:
        yield await self.list_latest(stream, subjects)

    async def direct_batch(self, stream: str, asked: Mapping[str, Any]) -> list[Stored]:
        """What is stored from a sequence on, below a subject."""
        prefix = asked["next_by_subj"].removesuffix(">")
        found = [s for name, s in self.stored.items() if name.startswith(prefix) and s.seq >= asked["seq"]]
        return sorted(found, key=lambda stored: stored.seq)

    async def collect(
        self, subject: str, doc: Mapping[str, Any], on_message: Callable[[bytes, bytes], None]
    ) -> tuple[bytes, bytes]:
        """The same, as the server answers it."""
        for stored in await self.direct_batch("", doc):
            at = datetime.fromtimestamp(stored.time, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
            head = f"Nats-Subject: {stored.subject}\r\nNats-Sequence: {stored.seq}\r\nNats-Time-Stamp: {at}"
            on_message(f"NATS/1.0\r\n{head}\r\n\r\n".encode(), stored.data)
        return b"NATS/1.0 204 EOB\r\n\r\n", b""

    async def consumer_info(self, name: str) -> ConsumerInfo:
        return ConsumerInfo(name, 0, 0, 0, 0, 0)

    async def request_json(self, subject: str, doc: object | None = None) -> dict[str, Any]:
        bucket = subject.removeprefix("$JS.API.STREAM.INFO.KV_")
        prefix = "jobs." if bucket == subject else f"$KV.{bucket}."
        seqs = [stored.seq for name, stored in self.stored.items() if name.startswith(prefix)]
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        state = {"last_seq": max(seqs, default=0), "messages": len(seqs), "bytes": 0, "first_ts": now}
        return {"ts": now, "config": {}, "state": state, "total": len(seqs)}

    async def subscribe(self, subject: str, on_message: Callable[[Message], object]) -> "MemoryBus":
        return self

    async def publish(self, subject: str, data: bytes = b"", **_: object) -> None: ...

    async def flush(self) -> None: ...

    async def close(self) -> None: ...

    def on_reconnect(self, callback: Callable[[], None]) -> None: ...

    def forget_reconnect(self, callback: Callable[[], None]) -> None: ...


class Plugin:
    """The plugin under test and its store, on an event loop of their own."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()  # and not the thread's: other tests have their own
        self.bus = MemoryBus()
        self.gateway: Gateway = self.loop.run_until_complete(self._start())
        atexit.register(self._end)

    def _end(self) -> None:
        self.loop.run_until_complete(self.gateway.close())
        self.loop.close()

    async def _start(self) -> Gateway:
        x = Signature(
            inputs={"x": TensorSpec(dtype="float32", shape=(-1,))},
            outputs={"y": TensorSpec(dtype="float32", shape=(-1,))},
        )
        text = TensorSpec(dtype="string", shape=(-1,))
        pairs = TensorSpec(dtype="float32", shape=(-1, 2))
        classify = Signature(inputs={"inputs": text}, outputs={"classes": text, "scores": pairs})
        regress = Signature(inputs={"inputs": text}, outputs={"outputs": x.outputs["y"]})
        mixed = {
            "i": TensorSpec(dtype="int32", shape=(-1, 2)),
            "f": TensorSpec(dtype="bool", shape=None),
            "h": TensorSpec(dtype="float16", shape=(-1,)),
        }
        signatures = {
            "serving_default": x,
            "mixed": Signature(inputs=mixed, outputs=x.outputs),
            "classify": classify,
            "regress": regress,
            "__init": Signature(inputs={}, outputs={}),
        }
        version = Version(version=1, path="/nowhere", signatures=signatures)
        stored = ApiKey(
            id=KID,
            account_id=KID,
            hmac=keys.digest(PEPPER, whole_key()),
            scopes=("jobs:submit", "jobs:read", "jobs:cancel"),
        )
        model = Model(name="half", versions=(version,), labels={"stable": 1})
        await self.bus.write(names.key(Bucket.KEYS, KID), encode(stored))
        await self.bus.write(names.key(Bucket.MODELS, names.token("half")), encode(model))
        settings = GatewaySettings(key_pepper=PEPPER, secret=SECRET, stale_keys_s=1e9, max_wait_s=1e-6, recheck_s=1e9)
        return await Gateway.start(self.bus, settings)  # type: ignore[arg-type]

    def reset(self) -> None:
        """Forget the jobs of earlier objects, so that an input does the same whenever it runs."""
        for subject in self.bus.written:
            self.bus.stored.pop(subject, None)
        self.bus.written.clear()


def whole_key() -> str:
    """A key with the right checksum."""
    return KEY + keys._checksum(KEY)


_plugin: list[Plugin] = []


def plugin() -> Plugin:
    """Started with the first object."""
    if not _plugin:
        _plugin.append(Plugin())
        _plugin[0].bus.written.clear()
    return _plugin[0]


def object_of(data: bytes) -> Object:
    """A serialised object after a 0 byte; else lines: hook, method, url, headers and ``!`` fields, then the body.

    Raises DecodeError or ValueError where gRPC would not have called us.
    """
    if data[:1] == b"\0":
        return Object.FromString(data[1:])
    head, _, body = data.partition(b"\n\n")
    hook, method, url, *lines = [*head.decode().split("\n"), "", ""]
    fields = {"key_id": KID, "secret": SECRET, "api": "signalbox", "org": "signalbox"}
    obj = Object(hook_name=_HOOKS.get(hook[:10], hook))
    request = obj.request
    request.method, request.url, request.raw_body = method, url, body
    for line in lines:
        if line.startswith("!"):
            name, _, value = line[1:].partition("=")
            fields[name] = value
        elif line:
            name, _, value = line.partition(": ")
            request.headers[name] = value.replace("KEY", whole_key())
    request.return_overrides.response_code = -1
    obj.spec.update(APIID=fields["api"], OrgID=fields["org"])
    obj.spec["config_data"] = json.dumps({"secret": fields["secret"]})
    obj.metadata["key_id"] = fields["key_id"]
    return obj


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, or what the plugin raised."""
    under_test = plugin()
    try:
        obj = object_of(data)
    except (DecodeError, ValueError):
        return None
    hook, is_ours = obj.hook_name, _is_ours(obj)
    under_test.reset()
    answered = under_test.loop.run_until_complete(_dispatch(under_test, obj))
    overrides = answered.request.return_overrides
    status = overrides.response_code
    jobs = [s for s in under_test.bus.written if s.startswith("jobs.")]
    answered.SerializeToString()
    if hook == AUTH and status <= 0:
        assert answered.metadata["key_id"] == KID
        assert not under_test.bus.written
        return "let in"
    if not is_ours or hook not in {AUTH, POST}:
        assert status in {500, 503}, status
        assert not under_test.bus.written
        return "not ours", status
    body = overrides.response_body
    assert status in _ALLOWED, f"{status}: {body[:300]}"
    assert whole_key() not in body
    doc = json.loads(body)
    if status in {400, 401, 403, 404, 405, 413, 415}:
        assert not under_test.bus.written, f"{status} and yet {under_test.bus.written}"
    is_accepted = status == 504 or "Location" in overrides.headers
    assert len(jobs) == is_accepted, f"{status} with {jobs}"
    assert is_accepted <= (JOB_ID in overrides.headers)
    assert overrides.override_error == (status >= 400)
    return hook, status, doc.get("code") or doc.get("error", "")[:20]


async def _dispatch(under_test: Plugin, obj: Object) -> Object:
    return await under_test.gateway.dispatcher.dispatch(obj)


def _is_ours(obj: Object) -> bool:
    try:
        config = json.loads(obj.spec.get("config_data", "") or "{}")
    except ValueError:
        return False
    is_allowed = obj.spec.get("APIID") == obj.spec.get("OrgID") == "signalbox"
    return is_allowed and isinstance(config, dict) and config.get("secret") == SECRET
