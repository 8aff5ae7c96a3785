"""TensorFlow Serving's gRPC messages: what is read of requests, what is refused and how, what replies hold."""

import struct
from collections.abc import Sequence

import pytest

from gateway_plugin.api.tfserving import inferservice, modelspec, predictservice
from gateway_plugin.api.tfserving.inferservice import Task
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.inputs import UnknownSignature
from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, MOST_FIELDS, TooManyFields, field, number
from gateway_plugin.codec.protobuf.tensorproto import ENUMERATORS
from gateway_plugin.proto.example_pb2 import Example
from gateway_plugin.proto.serving_pb2 import GetModelStatusRequest, InferenceTask, ModelSpec
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge, Unimplemented
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Limits, Model, Signature, TensorSpec, Version
from signalbox.wire.tensors import Tensor

FLOATS = TensorSpec(dtype="float32", shape=(-1,))
TEXTS = TensorSpec(dtype="string", shape=(-1,))
SIGNATURES = {
    "serving_default": Signature(
        inputs={"x": FLOATS, "n": TensorSpec(dtype="int64", shape=(-1,))}, outputs={"y": FLOATS}
    ),
    "two": Signature(inputs={"x": FLOATS}, outputs={"y": FLOATS, "z": FLOATS}),
    "classify": Signature(inputs={"inputs": TEXTS}, outputs={"classes": TEXTS, "scores": FLOATS}),
    "regress": Signature(inputs={"inputs": TEXTS}, outputs={"outputs": FLOATS}),
    "nothing": Signature(inputs={}, outputs={"y": FLOATS}),
    "scaled": Signature(
        inputs={"x": FLOATS, "scale": TensorSpec(dtype="float32", shape=(), tensor="scale:0"), "shift": FLOATS},
        outputs={"y": FLOATS},
        defaults={"scale": number(1, 1) + field(2, b"") + field(5, struct.pack("<f", 2.0))},
    ),
}
READY = PreparedVersion(
    Model(name="m", limits=Limits(max_payload_bytes=1000)), Version(version=3, path="/nowhere", signatures=SIGNATURES)
)
SPEC = field(1, field(1, b"m"))
ONE = struct.pack("<f", 1.0)


def entry(name: str, message: bytes) -> bytes:
    return field(2, field(1, name.encode()) + field(2, message))


def tensor(dtype: str, *sizes: int, values: bytes = b"") -> bytes:
    shape = field(2, b"".join(field(2, number(1, size)) for size in sizes))
    return number(1, ENUMERATORS[dtype]) + shape + values


X = entry("x", tensor("float32", 2, values=field(5, ONE)))
N = entry("n", tensor("int64", 2, values=field(10, b"\x01\x02")))
TWO = field(1, field(3, b"two"))


def decoded(body: bytes, most_fields: int = FEW_FIELDS) -> DecodedInputs:
    return predictservice.decoded(predictservice.read(body), READY, most_fields)


def test_a_predict_request_becomes_the_signature_s_inputs() -> None:
    for body in (SPEC + X + N, N + X + SPEC, SPEC + N + entry("x", b"") + X + field(6, b"client")):
        found = decoded(body)
        assert tensors.decode(found.frame) == [
            Tensor("x", "float32", (2,), ONE * 2),
            Tensor("n", "int64", (2,), struct.pack("<qq", 1, 2)),
        ]
        assert (found.signature, found.style, found.rows) == ("serving_default", "columnar", 2)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "Missing ModelSpec. Give model_spec"),
        (SPEC + b"\x12", "The PredictRequest is malformed: a number does not end."),
        (SPEC + number(2, 1), "The PredictRequest is malformed: field 2 has the wire type 0"),
        (field(1, b"\xff"), "The ModelSpec is malformed"),
        (
            SPEC + X,
            "input size does not match signature: 1!=2 len({x}) != len({n,x}). Sent extra: {}. Missing but ",
        ),
        (
            SPEC + X + N + entry("z", b""),
            "input size does not match signature: 3!=2 len({n,x,z}) != len({n,x}). Sent extra: {z}. Missing but ",
        ),
        (
            SPEC + X + entry("z", b""),
            "input tensor alias not found in signature: z. Inputs expected to be in the set {n,x}. The request lacks",
        ),
        (
            SPEC + N + entry("x", tensor("float64", 1)),
            'Expects arg[0] to be float but double is provided. Input "x": expected float32, got float64.',
        ),
        (SPEC + N + entry("x", tensor("float32", -1)), 'tensor parsing error: x. Input "x": expected sizes'),
        (
            SPEC + TWO + X + field(3, b"w"),
            "output tensor alias not found in signature: w Outputs expected to be in the",
        ),
        (SPEC + TWO + X + field(3, b"y") * 2, "duplicate output tensor alias: y. output_filter names it twice."),
    ],
)
def test_what_is_wrong_is_said_in_tensorflow_serving_s_words_first(body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoded(body)
    assert caught.value.public_message.startswith(words)


SCALED = field(1, field(1, b"m") + field(3, b"scaled"))
SHIFT = entry("shift", tensor("float32", 1, values=field(5, ONE)))


def test_an_input_that_is_left_out_has_the_signature_s_default() -> None:
    def scale(body: bytes) -> bytes:
        return next(one.data for one in tensors.decode(decoded(body).frame) if one.name == "scale")

    assert scale(SCALED + X + SHIFT) == struct.pack("<f", 2.0)
    assert scale(SCALED + X + SHIFT + entry("scale", tensor("float32", values=field(5, ONE)))) == ONE


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (
            SCALED + X,
            "Signature input alias: shift(feed name: ) not found in request and no default value provided. Inputs exp",
        ),
        (SCALED + X + SHIFT + entry("z", b""), "Inputs contains invalid name. Used request inputs: shift,x, request "),
        (SCALED + X + SHIFT + entry("y", b"") + entry("z", b""), "input size does not match signature: 4!=3 len("),
    ],
)
def test_of_a_signature_with_defaults_what_is_wrong_is_said_as_tensorflow_serving_does(body: bytes, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        decoded(body)
    assert caught.value.public_message.startswith(words)


def test_a_signature_without_inputs_is_called() -> None:
    found = decoded(field(1, field(1, b"m") + field(3, b"nothing")))
    assert (tensors.decode(found.frame), found.rows, found.batch_key) == ([], 1, "")


def test_only_the_outputs_that_are_wanted_are_asked_of_the_model() -> None:
    for names, wanted in (("", ()), ("z", ("z",)), ("zy", ())):
        assert decoded(SPEC + TWO + X + b"".join(field(3, name.encode()) for name in names)).outputs == wanted


def test_an_unknown_signature_is_named() -> None:
    with pytest.raises(UnknownSignature, match=r'\AServing signature key "no" not found\. Serving sig'):
        decoded(SPEC + field(1, field(3, b"no")) + X)


def test_the_tensors_of_a_request_share_the_bound_of_its_model() -> None:
    large = entry("x", tensor("float32", 200, values=field(5, ONE)))
    with pytest.raises(TooLarge, match="200 left"):
        decoded(SPEC + large + entry("n", tensor("int64", 26)))
    assert decoded(SPEC + large + entry("n", tensor("int64", 25))).rows == 1


def test_the_names_of_a_request_are_cut_in_its_errors() -> None:
    with pytest.raises(InvalidInput) as caught:
        decoded(SPEC + b"".join(entry(f"{index:0500}", b"") for index in range(300)))
    assert len(caught.value.public_message) < 6_000


def test_a_response_has_each_output_and_the_version_it_is_of() -> None:
    spec = modelspec.effective(READY, "two")
    written = predictservice.written([Tensor("y", "float32", (1,), ONE), Tensor("z", "float32", (0,), b"")], spec)
    y = field(1, field(1, b"y") + field(2, tensor("float32", 1, values=field(5, ONE))))
    z = field(1, field(1, b"z") + field(2, tensor("float32", 0)))
    assert written == y + z + field(2, spec.SerializeToString())
    assert (spec.name, spec.version.value, spec.signature_name) == ("m", 3, "two")


def example(**features: float) -> bytes:
    made = Example()
    for name, value in features.items():
        made.features.feature[name].float_list.value.append(value)
    return made.SerializeToString()


def inferred(body: bytes, *tasks: Task, most_fields: int = FEW_FIELDS) -> list[DecodedInputs]:
    request = inferservice.read("ClassificationRequest", body)
    return inferservice.decoded("ClassificationRequest", request.input, READY, tasks, most_fields)


def examples(found: DecodedInputs) -> list[Example]:
    (only,) = tensors.decode(found.frame)
    return [Example.FromString(each) for each in split_strings(only.data)]


CLASSIFY, REGRESS = Task("classify", "classify"), Task("regress", "regress")
LIST = field(2, field(1, field(1, example(x=1.0)) + field(1, example(x=2.0))))


def test_examples_become_the_input_of_each_task_s_signature() -> None:
    classify, regress = inferred(LIST, CLASSIFY, REGRESS)
    assert examples(classify) == examples(regress) == [Example.FromString(example(x=x)) for x in (1.0, 2.0)]
    assert (classify.style, regress.style, regress.rows) == ("classify:2", "regress:2", 2)


def test_a_context_is_in_every_example_whose_own_feature_wins() -> None:
    given = field(1, example(x=1.0)) + field(1, b"") + field(2, example(x=5.0, q=7.0))
    for body in (field(2, field(2, given)), LIST + field(2, field(2, given))):
        (found,) = inferred(body, CLASSIFY)
        assert [
            {name: list(value.float_list.value) for name, value in each.features.feature.items()}
            for each in examples(found)
        ] == [{"x": [1.0], "q": [7.0]}, {"x": [5.0], "q": [7.0]}]


def test_the_examples_of_one_kind_in_parts_add_up() -> None:
    (found,) = inferred(LIST + LIST, CLASSIFY)
    assert len(examples(found)) == 4


@pytest.mark.parametrize(
    ("body", "task", "words"),
    [
        (b"", CLASSIFY, "Input is empty. "),
        (field(2, field(1, b"")), CLASSIFY, "Input is empty. "),
        (field(2, b"\x0a"), CLASSIFY, "The ClassificationRequest is malformed"),
        (LIST, Task("classify", "no"), "No signature was found with the name: no. "),
        (LIST, Task("regress", "classify"), "Expected one output Tensor. "),
    ],
)
def test_what_is_wrong_with_examples_is_said_as_over_rest(body: bytes, task: Task, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        inferred(body, task)
    assert caught.value.public_message.startswith(words)


def test_a_large_context_is_not_multiplied_beyond_the_model_s_bound() -> None:
    given = field(1, b"") * 20 + field(2, example(x=1.0) * 10)
    with pytest.raises(TooLarge, match="The examples take"):
        inferred(field(2, field(2, given)), CLASSIFY)


def test_many_examples_are_left_to_a_thread() -> None:
    body = field(2, field(1, field(1, b"") * FEW_FIELDS))
    with pytest.raises(TooManyFields):
        inferred(body, CLASSIFY)
    with pytest.raises(TooLarge, match="The examples take"):  # read, and then too large for this model
        inferred(field(2, field(1, field(1, b"ab") * FEW_FIELDS)), CLASSIFY, most_fields=MOST_FIELDS)


def tasks(*given: tuple[str, str, str]) -> Sequence[Task]:
    asked = [
        InferenceTask(model_spec=ModelSpec(name=name, signature_name=signature), method_name=method)
        for name, signature, method in given
    ]
    return inferservice.tasks_of(asked, READY)


def test_tasks_name_different_signatures_of_one_model() -> None:
    both = (("m", "classify", "tensorflow/serving/classify"), ("m", "", "tensorflow/serving/regress"))
    assert tasks(*both) == [CLASSIFY, Task("regress", "serving_default")]


@pytest.mark.parametrize(
    ("second", "error", "words"),
    [
        (("", "", ""), InvalidRequest, "Found ModelSpec with an empty model name. "),
        (
            ("other", "", ""),
            InvalidRequest,
            "All ModelSpecs in a MultiInferenceRequest must access the same model name",
        ),
        (("m", "classify", ""), InvalidRequest, "Duplicate evaluation of signature: classify. "),
        (("m", "no", ""), InvalidRequest, "Requested signature not found in model graph: no. "),
        (
            ("m", "two", "tensorflow/serving/predict"),
            Unimplemented,
            "Unsupported signature method_name: tensorflow/",
        ),
    ],
)
def test_tasks_that_do_not_go_together_are_refused(
    second: tuple[str, str, str], error: type[Exception], words: str
) -> None:
    with pytest.raises(error) as caught:
        tasks(("m", "classify", "tensorflow/serving/classify"), second)
    assert str(caught.value).startswith(words)


def test_small_messages_are_bounded_before_they_are_read() -> None:
    with pytest.raises(TooLarge, match="The GetModelStatusRequest has 5000 bytes; at most 4096 are taken"):
        modelspec.parse(GetModelStatusRequest, bytes(5000))
