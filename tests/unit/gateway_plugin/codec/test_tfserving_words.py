"""What TensorFlow Serving says of a bad request, since its clients match it: of its JSON, and of its inputs."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.codec import forms
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.inputs import Decoded, listed, plans
from gateway_plugin.codec.serving import mismatch
from gateway_plugin.codec.serving.rapidjson import MOST_SHOWN, parse_as_served, shown
from signalbox.front.jsonbody import Bounds
from signalbox.program.errors import InvalidInput, InvalidJson, InvalidRequest, TooLarge
from signalbox.wire.modeldocs import Signature, TensorSpec

BOUNDS = Bounds(1_000_000, 100_000)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "The document is empty"),
        (b" \n", "The document is empty. at offset: 2"),
        (b"}", "The document is empty. at offset: 0"),
        (b"instances = [1, 2]", "Invalid value. at offset: 0"),
        (b'{"a": tru}', "Invalid value. at offset: 9"),
        (b'{"a": [1,]}', "Invalid value. at offset: 9"),
        (b'{"a": [NaN, x]}', "Invalid value. at offset: 12"),
        (b'{"a": ', "Invalid value. at offset: 6"),
        (b"{", "Missing a name for object member. at offset: 1"),
        (b"{'a': 1}", "Missing a name for object member. at offset: 1"),
        (b'{"a": 1,}', "Missing a name for object member. at offset: 8"),
        (b'\xef\xbb\xbf{"a": "\xc3\xa9", x}', "Missing a name for object member. at offset: 15"),
        (b'{"a" 1}', "Missing a colon after a name of object member. at offset: 5"),
        (b'{"b": "x", "a"', "Missing a colon after a name of object member. at offset: 14"),
        (b'{"a": 1 "b": 2}', "Missing a comma or } after an object member. at offset: 8"),
        (b'{"a": {"b": "["}', "Missing a comma or } after an object member. at offset: 16"),
        (b'{"a": 01}', "Missing a comma or } after an object member. at offset: 7"),
        (b'{"a": [1 2]}', "Missing a comma or ] after an array element. at offset: 9"),
        (b'{"a": ["}", 1', "Missing a comma or ] after an array element. at offset: 13"),
        (b'{"a": "\\"', "Missing a closing quotation mark in string. at offset: 9"),
        (b'{"a": "\\x"}', "Invalid escape character in string. at offset: 7"),
        (b'{"a": "\\u12G4"}', "Incorrect hex digit after \\u escape in string. at offset: 7"),
        (b'{"a": "\\ud800"}', "The surrogate pair in string is invalid. at offset: 7"),
        (b'{"a": "\n"}', "Invalid encoding in string. at offset: 7"),
        (b'{"a": 1.}', "Miss fraction part in number. at offset: 8"),
        (b'{"a": 1e}', "Miss exponent in number. at offset: 8"),
        (b'{"a": 1e400}', "Number too big to be stored in double. at offset: 6"),
    ],
)
def test_malformed_json_is_named_as_rapidjson_does(body: bytes, words: str) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse_as_served(body, BOUNDS)
    assert caught.value.public_message == f"JSON Parse error: {words}"


@pytest.mark.parametrize(
    ("body", "doc"),
    [
        (b'{"a": [1]}X', {"a": [1]}),
        (b'{"a": [1]}\0', {"a": [1]}),
        (b'{"a": [1]} {"a": [2]}', {"a": [1]}),
        (b'\xef\xbb\xbf{"a": "\xc3\xa9"}', {"a": "\u00e9"}),
        (b'{"a": [Inf, -Inf, Infinity], "b": "Inf, NaN"} and more', {"a": [1e999, -1e999, 1e999], "b": "Inf, NaN"}),
    ],
)
def test_what_rapidjson_takes_and_other_parsers_do_not_is_taken(body: bytes, doc: Any) -> None:
    assert parse_as_served(body, BOUNDS).doc == doc


def test_bounds_hold_for_what_is_read_again() -> None:
    with pytest.raises(TooLarge):
        parse_as_served(b'{"a": [' + b"1," * 200_000 + b"1]}X", BOUNDS)
    with pytest.raises(InvalidJson, match="levels deep"):
        parse_as_served(b'{"a": ' + b"[" * 50 + b"]" * 50 + b"}X", BOUNDS)
    with pytest.raises(InvalidJson, match="twice"):
        parse_as_served(b'{"a": Inf, "a": 1}', BOUNDS)


@given(st.binary(max_size=40) | st.text('{}[]:,"\\truefalsn019.-+eEINfy \n', max_size=30).map(str.encode))
def test_whatever_is_sent_is_an_object_or_refused_in_words(body: bytes) -> None:
    try:
        doc = parse_as_served(body, BOUNDS).doc
    except InvalidRequest as error:
        words = error.public_message
    else:
        words = "JSON " if type(doc) is dict else ""
    assert words.startswith(("JSON ", "An object gives"))


@given(st.recursive(st.none() | st.booleans() | st.integers() | st.text(max_size=5), st.lists, max_leaves=200))
def test_a_value_is_shown_in_part(value: Any) -> None:
    text = shown(value)
    assert len(text) < MOST_SHOWN + 64
    if len(text) < MOST_SHOWN:
        assert json.loads(text) == value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.0, "0.0"),
        (-0.0, "-0.0"),
        (2.0, "2.0"),
        (1e20, "100000000000000000000.0"),
        (1e21, "1e21"),
        (-1.25e30, "-1.25e30"),
        (1e-6, "0.000001"),
        (1.5e-7, "1.5e-7"),
        (0.1, "0.1"),
        (float("nan"), "NaN"),
        (2**64, "18446744073709551616"),
    ],
)
def test_numbers_are_shown_as_rapidjson_writes_them(value: float, text: str) -> None:
    assert shown([value]) == f"[{text}]"


def read(doc: dict[str, Any], dtypes: dict[str, str]) -> Decoded:
    specs = {name: TensorSpec(dtype=dtype, shape=None) for name, dtype in dtypes.items()}
    available = plans({"serving_default": Signature(inputs=specs, outputs={})})
    return forms.decode(forms.read(Form.PREDICT, json.dumps(doc).encode(), BOUNDS), available, 1 << 20)


ROW = "Failed to process element: {} of 'instances' list. Error: INVALID_ARGUMENT: {}"
ONE = {"x": "float32"}
INT = {"x": "int32"}
TWO = {"a": "int32", "b": "string"}


@pytest.mark.parametrize(
    ("dtypes", "doc", "words"),
    [
        (ONE, {"instances": ["x", "y"]}, ROW.format(0, 'JSON Value: "x" Type: String is not of expected type: float')),
        (ONE, {"instances": [1, None]}, ROW.format(1, "JSON Value: null Type: Null is not of expected type: float")),
        (ONE, {"instances": [1, True]}, ROW.format(1, "JSON Value: true Type: True is not of expected type: float")),
        (INT, {"instances": [1, 2.5]}, ROW.format(1, "JSON Value: 2.5 Type: Number is not of expected type: int32")),
        (INT, {"inputs": [[2**31]]}, "JSON Value: 2147483648 Type: Number is not of expected type: int32"),
        ({"x": "uint64"}, {"inputs": -1}, "JSON Value: -1 Type: Number is not of expected type: uint64"),
        ({"x": "bool"}, {"inputs": 1}, "JSON Value: 1 Type: Number is not of expected type: bool"),
        ({"x": "float64"}, {"inputs": "a"}, 'JSON Value: "a" Type: String is not of expected type: double'),
        (
            ONE,
            {"inputs": {"x": {"y": [1]}}},
            'JSON Value: {\n    "y": [1]\n} Type: Object is not of expected type: float',
        ),
        (ONE, {"instances": [[1, 2], [3], [5, 6]]}, ROW.format(1, "Expecting tensor size: 2 but got: 1")),
        (ONE, {"instances": [[1, 2], [[3, 4]]]}, ROW.format(1, "Expecting shape [2] but got: [1,2]")),
        (ONE, {"instances": [1, [1]]}, ROW.format(1, "Expecting shape [] but got: [1]")),
        (ONE, {"inputs": [[1, 2], [3]]}, "Encountered list at unexpected size: 1 at level: 1 expected size: 2"),
        (ONE, {"inputs": [1, [2]]}, "Encountered list at unexpected level: 1 expected < 1"),
        (ONE, {"inputs": [[1], 2]}, "JSON Value: 2 found at incorrect level: 2 in the JSON DOM. Expected at level: 2"),
        (ONE, {"instances": [1, {"x": 1}]}, "Expecting value/list but got object at item 1 of input list"),
        (ONE, {"instances": [{"x": 1}, 1]}, "Expecting object but got list at item 1 of input list"),
        (ONE, {"instances": 1}, "JSON Value: {\n    \"instances\": 1\n} Expecting 'instances' to be an list/array"),
        (ONE, {"instances": []}, "JSON Value: {\n    \"instances\": []\n} No values in 'instances' array"),
        (
            ONE,
            {"instances": [1], "inputs": [1]},
            'JSON Value: {\n    "instances": [1],\n    "inputs": [1]\n} Not formatted correctly expecting only one of',
        ),
        (
            ONE,
            {"instances": [{"z": 1}]},
            (
                "Failed to process element: 0 key: z of 'instances' list. Error: INVALID_ARGUMENT: "
                "JSON object: does not have named input: z"
            ),
        ),
        (
            TWO,
            {"instances": [{"a": 1}]},
            (
                "Failed to process element: 0 of 'instances' list. JSON object: {\n    \"a\": 1\n} "
                "keys must be equal to: a,b"
            ),
        ),
        (
            TWO,
            {"instances": [1]},
            (
                "instances is a plain list, but expecting list of objects as multiple input tensors required as per "
                "tensorinfo_map"
            ),
        ),
        (
            TWO,
            {"inputs": [1]},
            (
                "inputs is a plain value/list, but expecting an object as multiple input tensors required as per "
                "tensorinfo_map"
            ),
        ),
        (TWO, {"inputs": {"a": [1]}}, "Missing named input: b in 'inputs' object."),
        ({"x": "string"}, {"inputs": {"x": {"b64": "%"}}}, ""),
        (
            {"x": "string"},
            {"inputs": {"x": {"a": 1}}},
            'JSON Value: {\n    "a": 1\n} not formatted correctly for base64',
        ),
        (ONE, {}, "Missing 'inputs' or 'instances' key"),
        (ONE, {"input": {"x": [1]}}, "Missing 'inputs' or 'instances' key"),
        (ONE, {"signature_name": "nope", "inputs": 1}, 'Serving signature name: "nope" not found in signature def'),
        (
            ONE,
            {"signature_name": 5, "inputs": 1},
            (
                'JSON Value: {\n    "signature_name": 5,\n    "inputs": 1\n} not formatted correctly. '
                "'signature_name' key must be a string value."
            ),
        ),
        ({}, {"inputs": 1}, "Failed to get input map for signature: DEFAULT"),
    ],
)
def test_bad_inputs_are_named_as_tensorflow_serving_does_and_then_as_we_do(
    dtypes: dict[str, str], doc: dict[str, Any], words: str
) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read(doc, dtypes)
    assert caught.value.public_message.startswith(words)
    assert caught.value.args == (caught.value.public_message,)


def test_our_words_name_the_input_after_theirs() -> None:
    with pytest.raises(InvalidInput) as caught:
        read({"instances": [[1.0, "a"]]}, {"x": "float32"})
    assert caught.value.public_message == (
        "Failed to process element: 0 of 'instances' list. Error: INVALID_ARGUMENT: JSON Value: \"a\" Type: String is "
        'not of expected type: float. Input "x": expected float32, got a string at [0][1].'
    )
    assert caught.value.facts["input"] == "x"


@pytest.mark.parametrize("dtype", ["float32", "int8", "string", "uint16"])
@given(
    value=st.recursive(
        st.none() | st.booleans() | st.integers(-300, 300) | st.floats() | st.text(max_size=3),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["x", "b64", "y"]), inner),
        max_leaves=8,
    ),
    word=st.sampled_from(["instances", "inputs"]),
)
def test_whatever_is_sent_is_decoded_or_refused(dtype: str, value: Any, word: str) -> None:
    try:
        found = read({word: value}, {"x": dtype})
    except (InvalidRequest, TooLarge):
        return
    assert found.tensors[0].dtype == dtype


def test_of_many_signatures_some_are_listed_and_none_of_tensorflow_s_own() -> None:
    assert listed(["b", "a", "__saved_model_init_op"]) == "The signatures are: a, b."
    assert listed([]) == "The signatures are: none."
    assert listed([f"s{n:03}" for n in range(300)]).endswith("s014, s015 and 284 more.")


LEAVES = st.sampled_from([0, 1, 2**40, -1, 0.5, True, None, "a", {"b64": "aA=="}, {"x": 1}, [], [0], [1, 2]])
ROWS = st.lists(LEAVES, max_size=3) | LEAVES | st.lists(st.lists(st.integers(0, 3), min_size=2, max_size=2), max_size=3)


@pytest.mark.parametrize("dtypes", [ONE, {"x": "string"}, INT, TWO])
@given(
    st.lists(ROWS, max_size=4)
    | st.lists(st.integers(0, 3).map(lambda n: [n, n]), min_size=2, max_size=4).flatmap(
        lambda rows: ROWS.map(lambda row: [*rows, row])
    )
    | st.lists(st.fixed_dictionaries({"a": LEAVES, "b": LEAVES}, optional={"z": LEAVES}), max_size=4)
)
def test_what_is_passed_over_whole_would_not_have_been_named(dtypes: dict[str, str], rows: list[Any]) -> None:
    for doc in ({"instances": rows}, {"inputs": rows}, {"inputs": {"x": rows, "a": rows, "b": rows}}):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(mismatch, "leading_rows", lambda *_: (0, [], 0))
            one_by_one = mismatch.of_request(doc, dtypes)
        assert mismatch.of_request(doc, dtypes) == one_by_one


def test_a_bad_row_is_found_behind_many_good_ones() -> None:
    rows = [[0.5] * 100 for _ in range(500)]
    with pytest.raises(InvalidInput) as caught:
        read({"instances": [*rows, ["a"] * 100]}, {"x": "float32"})
    assert caught.value.public_message.startswith("Failed to process element: 500 ")
