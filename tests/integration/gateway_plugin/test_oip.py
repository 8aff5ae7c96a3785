"""The Open Inference Protocol over a real NATS and a scripted worker: REST as JSON and as bytes, and gRPC."""

import asyncio
import gzip
import json
import struct
import zlib
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

from gateway_plugin.api.calls import GrpcCall
from gateway_plugin.api.oip.dialect import OpenInference
from gateway_plugin.api.oip.grpc import SERVICE
from gateway_plugin.codec.protobuf import protowire
from gateway_plugin.jsonresponses import JsonResponse
from gateway_plugin.proto import inference_pb2 as messages
from gateway_plugin.request import Request
from signalbox.program.errors import (
    DeadlineExceeded,
    Forbidden,
    InvalidInput,
    InvalidRequest,
    NotFound,
    NotServing,
    SignalboxError,
    TooLarge,
    Unimplemented,
    UnsupportedEncoding,
)
from signalbox.wire.modeldocs import Batching, Signature, TensorSpec, Version
from signalbox.wire.tensors import Tensor
from tests.rigs.gateway import Key, Rig, ScriptedWorker, key, limits, model, rig
from tests.rigs.natsserver import NatsServer

HEADER = "Inference-Header-Content-Length"
FREE = TensorSpec(dtype="float32", shape=(-1,))
TWICE = Signature(inputs={"x": FREE}, outputs={"y": FREE, "s": TensorSpec(dtype="string", shape=(-1,))})


def twice(inputs: Sequence[Tensor]) -> list[Tensor]:
    """``y = 2 x``, and as many strings."""
    (x,) = inputs
    values = np.frombuffer(x.data, "<f4") * 2
    strings = b"".join(struct.pack("<I1s", 1, b"%d" % (n % 10)) for n in range(values.size))
    return [Tensor("y", "float32", x.shape, values.tobytes()), Tensor("s", "string", x.shape, strings)]


class Plugin(NamedTuple):
    """A plugin, a model with its worker, and a key."""

    made: Rig
    key: Key
    worker: ScriptedWorker

    @property
    def dialect(self) -> OpenInference:
        return self.made.gateway.open_inference

    async def rest(
        self, method: str, path: str, body: bytes = b"", headers: dict[str, str] | None = None, *, by: Key | None = None
    ) -> JsonResponse:
        """The answer, or the refusal of the error."""
        stored = (by or self.key).stored
        try:
            request, rest = Request(method, path, headers or {}, body), self.dialect.rest
            return rest.keyless(request) or await rest.answer(request, stored)
        except SignalboxError as error:
            return self.dialect.rest.refusal(error)

    async def infer(self, body: Any, **headers: str) -> JsonResponse:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        return await self.rest(
            "POST", "/v2/models/twice/infer", data, {n.replace("_", "-"): v for n, v in headers.items()}
        )

    async def grpc(
        self, method: str, body: bytes = b"", *, by: Key | None = None, timeout_s: float | None = None
    ) -> bytes:
        call = GrpcCall((by or self.key).stored, {}, body, timeout_s)
        reply = await self.dialect.grpc.methods()[f"{SERVICE}{method}"](call)
        return reply.message


@asynccontextmanager
async def plugin(nats: NatsServer, folder: Path, **fields: Any) -> AsyncIterator[Plugin]:
    mine = key()
    signatures = {"serving_default": TWICE}
    versions = (Version(version=3, path="/nowhere", signatures=signatures, joined=tuple(signatures)),)
    known = model("twice", versions=versions, default_version=3, labels={"stable": 3}, **fields)
    async with rig(nats.url, folder) as made:
        await made.publish(known, mine)
        async with ScriptedWorker(made.bus, "twice", twice, versions=(3,)) as worker:
            await present(made)
            yield Plugin(made, mine, worker)


async def present(made: Rig) -> None:
    """Return when the plugin knows the worker."""
    workers = made.gateway._workers
    seen = asyncio.Event()
    workers.on_change(lambda *_: seen.set())
    async with asyncio.timeout(60):
        while not workers.items():
            await seen.wait()
            seen.clear()


def x(data: Any, *shape: int) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": shape or [len(data)], "data": data}


def bare(size: int, *shape: int) -> dict[str, Any]:
    return {"name": "x", "datatype": "FP32", "shape": shape, "parameters": {"binary_data_size": size}}


async def test_json_in_and_json_out(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        found = await at.infer({"id": "42", "inputs": [x([1.0, 2.5])], "other": 1})
        assert found.status == 200
        assert found.headers["Content-Type"] == "application/json"
        assert HEADER not in found.headers
        assert found.headers["X-Signalbox-Job-Id"]
        assert json.loads(found.body) == {
            "model_name": "twice",
            "model_version": "3",
            "id": "42",
            "outputs": [
                {"name": "y", "datatype": "FP32", "shape": [2], "data": [2.0, 5.0]},
                {"name": "s", "datatype": "BYTES", "shape": [2], "data": ["0", "1"]},
            ],
        }


async def test_bytes_in_and_bytes_out_in_the_order_asked_for(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        data = struct.pack("<3f", 1, 2, 3)
        ask = {
            "inputs": [bare(12, 3)],
            "outputs": [{"name": "s", "parameters": {"binary_data": False}}, {"name": "y"}],
            "parameters": {"binary_data_output": True},
        }
        text = json.dumps(ask).encode()
        found = await at.infer(text + data, Inference_Header_Content_Length=str(len(text)))
        assert (found.status, found.headers["Content-Type"]) == (200, "application/octet-stream")
        head = int(found.headers[HEADER])
        doc = json.loads(found.body[:head])
        assert [one["name"] for one in doc["outputs"]] == ["s", "y"]
        assert doc["outputs"][0]["data"] == ["0", "1", "2"]
        assert doc["outputs"][1]["parameters"] == {"binary_data_size": 12}
        assert "id" not in doc
        assert found.body[head:] == struct.pack("<3f", 2, 4, 6)


async def test_a_body_that_is_the_tensor_alone(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        found = await at.infer(struct.pack("<2f", 1, 2), Inference_Header_Content_Length="0")
        assert found.status == 200
        assert found.body[int(found.headers[HEADER]) :].startswith(struct.pack("<2f", 2, 4))


@pytest.mark.parametrize("encoding", ["gzip", "deflate", "identity"])
@pytest.mark.parametrize("count", [3, 40_000])
async def test_bodies_may_be_compressed_and_large(nats: NatsServer, tmp_path: Path, encoding: str, count: int) -> None:
    packs: dict[str, Callable[[bytes], bytes]] = {"gzip": gzip.compress, "deflate": zlib.compress, "identity": bytes}
    pack = packs[encoding]
    values = np.arange(count, dtype="<f4")
    async with plugin(nats, tmp_path) as at:
        asked = {"outputs": [{"name": "y"}]}
        as_json = pack(json.dumps({**asked, "inputs": [x(values.tolist())]}).encode())
        found = await at.infer(as_json, Content_Encoding=encoding)
        assert json.loads(found.body)["outputs"][0]["data"] == (values * 2).tolist()
        text = json.dumps({**asked, "inputs": [bare(values.nbytes, count)]}).encode()
        as_bytes = pack(text + values.tobytes())
        again = await at.infer(as_bytes, Content_Encoding=encoding, Inference_Header_Content_Length=str(len(text)))
        assert json.loads(again.body)["outputs"] == json.loads(found.body)["outputs"]


async def test_a_body_above_the_bound_of_json_has_bytes_or_is_413(nats: NatsServer, tmp_path: Path) -> None:
    count = 9 * 1024 * 1024
    text = json.dumps({"inputs": [bare(4 * count, count)]}).encode()
    async with plugin(nats, tmp_path) as at:
        for body, status, words in (
            (text + bytes(4 * count), 400, f"no header {HEADER}"),
            (b'{"x": "' + b" " * 4 * count + b'"}', 413, "at most 33554432"),
        ):
            found = await at.infer(body)
            assert (found.status, words in json.loads(found.body)["error"]) == (status, True)


async def test_a_version_may_be_named_by_its_number_or_by_a_label(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        body = json.dumps({"inputs": [x([1.0])]}).encode()
        for version in ("3", "stable"):
            found = await at.rest("POST", f"/v2/models/twice/versions/{version}/infer", body)
            assert json.loads(found.body)["model_version"] == "3"
        for version, status in (("4", 404), ("9" * 30, 404), ("unknown", 400)):
            assert (await at.rest("POST", f"/v2/models/twice/versions/{version}/infer", body)).status == status


@pytest.mark.parametrize(
    ("path", "body", "headers", "status", "words"),
    [
        ("/v2/models/no/infer", b"{}", {}, 404, "Request for unknown model: 'no' is not found."),
        ("/v2/models/twice/infer", b"{", {}, 400, "JSON Parse error"),
        ("/v2/models/twice/infer", b"{}", {}, 400, 'must have a list of "inputs"'),
        ("/v2/models/twice/infer", b"{}", {HEADER: "-1"}, 400, "must be a whole number"),
        ("/v2/models/twice/infer", b"{}", {"Content-Encoding": "br"}, 415, "use gzip or deflate"),
        ("/v2/models/twice/infer", b"{}", {"Content-Encoding": "gzip"}, 400, "not valid gzip"),
        ("/v2/models/twice", b"", {}, 405, "takes GET"),
        ("/v2/nothing", b"", {}, 404, "There is nothing at"),
        ("/v2/logging", b"", {}, 501, "is not offered"),
        ("/v2/repository/index", b'{"ready": 1}', {}, 400, "must be true or false"),
    ],
)
async def test_errors_are_in_the_protocol_s_shape(
    nats: NatsServer, tmp_path: Path, path: str, body: bytes, headers: dict[str, str], status: int, words: str
) -> None:
    async with plugin(nats, tmp_path) as at:
        found = await at.rest("POST", path, body, headers)
        assert (found.status, found.headers["Content-Type"]) == (status, "application/json")
        doc = json.loads(found.body)
        assert list(doc) == ["error"]
        assert words in doc["error"]


async def test_a_key_sees_and_uses_its_own_models_only(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        other, reader = key(models=("elsewhere",)), key(scopes=("jobs:read",))
        await at.made.publish(other, reader)
        body = json.dumps({"inputs": [x([1.0])]}).encode()
        assert (await at.rest("POST", "/v2/models/twice/infer", body, by=other)).status == 403
        assert (await at.rest("POST", "/v2/models/twice/infer", body, by=reader)).status == 403
        assert json.loads((await at.rest("GET", "/v2/models", by=other)).body) == {"models": []}
        assert json.loads((await at.rest("POST", "/v2/repository/index", by=other)).body) == []
        assert json.loads((await at.rest("GET", "/v2/models/stats", by=other)).body) == {"model_stats": []}
        with pytest.raises(Forbidden):
            await at.grpc("ModelMetadata", messages.ModelRequest(name="twice").SerializeToString(), by=other)


async def test_the_highest_priority_needs_its_scope(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        plain = key(scopes=("jobs:submit",))
        await at.made.publish(plain)
        body = json.dumps({"inputs": [x([1.0])], "parameters": {"priority": 1}}).encode()
        assert (await at.rest("POST", "/v2/models/twice/infer", body, by=plain)).status == 403
        assert (await at.rest("POST", "/v2/models/twice/infer", body)).status == 200


async def test_arrays_are_submitted_as_bytes_and_the_job_is_read_as_any_other(nats: NatsServer, tmp_path: Path) -> None:
    values = np.array([1.0, 2.5], "<f4")
    head = json.dumps({"inputs": [bare(8, 2)], "outputs": [{"name": "y"}]}).encode()
    sent = {HEADER.replace("-", "_"): str(len(head)), "Prefer": "respond-async, wait=60", "Idempotency_Key": "a"}
    async with plugin(nats, tmp_path) as at:
        at.worker.go.clear()
        found = await at.infer(head + values.tobytes(), **sent)
        assert (found.status, found.headers["Preference-Applied"]) == (202, "respond-async")
        job = found.headers["Location"]
        at.worker.go.set()
        ended = await at.made.call("GET", f"{job}/result", key=at.key, headers={"Prefer": "wait=60"})
        assert ended.doc == {"outputs": [2.0, 5.0]}
        again = await at.infer(head + values.tobytes(), **sent)
        assert (again.status, again.headers["Idempotent-Replayed"]) == (200, "true")
        assert json.loads(again.body)["urls"]["self"] == job
        other = await at.infer(head + values.tobytes(), **sent | {HEADER.replace("-", "_"): "0"})
        assert other.status == 422
        soon = {"inputs": [x([1.0])], "parameters": {"timeout": 10_000_000}}
        short = json.loads((await at.infer(soon, Prefer="respond-async")).body)
        begins, ends = (datetime.fromisoformat(short[name]) for name in ("created_at", "deadline_at"))
        assert (ends - begins).total_seconds() == pytest.approx(10, abs=0.01)


async def test_a_submission_is_refused_in_the_protocol_s_shape(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        plain, reader = key(scopes=("jobs:submit",)), key(scopes=("jobs:read",))
        await at.made.publish(plain, reader)
        urgent = json.dumps({"inputs": [x([1.0])], "parameters": {"priority": 1}}).encode()
        later = {"Prefer": "respond-async"}
        for body, by, status in ((urgent, plain, 403), (urgent, reader, 403), (b"{}", plain, 400)):
            refused = await at.rest("POST", "/v2/models/twice/infer", body, later, by=by)
            assert (refused.status, list(json.loads(refused.body))) == (status, ["error"])
        assert (await at.rest("POST", "/v2/models/none/infer", urgent, later)).status == 404
        assert (await at.rest("POST", "/v2/models/twice/infer", urgent, later)).status == 202


async def test_a_timeout_ends_the_wait_with_the_job_s_id(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        at.worker.go.clear()
        found = await at.infer({"inputs": [x([1.0])], "parameters": {"timeout": 50_000}})
        assert found.status == 504
        assert found.headers["X-Signalbox-Job-Id"]
        with pytest.raises(DeadlineExceeded):
            await at.grpc("ModelInfer", message([1.0]), timeout_s=0.05)
        at.worker.go.set()


async def test_health_metadata_configuration_and_readiness(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path, batching=Batching(rows_independent=True)) as at:
        live = await at.rest("GET", "/v2/health/live")
        assert (live.status, json.loads(live.body)) == (200, {"live": True})
        ready = await at.rest("HEAD", "/v2/health/ready?x=1")
        assert (ready.status, json.loads(ready.body)) == (200, {"ready": True})
        server = json.loads((await at.rest("GET", "/v2")).body)
        assert "binary_tensor_data" in server["extensions"]
        metadata = json.loads((await at.rest("GET", "/v2/models/twice")).body)
        assert (metadata["versions"], metadata["platform"]) == (["3"], "tensorflow_savedmodel")
        config = json.loads((await at.rest("GET", "/v2/models/twice/config")).body)
        assert (config["max_batch_size"], config["input"][0]["dims"]) == (32, [])
        assert json.loads((await at.rest("GET", "/v2/models/twice/versions/3/ready")).body)["ready"] is True
        index = json.loads((await at.rest("POST", "/v2/repository/index", b'{"ready": true}')).body)
        assert index == [{"name": "twice", "version": "3", "state": "READY", "reason": ""}]
        assert (await at.rest("GET", "/v2/models/no/ready")).status == 404
        anybodys = at.dialect.rest.keyless(Request("GET", "/v2/models/twice/ready", {}, b""))
        assert anybodys is not None
        assert (anybodys.status, json.loads(anybodys.body)) == (200, {"name": "twice", "ready": True})


async def test_while_nats_is_away_no_model_is_ready(own_nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(own_nats, tmp_path) as at:
        assert (await at.rest("GET", "/v2/models/twice/ready")).status == 200
        await own_nats.kill()
        async with asyncio.timeout(60):
            while at.made.gateway.is_healthy:
                await at.infer({"inputs": [x([1.0])]})
        for path in ("/v2/models/twice/ready", "/v2/models/twice/versions/3/ready"):
            refused = await at.rest("GET", path)
            assert (refused.status, json.loads(refused.body)) == (503, {"error": "NATS cannot be reached."})
        (entry,) = json.loads((await at.rest("POST", "/v2/repository/index")).body)
        assert entry["state"] == "UNAVAILABLE"
        reply = await at.grpc("ModelReady", messages.ModelRequest(name="twice").SerializeToString())
        assert not messages.ModelReadyResponse.FromString(reply).ready
        back = asyncio.Event()
        at.made.bus.on_reconnect(back.set)
        await own_nats.restart()
        await asyncio.wait_for(back.wait(), 60)


async def test_what_could_not_run_now_says_so(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path, is_enabled=False) as at:
        refused = await at.rest("GET", "/v2/models/twice/ready")
        assert (refused.status, json.loads(refused.body)) == (503, {"error": "The model is disabled."})
        (entry,) = json.loads((await at.rest("POST", "/v2/repository/index")).body)
        assert (entry["state"], entry["reason"]) == ("UNAVAILABLE", "The model is disabled.")
        assert json.loads((await at.rest("POST", "/v2/repository/index", b'{"ready": true}')).body) == []
        assert (await at.infer({"inputs": [x([1.0])]})).status == 503
        with pytest.raises(NotServing):
            await at.grpc("ModelInfer", message([1.0]))
        reply = await at.grpc("ModelReady", messages.ModelRequest(name="twice").SerializeToString())
        assert not messages.ModelReadyResponse.FromString(reply).ready


async def test_a_model_s_bound_is_the_caller_s_413(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path, limits=limits(max_payload_bytes=7)) as at:
        assert (await at.infer({"inputs": [x([1.0, 2.0])]})).status == 413
        with pytest.raises(TooLarge):
            await at.grpc("ModelInfer", message([1.0, 2.0]))


async def test_statistics_count_what_an_account_inferred(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        await at.infer({"inputs": [x([1.0, 2.0])]})
        await at.grpc("ModelInfer", message([1.0]))
        (one,) = json.loads((await at.rest("GET", "/v2/models/twice/stats")).body)["model_stats"]
        assert (one["version"], one["inference_count"]) == ("3", 3)
        assert one["inference_stats"]["success"]["count"] == 2
        for asked in (messages.ModelRequest(), messages.ModelRequest(name="twice", version="3")):
            found = messages.ModelStatisticsResponse.FromString(
                await at.grpc("ModelStatistics", asked.SerializeToString())
            )
            assert found.model_stats[0].inference_stats.success.count == 2


def message(values: Sequence[float], model: str = "twice", *extra: bytes) -> bytes:
    """A ModelInferRequest with raw contents."""
    data = struct.pack(f"<{len(values)}f", *values)
    shape = protowire.field(3, protowire.varint(len(values)))
    tensor = protowire.field(1, b"x") + protowire.field(2, b"FP32") + shape
    parts = [protowire.field(1, model.encode()), protowire.field(3, b"7"), protowire.field(5, tensor)]
    return b"".join([*parts, *extra, protowire.field(7, data)])


async def test_grpc_infers_raw(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        asked = protowire.field(6, protowire.field(1, b"y"))
        reply = await at.grpc("ModelInfer", message([1.5, 2.0], "twice", asked))
        found = {field.number: bytes(field.data) for field in protowire.WireReader("reply").fields(memoryview(reply))}
        assert (found[1], found[2], found[3]) == (b"twice", b"3", b"7")
        assert found[6] == struct.pack("<2f", 3, 4)
        with pytest.raises(NotFound, match="unknown model"):
            await at.grpc("ModelInfer", message([1.0], "no"))
        with pytest.raises(InvalidInput, match='no output "z"'):
            await at.grpc("ModelInfer", message([1.0], "twice", protowire.field(6, protowire.field(1, b"z"))))


async def test_grpc_shows_what_rest_shows(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path, batching=Batching(rows_independent=True)) as at:
        asked = messages.ModelRequest(name="twice", version="3").SerializeToString()
        opened = at.dialect.grpc.open_methods()
        assert messages.ServerLiveResponse.FromString(opened[f"{SERVICE}ServerLive"]()).live
        assert messages.ServerReadyResponse.FromString(opened[f"{SERVICE}ServerReady"]()).ready
        assert messages.ServerMetadataResponse.FromString(await at.grpc("ServerMetadata")).name == "signalbox"
        assert messages.ModelReadyResponse.FromString(await at.grpc("ModelReady", asked)).ready
        unknown = messages.ModelRequest(name="no").SerializeToString()
        assert not messages.ModelReadyResponse.FromString(await at.grpc("ModelReady", unknown)).ready
        metadata = messages.ModelMetadataResponse.FromString(await at.grpc("ModelMetadata", asked))
        assert [(one.name, one.datatype) for one in metadata.outputs] == [("y", "FP32"), ("s", "BYTES")]
        config = messages.ModelConfigResponse.FromString(await at.grpc("ModelConfig", asked)).config
        assert (config.name, config.max_batch_size) == ("twice", 32)
        index = messages.RepositoryIndexResponse.FromString(await at.grpc("RepositoryIndex"))
        assert [(one.name, one.state) for one in index.models] == [("twice", "READY")]


async def test_grpc_refuses_what_is_not_offered_and_what_is_no_message(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        for name in ("ModelStreamInfer", "CudaSharedMemoryRegister", "TraceSetting"):
            with pytest.raises(Unimplemented, match=f"{name} is not offered"):
                await at.grpc(name)
        with pytest.raises(InvalidRequest, match="no message of this method"):
            await at.grpc("ModelMetadata", b"\xff")
        with pytest.raises(TooLarge):
            await at.grpc("ModelMetadata", bytes(65_537))


async def test_an_encoding_that_is_not_taken_is_told(nats: NatsServer, tmp_path: Path) -> None:
    async with plugin(nats, tmp_path) as at:
        with pytest.raises(UnsupportedEncoding):
            await at.dialect.rest.answer(
                Request("POST", "/v2/models/twice/infer", {"Content-Encoding": "br"}, b"{}"), at.key.stored
            )
