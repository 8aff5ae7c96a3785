"""The same model and inputs in every dialect: the answers are the same, bit for bit, where a dialect has the types.

gRPC's messages are made with the product's own codec; what published clients make of them: ``test_clients_*``.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import grpc
import numpy as np
import pytest

from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.protobuf import tensorproto
from gateway_plugin.codec.protobuf.protowire import WireReader, field
from gateway_plugin.proto.serving_pb2 import GetModelMetadataResponse, SignatureDefMap
from signalbox.wire.tensors import Tensor
from tests.conformance.clients import samples
from tests.conformance.clients.steps import tensor
from tests.conformance.conftest import KINDS as FRONTS
from tests.conformance.servedmodels import Served
from tests.rigs.models import DTYPES

KINDS = FRONTS
Arrays = Mapping[str, Any]
"""Tensors by name: numpy's arrays, strings as objects."""
LIMIT_S: Final = 60
ROOM_BYTES: Final = 1 << 24
WORDS: Final = {"float16": "FP16", "bfloat16": "BF16", "float32": "FP32", "float64": "FP64", "object": "BYTES"}
"""The Open Inference Protocol's names of dtypes, but for those that are numpy's in capitals."""
ARRAYS: Final = {**{word: name for name, word in WORDS.items() if name != "object"}, "BOOL": "bool"}
NO_JSON: Final = ("float16", "bfloat16", "complex64", "complex128")
"""Dtypes that have no form in the Open Inference Protocol's JSON."""


class Case(NamedTuple):
    """One call. signature: empty = the default one."""

    model: str
    inputs: Arrays
    signature: str = ""

    @property
    def has_json(self) -> bool:
        """Whether the Open Inference Protocol's JSON can say it."""
        return not any(array.dtype.name in NO_JSON for array in self.inputs.values())


def cases() -> Iterator[Any]:
    """Each dtype's limits, what is no number, bytes that are no text, and models that compute."""
    every = samples.mirrored()
    for name in DTYPES:
        yield pytest.param(Case(f"mirror_{name}", {"x": every[name]}), id=name)
        if name in {"bfloat16", *samples.FLOATS}:
            other = samples.not_finite(every[name].dtype)
            yield pytest.param(Case(f"mirror_{name}", {"x": other}), id=f"{name} not finite")
    yield pytest.param(Case("mirror", {f"x_{name}": every[name] for name in DTYPES}), id="every dtype at once")
    yield pytest.param(Case("half", {"x": np.array([0.1, -0.0, 1e38, 1e-45], np.float32)}), id="half")
    yield pytest.param(Case("shout", {"text": samples.strings([b"\xff\0", b"quiet", b""])}), id="no text")
    two = {"a": np.array([[1, 2], [3, 4]], np.int32), "s": samples.strings([b"a", "\u00fc".encode()])}
    yield pytest.param(Case("pair", two), id="two inputs")
    thirds = (np.arange(24, dtype=np.float32) / 3).reshape(3, 8)
    yield pytest.param(Case("weigh", {"x": thirds}), id="rounded sums")


@pytest.mark.parametrize("case", list(cases()))
def test_every_dialect_gives_the_same_answer(served: Served, case: Case) -> None:
    answer = serving_grpc(served, case)
    expected = bits(answer)
    assert expected
    assert bits(inference_grpc(served, case)) == expected
    assert bits(inference_binary(served, case)) == expected
    assert bits(serving_columns(served, case, answer)) == expected
    assert bits(serving_rows(served, case, answer)) == expected
    if case.has_json:
        assert bits(inference_json(served, case)) == expected


@pytest.mark.parametrize(
    ("case", "want"),
    [
        pytest.param(Case("defaults", {"x": np.array([1, 2], np.float32)}), [2.0, 5.0], id="two defaults"),
        pytest.param(
            Case("defaults", {"x": np.array([1, 2], np.float32), "scale": np.array(3, np.float32)}),
            [3.0, 7.0],
            id="one default",
        ),
        pytest.param(Case("defaults", {}, "constant"), [1.0, 2.0], id="no inputs"),
    ],
)
def test_over_grpc_defaults_stand_for_what_is_left_out_and_no_input_is_needed(
    served: Served, case: Case, want: list[float]
) -> None:
    assert serving_grpc(served, case)["y"].tolist() == want
    if not case.inputs:
        for call_it in (inference_grpc, inference_json):
            assert call_it(served, case)["y"].tolist() == want


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"inputs": {"x": [1.0, 2.0]}}, "Missing named input: scale"),
        ({"inputs": {}, "signature_name": "constant"}, "Failed to get input map for signature: constant"),
    ],
)
def test_over_rest_every_input_is_sent(served: Served, body: dict[str, Any], words: str) -> None:
    got = served.client.post("/v1/models/defaults:predict", json=body)
    assert got.status_code == 400
    assert words in got.json()["error"]


TEXT: Final = samples.strings([b"a b", b"c"])
REFUSALS: Final = [
    (Case("composite", {"text": TEXT}, "ragged"), 'The output "words" is a ragged tensor'),
    (Case("composite", {"text": TEXT}, "sparse"), 'The output "words" is a sparse tensor'),
    (Case("sparse_input", {"s": np.array([1], np.float32)}, "sums"), 'The input "s" is a sparse tensor'),
]


@pytest.mark.parametrize(("case", "words"), REFUSALS, ids=lambda value: getattr(value, "signature", ""))
def test_what_is_no_dense_tensor_is_refused_by_name_and_kind_whatever_the_data(
    served: Served, case: Case, words: str
) -> None:
    for call_it in (serving_grpc, inference_grpc):
        with pytest.raises(grpc.RpcError) as caught:
            call_it(served, case)
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert words in str(caught.value.details())
    columns = {name: samples.plain(array) for name, array in case.inputs.items()}
    bodies = {
        f"/v1/models/{case.model}:predict": {"inputs": columns, "signature_name": case.signature},
        "/v1/jobs": {"model": case.model, "inputs": columns, "signature_name": case.signature},
        f"/v2/models/{case.model}/infer": {
            "inputs": [{**described(name, array), "data": columns[name]} for name, array in case.inputs.items()],
            "parameters": {"signature_name": case.signature},
        },
    }
    for path, body in bodies.items():
        got = served.client.post(path, json=body)
        assert (got.status_code, words in got.text.replace('\\"', '"')) == (400, True), got.text


@pytest.mark.parametrize("signature", ["", "ragged", "sparse"])
def test_beside_what_is_no_dense_tensor_the_rest_is_served(served: Served, signature: str) -> None:
    case = Case("composite", {"text": TEXT}, signature)
    assert serving_grpc(served, case, "n")["n"].tolist() == [3, 1]
    body = {
        "inputs": [{**described("text", TEXT), "data": ["a b", "c"]}],
        "outputs": [{"name": "n"}],
        "parameters": {"signature_name": signature},
    }
    assert post(served, "/v2/models/composite/infer", json.dumps(body).encode())["outputs"][0]["data"] == [3, 1]


def test_the_metadata_of_what_is_no_dense_tensor_says_what_it_is_made_of(served: Served) -> None:
    found = served.client.get("/v1/models/composite/metadata").json()["metadata"]["signature_def"]["signature_def"]
    ragged, sparse = (found[name]["outputs"]["words"] for name in ("ragged", "sparse"))
    assert ragged["dtype"] == sparse["dtype"] == "DT_STRING"
    assert ragged["composite_tensor"]["type_spec"] == {"type_spec_class": "RAGGED_TENSOR_SPEC"}
    assert len(ragged["composite_tensor"]["components"]) == 2
    assert set(sparse["coo_sparse"]) == {"values_tensor_name", "indices_tensor_name", "dense_shape_tensor_name"}
    asked = field(1, field(1, b"composite")) + field(2, b"signature_def")
    packed = GetModelMetadataResponse.FromString(
        call(served, "/tensorflow.serving.PredictionService/GetModelMetadata", asked)
    ).metadata["signature_def"]
    reported = SignatureDefMap.FromString(packed.value).signature_def["sparse"].outputs["words"]
    assert reported.coo_sparse.values_tensor_name == sparse["coo_sparse"]["values_tensor_name"]
    for path in ("/v2/models/composite", "/v2/models/sparse_input/config", "/v1/models/sparse_input/metadata"):
        assert served.client.get(path).status_code == 200


def bits(found: Arrays) -> dict[str, Any]:
    """Every bit of an answer."""
    return {name: tensor(array) for name, array in found.items()}


# ------------------------------------------------------------------ TensorFlow Serving


def serving_columns(served: Served, case: Case, like: Arrays) -> Arrays:
    body = {"inputs": {name: samples.plain(array) for name, array in case.inputs.items()}}
    found = post(served, f"/v1/models/{case.model}:predict", json.dumps(body).encode())["outputs"]
    named = found if len(like) > 1 else dict.fromkeys(like, found)
    return {name: samples.like(array, named[name]) for name, array in like.items()}


def serving_rows(served: Served, case: Case, like: Arrays) -> Arrays:
    columns = {name: samples.plain(array) for name, array in case.inputs.items()}
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    found = post(served, f"/v1/models/{case.model}:predict", json.dumps({"instances": rows}).encode())["predictions"]
    return {
        name: samples.like(array, [row[name] for row in found] if len(like) > 1 else found)
        for name, array in like.items()
    }


def serving_grpc(served: Served, case: Case, *outputs: str) -> Arrays:
    entries = [
        field(2, field(1, name.encode()) + field(2, b"".join(tensorproto.write(given(name, array)))))
        for name, array in case.inputs.items()
    ]
    spec = field(1, case.model.encode()) + field(3, case.signature.encode())
    request = field(1, spec) + b"".join(entries) + b"".join(field(3, name.encode()) for name in outputs)
    reader = WireReader("PredictResponse")
    found = {}
    for each in reader.fields(memoryview(call(served, "/tensorflow.serving.PredictionService/Predict", request))):
        if each.number == 1:
            key, value = (part.data for part in reader.fields(each.data))
            name = bytes(key).decode()
            found[name] = array_of(tensorproto.read(reader, name, value, ROOM_BYTES))
    return found


# ------------------------------------------------------------------ Open Inference Protocol


def inference_json(served: Served, case: Case) -> Arrays:
    inputs = [{**described(name, array), "data": samples.plain(array.ravel())} for name, array in case.inputs.items()]
    body = {"inputs": inputs, "parameters": {"signature_name": case.signature}}
    found = post(served, f"/v2/models/{case.model}/infer", json.dumps(body).encode())
    return {one["name"]: shaped(one, one["data"]) for one in found["outputs"]}


def shaped(described: Mapping[str, Any], values: list[Any]) -> Any:
    """Elements that came as JSON, as an array."""
    word = described["datatype"]
    if word == "BYTES":
        return samples.strings([samples.octets(one) for one in values]).reshape(described["shape"])
    return np.array(values, ARRAYS.get(word, word.lower())).reshape(described["shape"])


def inference_binary(served: Served, case: Case) -> Arrays:
    parts = [given(name, array).data for name, array in case.inputs.items()]
    inputs = [
        {**described(name, array), "parameters": {"binary_data_size": len(part)}}
        for (name, array), part in zip(case.inputs.items(), parts, strict=True)
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    headers = {"Inference-Header-Content-Length": str(len(head))}
    got = served.client.post(f"/v2/models/{case.model}/infer", content=head + b"".join(parts), headers=headers)
    assert got.status_code == 200, got.text
    size = int(got.headers["inference-header-content-length"])
    rest, found = got.content[size:], {}
    for one in json.loads(got.content[:size])["outputs"]:
        length = one["parameters"]["binary_data_size"]
        found[one["name"]] = raw(one["name"], one["datatype"], one["shape"], rest[:length])
        rest = rest[length:]
    assert not rest
    return found


def inference_grpc(served: Served, case: Case) -> Arrays:
    tensors = [given(name, array) for name, array in case.inputs.items()]
    parts = [
        field(1, one["name"].encode()) + field(2, one["datatype"].encode()) + field(3, bytes(one["shape"]))
        for one in (described(name, array) for name, array in case.inputs.items())
    ]
    request = field(1, case.model.encode()) + b"".join(field(5, part) for part in parts)
    if case.signature:
        request += field(4, field(1, b"signature_name") + field(2, field(3, case.signature.encode())))
    request += b"".join(field(7, one.data) for one in tensors)
    reader = WireReader("ModelInferResponse")
    outputs, contents = [], []
    for each in reader.fields(memoryview(call(served, "/inference.GRPCInferenceService/ModelInfer", request))):
        if each.number == 5:
            outputs.append({part.number: bytes(part.data) for part in reader.fields(each.data)})
        if each.number == 6:
            contents.append(bytes(each.data))
    return {
        one[1].decode(): raw(one[1].decode(), one[2].decode(), list(one[3]), data)
        for one, data in zip(outputs, contents, strict=True)
    }


def described(name: str, array: Any) -> dict[str, Any]:
    """An input without its elements. Its sizes are below 128: protobuf writes such numbers as one byte."""
    return {"name": name, "datatype": WORDS.get(array.dtype.name, array.dtype.name.upper()), "shape": list(array.shape)}


def raw(name: str, word: str, shape: list[int], data: bytes) -> Any:
    """An output that came as bytes."""
    dtype = "string" if word == "BYTES" else ARRAYS.get(word, word.lower())
    return array_of(Tensor(name, dtype, tuple(shape), data))


# ------------------------------------------------------------------ both


def given(name: str, array: Any) -> Tensor:
    """An array as it travels."""
    if array.dtype == object:
        data = b"".join(len(one).to_bytes(4, "little") + one for one in array.ravel())
        return Tensor(name, "string", array.shape, data)
    return Tensor(name, array.dtype.name, array.shape, array.tobytes())


def array_of(tensor: Tensor) -> Any:
    if tensor.dtype == "string":
        return samples.strings(split_strings(tensor.data)).reshape(tensor.shape)
    return np.frombuffer(tensor.data, np.dtype(tensor.dtype)).reshape(tensor.shape)


def post(served: Served, path: str, body: bytes) -> Any:
    got = served.client.post(path, content=body)
    assert got.status_code == 200, got.text
    return json.loads(got.content)


def call(served: Served, method: str, message: bytes) -> bytes:
    with grpc.insecure_channel(served.grpc) as channel:
        say: Callable[..., bytes] = channel.unary_unary(method, request_serializer=bytes, response_deserializer=bytes)
        return say(message, timeout=LIMIT_S, metadata=[("authorization", f"Bearer {served.key}")])
