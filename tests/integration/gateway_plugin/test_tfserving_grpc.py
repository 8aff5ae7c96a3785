"""TensorFlow Serving's gRPC services over the upstream, with a real NATS and a worker that is a script."""

import asyncio
import struct
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, TypeVar

import grpc.aio
import pytest
from google.protobuf.message import Message
from msgspec.structs import replace

from gateway_plugin.admission.limits import KeyLimits
from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.protobuf import tensorproto
from gateway_plugin.codec.protobuf.protowire import WireReader, field, number
from gateway_plugin.proto.example_pb2 import Example
from gateway_plugin.proto.serving_pb2 import (
    ClassificationResponse,
    GetModelMetadataRequest,
    GetModelMetadataResponse,
    GetModelStatusRequest,
    GetModelStatusResponse,
    InferenceTask,
    ModelSpec,
    ModelVersionStatus,
    MultiInferenceResponse,
    RegressionResponse,
    SignatureDefMap,
)
from gateway_plugin.upstream.callers import Callers
from gateway_plugin.upstream.grpc import GrpcUpstream
from signalbox.wire.modeldocs import Access, Model, Signature, TensorSpec, Version
from signalbox.wire.splits import Split, gets_candidate
from signalbox.wire.tensors import Tensor
from tests.rigs.gateway import HALF_PLUS_TWO, Key, Rig, ScriptedWorker, holds, key, model, rig
from tests.rigs.natsserver import NatsServer

PREDICTION = "/tensorflow.serving.PredictionService"
MODEL = "/tensorflow.serving.ModelService"
TEXTS = TensorSpec(dtype="string", shape=(-1,))
SCORES = TensorSpec(dtype="float32", shape=(-1, 2))
CLASSIFY = Signature(inputs={"inputs": TEXTS}, outputs={"classes": TEXTS, "scores": SCORES})
REGRESS = Signature(inputs={"inputs": TEXTS}, outputs={"outputs": SCORES})
LIMIT_S = 60
M = TypeVar("M", bound=Message)


def examined() -> Model:
    """A model of examples, whose result is twice their ``x``."""
    signatures = {"serving_default": HALF_PLUS_TWO, "classify": CLASSIFY, "regress": REGRESS}
    return model("scorer", versions=(Version(version=7, path="/nowhere", signatures=signatures),), default_version=7)


def score(inputs: Sequence[Tensor]) -> list[Tensor]:
    (given,) = inputs
    found = [Example.FromString(each).features.feature["x"].float_list.value[0] for each in split_strings(given.data)]
    count = len(found)
    labels = b"".join(struct.pack("<I", 3) + word for _ in found for word in (b"low", b"top"))
    scores = struct.pack(f"<{2 * count}f", *(value for x in found for value in (x, 2 * x)))
    return [
        Tensor("classes", "string", (count, 2), labels),
        Tensor("scores", "float32", (count, 2), scores),
        Tensor("outputs", "float32", (count,), struct.pack(f"<{count}f", *(2 * x for x in found))),
    ]


class Client:
    """Calls the services with a key."""

    def __init__(self, channel: grpc.aio.Channel, mine: Key, made: Rig) -> None:
        self.rig = made
        self._channel = channel
        self._metadata = (("authorization", f"Bearer {mine.text}"),)

    def start(self, method: str, message: bytes, timeout_s: float = LIMIT_S, **metadata: str) -> Any:
        """The call; awaited, it is the reply."""
        call = self._channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        return call(message, metadata=(*self._metadata, *metadata.items()), timeout=timeout_s)

    async def ask(self, kind: type[M], method: str, message: bytes) -> M:
        return kind.FromString(await self.start(method, message))

    async def refusal(self, method: str, message: bytes, timeout_s: float = LIMIT_S) -> grpc.aio.AioRpcError:
        with pytest.raises(grpc.aio.AioRpcError) as caught:
            await self.start(method, message, timeout_s)
        return caught.value


@asynccontextmanager
async def upstream(nats: NatsServer, folder: Path) -> AsyncIterator[Client]:
    mine = key()
    async with rig(nats.url, folder) as made:
        await made.publish(model(labels={"stable": 1}), examined(), mine)
        gateway = made.gateway
        server = GrpcUpstream(
            gateway.methods,
            {},
            Callers(gateway.keyring, gateway.tokens, charge=KeyLimits().charge),
            gateway.bodies,
            gateway.settings,
            is_healthy=lambda: True,
        )
        port = await server.bind("127.0.0.1:0")
        try:
            async with grpc.aio.insecure_channel(f"127.0.0.1:{port}") as channel:
                yield Client(channel, mine, made)
        finally:
            await server.stop(1)


@pytest.fixture
async def client(nats: NatsServer, tmp_path: Path) -> AsyncIterator[Client]:
    async with upstream(nats, tmp_path) as made:
        yield made


def spec(name: str = "half", signature: str = "", **version: Any) -> bytes:
    made = ModelSpec(name=name, signature_name=signature, version_label=version.get("label"))
    if "version" in version:
        made.version.value = version["version"]
    return field(1, made.SerializeToString())


def floats(name: str, *values: float) -> bytes:
    """An input."""
    message = b"".join(
        tensorproto.write(Tensor("", "float32", (len(values),), struct.pack(f"<{len(values)}f", *values)))
    )
    return field(2, field(1, name.encode()) + field(2, message))


def outputs(reply: bytes) -> tuple[ModelSpec, dict[str, Tensor]]:
    """What a PredictResponse holds."""
    reader, found, effective = WireReader("PredictResponse"), {}, ModelSpec()
    for part in reader.fields(memoryview(reply)):
        if part.number == 2:
            effective.MergeFromString(bytes(reader.message(part)))
        else:
            name, value = reader.entry(part)
            assert value is not None
            found[name] = tensorproto.read(reader, name, reader.message(value), 1 << 20)
    return effective, found


def examples(*values: float) -> bytes:
    """The input of Classify, Regress and MultiInference."""
    each = []
    for value in values:
        made = Example()
        made.features.feature["x"].float_list.value.append(value)
        each.append(field(1, made.SerializeToString()))
    return field(2, field(1, b"".join(each)))


async def test_predict_gives_the_outputs_the_version_and_the_job(client: Client) -> None:
    y = Tensor("y", "float32", (2,), struct.pack("<2f", 2.5, 3.0))
    async with ScriptedWorker(client.rig.bus, "half"):
        for asked in (spec(), spec(version=1), spec(label="stable"), spec(signature="serving_default")):
            call = client.start(f"{PREDICTION}/Predict", asked + floats("x", 1.0, 2.0) + field(3, b"y"))
            effective, found = outputs(await call)
            assert found == {"y": y}
            assert (effective.name, effective.version.value, effective.signature_name) == ("half", 1, "serving_default")
            headers = dict(await call.initial_metadata())
            assert len(headers["x-signalbox-job-id"]) == 36
            assert headers["server-timing"].startswith("queue;dur=")


async def test_calls_are_split_as_those_over_rest_are(client: Client) -> None:
    versions = tuple(replace(model().versions[0], version=number) for number in (1, 2))
    split = Split(candidate=2, weight=0.5, header="User")
    async with ScriptedWorker(client.rig.bus, "half", versions=(1, 2)):
        await client.rig.publish(model(versions=versions, labels={"stable": 1}, splits=(split,)))
        serving = client.rig.gateway._serving
        await holds(serving, lambda: (record := serving.get("half")) and record.candidates == (2,))
        seen = set()
        for user in map(str, range(8)):
            wanted = 2 if gets_candidate(split, "half", "", {"User": user}) else 1
            for asked, version in ((spec(), wanted), (spec(version=1), 1), (spec(label="stable"), 1)):
                message = asked + floats("x", 1.0)
                effective, _ = outputs(await client.start(f"{PREDICTION}/Predict", message, user=user))
                assert effective.version.value == version
            seen.add(wanted)
        assert seen == {1, 2}


async def test_only_the_outputs_of_the_filter_come_back(client: Client) -> None:
    one = Example()
    one.features.feature["x"].float_list.value.append(1.5)
    data = one.SerializeToString()
    message = b"".join(tensorproto.write(Tensor("", "string", (1,), struct.pack("<I", len(data)) + data)))
    asked = spec("scorer", "classify") + field(2, field(1, b"inputs") + field(2, message)) + field(3, b"scores")
    async with ScriptedWorker(client.rig.bus, "scorer", score, versions=(7,)):
        _, found = outputs(await client.start(f"{PREDICTION}/Predict", asked))
    assert found == {"scores": Tensor("scores", "float32", (1, 2), struct.pack("<2f", 1.5, 3.0))}


async def test_a_large_tensor_goes_both_ways_through_threads_and_by_reference(client: Client) -> None:
    values = [float(n) for n in range(400_000)]
    async with ScriptedWorker(client.rig.bus, "half"):
        reply = await client.start(f"{PREDICTION}/Predict", spec() + floats("x", *values))
    found = WireReader("PredictResponse")
    (first,) = (part for part in found.fields(memoryview(reply)) if part.number == 1)
    _, value = found.entry(first)
    assert value is not None
    y = tensorproto.read(found, "y", found.message(value), 1 << 22)
    assert y.data == struct.pack("<400000f", *(value / 2 + 2 for value in values))


@pytest.mark.parametrize(
    ("message", "code", "words"),
    [
        (b"\x0a", grpc.StatusCode.INVALID_ARGUMENT, "The PredictRequest is malformed"),
        (b"", grpc.StatusCode.INVALID_ARGUMENT, "Missing ModelSpec"),
        (spec(""), grpc.StatusCode.INVALID_ARGUMENT, "ModelSpec has no name specified"),
        (spec("nobody"), grpc.StatusCode.NOT_FOUND, "Servable not found for request: Latest(nobody)"),
        (spec(version=9), grpc.StatusCode.NOT_FOUND, "Servable not found for request: Specific(half, 9)"),
        (spec(signature="no"), grpc.StatusCode.FAILED_PRECONDITION, 'Serving signature key "no" not found. '),
        (spec(label="no"), grpc.StatusCode.INVALID_ARGUMENT, "Unrecognized servable version label: no"),
        (spec() + floats("z", 1.0), grpc.StatusCode.INVALID_ARGUMENT, "input tensor alias not found in signature: z"),
    ],
)
async def test_what_is_wrong_has_tensorflow_serving_s_status_and_its_words_first(
    client: Client, message: bytes, code: grpc.StatusCode, words: str
) -> None:
    error = await client.refusal(f"{PREDICTION}/Predict", message)
    assert error.code() is code
    assert str(error.details()).startswith(words)


async def test_the_caller_s_deadline_ends_the_job(client: Client) -> None:
    error = await client.refusal(f"{PREDICTION}/Predict", spec() + floats("x", 1.0), timeout_s=0.5)
    assert error.code() is grpc.StatusCode.DEADLINE_EXCEEDED


async def test_classify_regress_and_both_at_once_give_results(client: Client) -> None:
    async with ScriptedWorker(client.rig.bus, "scorer", score, versions=(7,)):
        classified = await client.ask(
            ClassificationResponse, f"{PREDICTION}/Classify", spec("scorer", "classify") + examples(1.5, 4.0)
        )
        regressed = await client.ask(
            RegressionResponse, f"{PREDICTION}/Regress", spec("scorer", "regress") + examples(1.5, 4.0)
        )
        tasks = b"".join(
            field(
                1,
                InferenceTask(
                    model_spec=ModelSpec(name="scorer", signature_name=verb), method_name=f"tensorflow/serving/{verb}"
                ).SerializeToString(),
            )
            for verb in ("classify", "regress")
        )
        both = await client.ask(MultiInferenceResponse, f"{PREDICTION}/MultiInference", tasks + examples(1.5, 4.0))
    pairs = [[(c.label, c.score) for c in each.classes] for each in classified.result.classifications]
    assert pairs == [[("low", 1.5), ("top", 3.0)], [("low", 4.0), ("top", 8.0)]]
    assert [each.value for each in regressed.result.regressions] == [3.0, 8.0]
    assert classified.model_spec.version.value == regressed.model_spec.version.value == 7
    assert (classified.model_spec.signature_name, regressed.model_spec.signature_name) == ("classify", "regress")
    first, second = both.results
    assert (first.classification_result, first.model_spec) == (classified.result, classified.model_spec)
    assert (second.regression_result, second.model_spec) == (regressed.result, regressed.model_spec)


async def test_what_one_value_stands_for_counts_as_bytes_of_the_account_while_the_call_waits(client: Client) -> None:
    held = client.rig.gateway.bodies
    shape = field(2, field(2, number(1, 100_000)))
    constant = field(2, field(1, b"x") + field(2, number(1, 1) + shape + field(5, struct.pack("<f", 1.0))))
    async with ScriptedWorker(client.rig.bus, "half") as worker:
        worker.go.clear()
        call = client.start(f"{PREDICTION}/Predict", spec() + constant)
        await asyncio.wait_for(worker.claimed.wait(), LIMIT_S)
        assert held.held > 400_000
        worker.go.set()
        await call
    assert held.held == 0


async def test_a_failed_task_fails_the_whole_request(client: Client) -> None:
    task = InferenceTask(model_spec=ModelSpec(name="scorer"), method_name="tensorflow/serving/predict")
    message = field(1, task.SerializeToString()) + examples(1.0)
    error = await client.refusal(f"{PREDICTION}/MultiInference", message)
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert "Unsupported signature method_name: tensorflow/serving/predict" in str(error.details())


async def test_status_has_the_states_of_versions(client: Client) -> None:
    async with ScriptedWorker(client.rig.bus, "half"):
        for asked in (ModelSpec(name="half"), ModelSpec(name="half", version_label="stable")):
            message = GetModelStatusRequest(model_spec=asked).SerializeToString()
            found = await client.ask(GetModelStatusResponse, f"{MODEL}/GetModelStatus", message)
            (only,) = found.model_version_status
            assert (only.version, only.state) == (1, ModelVersionStatus.AVAILABLE)
            assert (only.status.error_code, only.status.error_message) == (0, "")
    for name in ("nobody", ""):
        unknown = GetModelStatusRequest(model_spec=ModelSpec(name=name)).SerializeToString()
        error = await client.refusal(f"{MODEL}/GetModelStatus", unknown)
        assert error.code() is grpc.StatusCode.NOT_FOUND
        assert str(error.details()).strip() == f"Could not find any versions of model {name}".strip()


async def test_metadata_has_the_signatures_in_the_type_that_clients_unpack(client: Client) -> None:
    asked = GetModelMetadataRequest(model_spec=ModelSpec(name="half"), metadata_field=["signature_def"])
    found = await client.ask(GetModelMetadataResponse, f"{PREDICTION}/GetModelMetadata", asked.SerializeToString())
    assert (found.model_spec.name, found.model_spec.version.value) == ("half", 1)
    packed = found.metadata["signature_def"]
    assert packed.type_url == "type.googleapis.com/tensorflow.serving.SignatureDefMap"
    signature = SignatureDefMap.FromString(packed.value).signature_def["serving_default"]
    assert signature.method_name == "tensorflow/serving/predict"
    x = signature.inputs["x"]
    assert (x.name, x.dtype, [dim.size for dim in x.tensor_shape.dim]) == ("x:0", 1, [-1])


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ([], "GetModelMetadataRequest must specify at least one metadata_field. "),
        (["signature_def", "other"], "Metadata field other is not supported. "),
    ],
)
async def test_metadata_asks_for_signatures_and_nothing_else(client: Client, fields: list[str], words: str) -> None:
    asked = GetModelMetadataRequest(model_spec=ModelSpec(name="half"), metadata_field=fields)
    error = await client.refusal(f"{PREDICTION}/GetModelMetadata", asked.SerializeToString())
    assert error.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert str(error.details()).startswith(words)


@pytest.mark.parametrize(
    ("method", "instead"),
    [("/tensorflow.serving.SessionService/SessionRun", "Predict")],
)
async def test_what_is_not_served_says_why_and_what_to_use(client: Client, method: str, instead: str) -> None:
    error = await client.refusal(method, number(9, 1))
    assert error.code() is grpc.StatusCode.UNIMPLEMENTED
    assert instead in str(error.details())


async def test_a_key_for_other_models_or_that_may_not_submit_is_refused(nats: NatsServer, tmp_path: Path) -> None:
    async with upstream(nats, tmp_path) as made:
        for limited in (key(models=("other",)), key(scopes=("jobs:read",))):
            await made.rig.publish(limited)
            client = Client(made._channel, limited, made.rig)
            error = await client.refusal(f"{PREDICTION}/Predict", spec() + floats("x", 1.0))
            assert error.code() is grpc.StatusCode.PERMISSION_DENIED


async def test_a_closed_model_is_to_other_keys_as_if_it_did_not_exist(client: Client) -> None:
    await client.rig.publish(model("cl", access=Access(is_open=False)))
    status = GetModelStatusRequest(model_spec=ModelSpec(name="{}")).SerializeToString()
    metadata = GetModelMetadataRequest(model_spec=ModelSpec(name="{}"), metadata_field=["signature_def"])
    for method, message in (
        (f"{PREDICTION}/Predict", spec("{}") + floats("x", 1.0)),
        (f"{PREDICTION}/GetModelMetadata", metadata.SerializeToString()),
        (f"{MODEL}/GetModelStatus", status),
    ):
        # Names of one length, so that the messages' lengths stay right.
        errors = [await client.refusal(method, message.replace(b"{}", name)) for name in (b"cl", b"zz")]
        told = [
            (one.code(), str(one.details()).replace(name, "{}")) for one, name in zip(errors, ("cl", "zz"), strict=True)
        ]
        assert told[0] == told[1]
        assert told[0][0] is grpc.StatusCode.NOT_FOUND


async def test_the_account_s_metrics_count_calls_of_both_entry_points(client: Client) -> None:
    mine = key(account_id="acme")
    await client.rig.publish(mine)
    caller = Client(client._channel, mine, client.rig)
    async with ScriptedWorker(client.rig.bus, "half"):
        await caller.start(f"{PREDICTION}/Predict", spec() + floats("x", 1.0))
        await client.rig.call("POST", "/v1/models/half:predict", {"instances": [1.0]}, key=mine)
    await caller.refusal(f"{PREDICTION}/Predict", spec())
    page = (await client.rig.call("GET", "/monitoring/prometheus/metrics", key=mine)).body.decode()
    assert ':tensorflow:serving:request_count{model_name="half",status="OK"} 2' in page
    assert ':tensorflow:serving:request_count{model_name="half",status="INVALID_ARGUMENT"} 1' in page
    for labels in ('API="Predict",entrypoint="GRPC"', 'API="predict",entrypoint="REST"'):
        assert f':tensorflow:serving:request_latency_count{{model_name="half",{labels}}} 1' in page
