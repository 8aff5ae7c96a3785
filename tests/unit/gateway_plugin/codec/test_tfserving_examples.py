"""TensorFlow Serving's ``examples`` and ``context`` to tf.Example, and what comes back as ``results``."""

import json
import struct
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.codec import forms
from gateway_plugin.codec.decoder import rendered
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.inputs import Decoded, plans
from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.serving import results
from gateway_plugin.proto.example_pb2 import Example
from signalbox.front.jsonbody import Bounds
from signalbox.program.errors import InvalidRequest, SignalboxError, TooLarge, meaning
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import Tensor

BOUNDS = Bounds(1_000_000, 100_000)
TEXT = TensorSpec(dtype="string", shape=(-1,))
PAIRS = TensorSpec(dtype="float32", shape=(-1, 2))
CLASSIFIER = Signature(
    inputs={"inputs": TEXT}, outputs={"classes": TensorSpec(dtype="string", shape=(-1, 2)), "scores": PAIRS}
)
REGRESSOR = Signature(inputs={"inputs": TEXT}, outputs={"outputs": PAIRS})
SIGNATURES = {
    "serving_default": CLASSIFIER,
    "regress": REGRESSOR,
    "floats": Signature(inputs={"inputs": PAIRS}, outputs={"outputs": PAIRS, "scores": PAIRS}),
    "two": Signature(inputs={"inputs": TEXT, "more": TEXT}, outputs={"outputs": PAIRS}),
    "other": Signature(inputs={"examples": TEXT}, outputs={"scores": PAIRS}),
    "many": Signature(inputs={"inputs": TEXT}, outputs={"classes": TEXT, "scores": PAIRS, "outputs": PAIRS}),
}
PLANS = plans(SIGNATURES)


def read(body: Any, form: Form = Form.CLASSIFY, limit: int = 100_000) -> Decoded:
    data = body if isinstance(body, bytes) else json.dumps(body).encode()
    return forms.decode(forms.read(form, data, BOUNDS), PLANS, limit)


def examples(body: Any) -> list[dict[str, Any]]:
    """What a model's parse_example reads: the values of each feature."""
    (tensor,) = read(body).tensors
    assert (tensor.name, tensor.dtype) == ("inputs", "string")
    found = [Example.FromString(each).features.feature for each in split_strings(tensor.data)]
    assert tensor.shape == (len(found),)
    return [
        {
            name: list(getattr(value, kind).value) if (kind := value.WhichOneof("kind")) else []
            for name, value in one.items()
        }
        for one in found
    ]


def test_each_json_type_has_its_kind_of_feature() -> None:
    body = {
        "signature_name": "serving_default",
        "examples": [
            {
                "names": ["foo", {"b64": "aGVsbG8="}, "\u00e9"],
                "ratings": [8.0, 9.5],
                "age": 20,
                "mix": [1, True, False],
            },
            {"names": "baz", "ratings": 6.0, "none": []},
        ],
    }
    assert examples(body) == [
        {"names": [b"foo", b"hello", "\u00e9".encode()], "ratings": [8.0, 9.5], "age": [20], "mix": [1, 1, 0]},
        {"names": [b"baz"], "ratings": [6.0], "none": []},
    ]


def test_numbers_that_are_not_finite_and_the_least_and_the_largest_are_features() -> None:
    body = b'{"examples": [{"x": [NaN, Infinity, -Infinity, 1e39], "n": [-9223372036854775808, 9223372036854775807]}]}'
    (found,) = examples(body)
    assert str(found["x"]) == "[nan, inf, -inf, inf]"
    assert found["n"] == [-(2**63), 2**63 - 1]


def test_a_context_is_in_every_example_and_the_example_s_own_feature_wins() -> None:
    body = {"context": {"query": "pizza", "x": 1.0}, "examples": [{"x": 2.0}, {}]}
    assert examples(body) == [{"query": [b"pizza"], "x": [2.0]}, {"query": [b"pizza"], "x": [1.0]}]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({"signature_name": ["a"], "examples": [{}]}, "'signature_name' key must be a string value."),
        ({"context": [{"names": ["foo"]}]}, "Example must be JSON object but got JSON Array"),
        ({"context": {}}, "When method is classify, key 'examples' is expected and was not found"),
        ({"examples": {"names": ["foo"]}}, "Expecting 'examples' value to be an list/array"),
        ({"examples": []}, "'examples' value is an empty array"),
        ({"examples": [[{"names": ["foo"]}]]}, "Example must be JSON object but got JSON Array"),
        ({"examples": ["a"]}, "Example must be JSON object but got JSON String"),
        ({"examples": [{"n": [10, None]}]}, "Feature: n has element with unexpected JSON type: Null"),
        ({"examples": [{"n": [10, {"test": 10}]}]}, "Feature: n has element with unexpected JSON type: Object"),
        ({"examples": [{"n": {"test": 10}}]}, "Feature: n has element with unexpected JSON type: Object"),
        ({"examples": [{"n": [[10], 20]}]}, "Feature: n has element with unexpected JSON type: Array"),
        ({"examples": [{"n": [10, 10.0]}]}, "Unexpected element type in feature: n expecting type: int64"),
        ({"examples": [{"n": [1.5, 10]}]}, "Unexpected element type in feature: n expecting type: float"),
        ({"examples": [{"n": ["a", 10]}]}, "Unexpected element type in feature: n expecting type: bytes"),
        ({"examples": [{"n": [20, 2**64 - 13]}]}, "Feature: n has uint64_t element. Only int64_t is supported."),
        ({"examples": [{"n": {"b64": "%"}}]}, "Unable to base64 decode"),
        ({"signature_name": "nope", "examples": [{}]}, "No signature was found with the name: nope"),
        ({"signature_name": "floats", "examples": [{}]}, "Expects arg[0] to be float but string is provided"),
        ({"signature_name": "two", "examples": [{}]}, "Expected one input Tensor."),
        ({"signature_name": "many", "examples": [{}]}, "Expected one or two output Tensors, found 3"),
        ({"signature_name": "other", "examples": [{}]}, "No classification inputs found in SignatureDef"),
        (
            {"signature_name": "regress", "examples": [{}]},
            'Expected classification signature outputs to contain at least one of "classes" or "scores"',
        ),
    ],
)
def test_bad_examples_are_named_as_tensorflow_serving_does(body: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(body)
    assert words in caught.value.public_message
    assert meaning(caught.value.code).http == 400


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("", "Expected one output Tensor."),
        ("two", "Expected one input Tensor."),
        ("other", "No regression inputs found in SignatureDef"),
        ("nope", "No signature was found with the name: nope"),
    ],
)
def test_a_signature_that_regresses_nothing_is_refused(name: str, words: str) -> None:
    with pytest.raises(InvalidRequest, match=words):
        read({"signature_name": name, "examples": [{}]}, Form.REGRESS)


def test_our_words_say_in_which_example_and_what_to_send() -> None:
    with pytest.raises(InvalidRequest) as caught:
        read({"examples": [{}, {"age": [1.5, 2]}]})
    assert 'In "examples"[1], feature "age". A feature holds one type' in caught.value.public_message


def test_a_context_counts_for_every_example_before_it_is_copied() -> None:
    body = {"context": {"text": "x" * 1_000}, "examples": [{}] * 1_000}
    assert read(body, limit=2_000_000).rows == 1_000
    with pytest.raises(TooLarge) as caught:
        read(body, limit=1_000_000)
    assert caught.value.facts["limit_bytes"] == 1_000_000


def test_examples_share_a_run() -> None:
    found = read({"examples": [{}, {}]})
    assert (found.rows, found.batch_key, found.style) == (2, "serving_default|", "classify:2")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "b64", "y"]), inner),
        max_leaves=10,
    ),
    st.sampled_from([Form.CLASSIFY, Form.REGRESS]),
)
def test_whatever_is_sent_is_decoded_or_the_caller_s_fault(value: Any, form: Form) -> None:
    try:
        found = read({"examples": value, "signature_name": "regress" if form is Form.REGRESS else ""}, form)
    except SignalboxError as error:
        assert meaning(error.code).http == 400  # noqa: PT017  both ways out are right
        return
    assert found.tensors[0].name == "inputs"


def floats(name: str, shape: tuple[int, ...], *values: float) -> Tensor:
    return Tensor(name, "float32", shape, struct.pack(f"<{len(values)}f", *values))


def strings(name: str, shape: tuple[int, ...], *values: bytes) -> Tensor:
    return Tensor(name, "string", shape, b"".join(struct.pack("<I", len(value)) + value for value in values))


LABELS = strings("classes", (2, 2), b"low", b"high", b"low", b"null")
SCORES = floats("scores", (2, 2), 0.2, 1.0, 1e30, 42.0)


@pytest.mark.parametrize(
    ("outputs", "style", "answer"),
    [
        ([LABELS, SCORES], "classify:2", '{"results":[[["low",0.2],["high",1.0]],[["low",1e+30],["null",42.0]]]}'),
        ([SCORES], "classify:2", '{"results":[[["",0.2],["",1.0]],[["",1e+30],["",42.0]]]}'),
        ([LABELS], "classify:2", '{"results":[[["low",0.0],["high",0.0]],[["low",0.0],["null",0.0]]]}'),
        ([floats("scores", (1, 2), float("nan"), 0.1)], "classify:1", '{"results":[[["",NaN],["",0.1]]]}'),
        ([strings("classes", (1, 1), b"\xff")], "classify:1", '{"results":[[["\ufffd",0.0]]]}'),
        ([floats("outputs", (3,), 0.2, 0.9, 1.0)], "regress:3", '{"results":[0.2,0.9,1.0]}'),
        ([floats("outputs", (2, 1), float("-inf"), 42)], "regress:2", '{"results":[-Infinity,42.0]}'),
    ],
)
def test_results_have_tensorflow_serving_s_form(outputs: list[Tensor], style: str, answer: str) -> None:
    assert results.render(outputs, style).decode() == answer
    assert rendered(tensors.encode(outputs), style, 1_000).decode() == answer
    strict = answer.replace("-Infinity", '"-Infinity"').replace("NaN", '"NaN"')
    assert rendered(tensors.encode(outputs), style, 1_000, is_strict=True).decode() == strict


@pytest.mark.parametrize(
    ("outputs", "style", "words"),
    [
        ([floats("scores", (2,), 1, 2)], "classify:2", "Expected Tensor shape: [batch_size num_classes] but got [2]"),
        ([strings("scores", (1, 1), b"a")], "classify:1", "Expected scores Tensor of DT_FLOAT. Got: DT_STRING"),
        ([floats("classes", (1, 1), 1)], "classify:1", "Expected classes Tensor of DT_STRING. Got: DT_FLOAT"),
        ([SCORES], "classify:3", "Expected scores output batch size of 3. Got: 2"),
        ([LABELS, floats("scores", (2, 1), 1, 2)], "classify:2", "Tensors class and score should match in dim_size(1)"),
        ([floats("outputs", (1, 2), 1, 2)], "regress:1", "either [batch_size] or [batch_size, 1] but got [1,2]"),
        ([floats("outputs", (), 1)], "regress:1", "either [batch_size] or [batch_size, 1] but got []"),
        ([floats("outputs", (1,), 1)], "regress:2", "Input batch size did not match output batch size: 2 vs. 1"),
        ([Tensor("outputs", "float64", (1,), bytes(8))], "regress:1", "Expected output Tensor of DT_FLOAT.  Got: DT_D"),
    ],
)
def test_outputs_that_are_no_results_are_refused_in_its_words(outputs: list[Tensor], style: str, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        results.render(outputs, style)
    assert words in caught.value.public_message
