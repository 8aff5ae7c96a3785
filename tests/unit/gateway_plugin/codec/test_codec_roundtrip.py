"""JSON to tensors and back, for every dtype."""

import base64
import json
import math
import re
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from gateway_plugin.codec.inputs import Decoded, decode, plans
from gateway_plugin.codec.outputs import render
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import InvalidInput, InvalidJson, InvalidRequest, TooLarge
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import ITEM_SIZE, Tensor

BOUNDS = Bounds(1_000_000, 100_000)
NUMERIC = sorted(set(ITEM_SIZE) - {"bfloat16", "complex64", "complex128"})
SHAPES = hnp.array_shapes(min_dims=1, max_dims=4, min_side=0, max_side=4)


def signature(**dtypes: str) -> Signature:
    specs = {name: TensorSpec(dtype=dtype, shape=None) for name, dtype in dtypes.items()}
    return Signature(inputs=specs, outputs=specs)


def read(body: bytes | str, sig: Signature, limit: int = 1 << 20) -> Decoded:
    data = body.encode() if isinstance(body, str) else body
    return decode(parse(data, BOUNDS), plans({"serving_default": sig}), limit)


def tensor(name: str, array: np.ndarray[Any, Any]) -> Tensor:
    little = array.astype(array.dtype.newbyteorder("<"))
    return Tensor(name, array.dtype.name, array.shape, little.tobytes())


def renamed(answer: bytes, word: str) -> bytes:
    """An answer as the request that would give it: the inverse path."""
    key, _, rest = answer.partition(b":")
    assert key in {b'{"outputs"', b'{"predictions"'}
    return b'{"' + word.encode() + b'":' + rest


@pytest.mark.parametrize("dtype", NUMERIC)
@given(data=st.data())
def test_every_numeric_dtype_survives_the_way_out_and_back(dtype: str, data: st.DataObject) -> None:
    array = data.draw(hnp.arrays(dtype, SHAPES))
    sent = tensor("x", array)
    got = read(renamed(render([sent], "columnar"), "inputs"), signature(x=dtype)).tensors[0]
    found = np.frombuffer(got.data, np.dtype(dtype).newbyteorder("<"))
    if 0 not in array.shape:  # JSON cannot say how long a list inside an empty one would be
        assert got.shape == array.shape
    np.testing.assert_array_equal(found, array.ravel())


@pytest.mark.parametrize("shape", [(40,), (2, 20), (2, 3, 20), (2, 3, 5, 3)])
@pytest.mark.parametrize("dtype", ["float32", "int64"])
def test_rows_of_any_length_and_depth_make_a_tensor_and_ragged_ones_do_not(dtype: str, shape: tuple[int, ...]) -> None:
    array = np.arange(math.prod(shape)).astype(dtype).reshape(shape)
    value = array.tolist()
    assert read(json.dumps({"inputs": value}), signature(x=dtype)).tensors == [tensor("x", array)]
    row = value
    while len(row) > 1 and isinstance(row[-1], list):
        row = row[-1]
    row.append([1] if row is value else 1)
    with pytest.raises(InvalidInput):
        read(json.dumps({"inputs": value}), signature(x=dtype))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_travels_as_tensorflow_serving_s_tokens(dtype: str, value: float) -> None:
    array = np.array([0.2, value], dtype)
    out = render([tensor("x", array)], "row")
    assert any(token in out for token in (b"NaN", b"Infinity"))
    assert b"0.2," in out or dtype == "float16"
    got = read(renamed(out, "instances"), signature(x=dtype)).tensors[0]
    np.testing.assert_array_equal(np.frombuffer(got.data, dtype), array)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
def test_in_strict_json_what_is_not_finite_is_a_string_as_in_protobufs(dtype: str) -> None:
    rows = tensor("x", np.array([[0.5, math.nan], [math.inf, -math.inf]], dtype))
    assert render([rows], "row", is_strict=True) == b'{"predictions":[[0.5,"NaN"],["Infinity","-Infinity"]]}'
    one = tensor("y", np.array(math.nan, dtype))
    both = b'{"outputs":{"x":[[0.5,"NaN"],["Infinity","-Infinity"]],"y":"NaN"}}'
    assert render([rows, one], "columnar", is_strict=True) == both
    pairs = [tensor(name, np.array([math.inf, 1], dtype)) for name in ("a", "b")]
    row = b'{"predictions":[{"a":"Infinity","b":"Infinity"},{"a":1.0,"b":1.0}]}'
    assert render(pairs, "row", is_strict=True) == row
    assert render(pairs, "row") == row.replace(b'"Infinity"', b"Infinity")


@given(st.lists(st.binary(max_size=20), min_size=1, max_size=8))
def test_strings_survive_as_text_or_base64(items: list[bytes]) -> None:
    got = read(
        json.dumps({"inputs": [{"b64": base64.b64encode(item).decode()} for item in items]}), signature(x="string")
    ).tensors[0]
    again = read(renamed(render([got], "columnar"), "inputs"), signature(x="string")).tensors[0]
    assert again == got
    named = Tensor("x_bytes", "string", got.shape, got.data)
    rendered = json.loads(render([named], "columnar"))["outputs"]
    assert [base64.b64decode(item["b64"]) for item in rendered] == items


@given(hnp.arrays(np.float32, SHAPES, elements=st.floats(-(2.0**99), 2.0**99, width=32)))
def test_bfloat16_is_rounded_to_the_nearest_and_then_stays(array: np.ndarray[Any, Any]) -> None:
    first = read(json.dumps({"inputs": array.tolist()}), signature(x="bfloat16")).tensors[0]
    again = read(renamed(render([first], "columnar"), "inputs"), signature(x="bfloat16")).tensors[0]
    assert again.data == first.data
    back = (np.frombuffer(first.data, "<u2").astype("<u4") << 16).view("<f4")
    np.testing.assert_allclose(back, array.ravel(), rtol=1 / 256, atol=1e-37)


@pytest.mark.parametrize(("dtype", "half"), [("complex64", "<f4"), ("complex128", "<f8")])
def test_complex_numbers_are_pairs(dtype: str, half: str) -> None:
    got = read('{"inputs": [[1, 2], [0.5, -1]]}', signature(x=dtype)).tensors[0]
    assert got.shape == (2,)
    np.testing.assert_array_equal(np.frombuffer(got.data, half), [1, 2, 0.5, -1])
    assert json.loads(render([got], "columnar")) == {"outputs": [[1.0, 2.0], [0.5, -1.0]]}


def test_floats_are_printed_shortest_in_their_own_precision_with_a_fraction() -> None:
    array = np.array([2, 0.2, 0.1, 1e30], np.float32)
    assert render([tensor("y", array)], "row") == b'{"predictions":[2.0,0.2,0.1,1e+30]}'


def test_rows_of_several_outputs_are_objects() -> None:
    a, b = np.array([[1, 2], [3, 4]], np.int64), np.array([0.5, 1.5], np.float32)
    out = render([tensor("a", a), tensor("b", b)], "row")
    assert out == b'{"predictions":[{"a":[1,2],"b":0.5},{"a":[3,4],"b":1.5}]}'
    columns = render([tensor("a", a), tensor("b", b)], "columnar")
    assert columns == b'{"outputs":{"a":[[1,2],[3,4]],"b":[0.5,1.5]}}'


def test_outputs_without_a_common_dimension_have_no_rows_in_tensorflow_serving_s_words() -> None:
    scalar = tensor("s", np.array(1.5, np.float32))
    two, three = (tensor(name, np.zeros(size)) for name, size in (("a", 2), ("b", 3)))
    with pytest.raises(InvalidRequest, match="Tensor name: s has no shape information"):
        render([scalar], "row")
    with pytest.raises(InvalidRequest, match="b has inconsistent batch size: 3 expecting: 2"):
        render([two, three], "row")
    with pytest.raises(InvalidRequest, match="Cannot convert empty tensor map to JSON"):
        render([], "row")
    assert render([scalar], "columnar") == b'{"outputs":1.5}'


@pytest.mark.parametrize("dtype", [*sorted(ITEM_SIZE), "string"])
@pytest.mark.parametrize(("shape", "empty"), [((), None), ((0,), []), ((2, 0), [[], []])])
def test_scalars_and_empty_outputs_of_every_dtype_are_json(dtype: str, shape: tuple[int, ...], empty: object) -> None:
    count = 0 if shape else 1
    data = b"\x01\0\0\0a" * count if dtype == "string" else bytes(ITEM_SIZE[dtype]) * count
    found = json.loads(render([Tensor("y", dtype, shape, data)], "columnar"))["outputs"]
    if shape:
        assert found == empty
    else:
        assert found in ("a", 0, False, [0.0, 0.0])


def test_null_in_a_string_is_a_string() -> None:
    data = b"\x04\x00\x00\x00null"
    assert render([Tensor("s", "string", (1,), data)], "row") == b'{"predictions":["null"]}'


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [{"a": [1], "b": true}, {"a": [2], "b": false}]}',
        '{"inputs": {"b": [true, false], "a": [[1], [2]], "unknown": 3}}',
        '{"input": {"b": [true, false], "a": [[1], [2]]}}',
    ],
)
def test_rows_and_columns_give_the_same_tensors(body: str) -> None:
    got = read(body, signature(a="int32", b="bool"))
    assert [(t.name, t.shape, t.data) for t in got.tensors] == [
        ("a", (2, 1), b"\x01\x00\x00\x00\x02\x00\x00\x00"),
        ("b", (2,), b"\x01\x00"),
    ]


@pytest.mark.parametrize("row", ["1.5", '{"x": 1.5}'])
def test_a_single_input_may_be_bare_or_named(row: str) -> None:
    got = read(f'{{"instances": [{row}, {row}]}}', signature(x="float32")).tensors[0]
    assert np.frombuffer(got.data, "<f4").tolist() == [1.5, 1.5]


@pytest.mark.parametrize(
    ("dtype", "value", "words"),
    [
        ("int32", "[1, 2.5]", "expected int32, got the number 2.5 at [1]"),
        ("int32", "[2147483648]", "got 2147483648"),
        ("uint8", "[-1]", "expected uint8 (0 to 255), got -1"),
        ("uint64", "[18446744073709551615, 0]", ""),
        ("int64", "[9223372036854775808, -1]", "got 9223372036854775808"),
        ("int64", "[true, 1]", "got a boolean at [0]"),
        ("bool", "[true, 1]", "got the number 1 at [1]"),
        ("float32", "[1.0, null]", "got null at [1]"),
        ("float32", "[[1.0], 2.0]", "expected a list of 1, got the number 2.0 at [1]"),
        ("float32", '"1.5"', "got a string at the top"),
        ("float32", "[[1.0, 2.0], [3.0, true]]", "got a boolean at [1][1]"),
        ("string", '["a", 1]', "expected string, got the number 1 at [1]"),
        ("string", '[{"b64": "%%"}]', "valid base64"),
        ("string", '[["a"], ["b", "c"]]', "got a list of 2 at [1]"),
        ("complex64", "[1.0, 2.0, 3.0]", "pairs [real, imaginary]"),
    ],
)
def test_a_value_that_does_not_fit_is_named(dtype: str, value: str, words: str) -> None:
    body = f'{{"inputs": {value}}}'
    if not words:
        assert read(body, signature(x=dtype)).tensors[0].shape == (2,)
        return
    with pytest.raises(InvalidInput) as caught:
        read(body, signature(x=dtype))
    assert 'Input "x"' in caught.value.public_message
    assert words in caught.value.public_message
    assert caught.value.facts["input"] == "x"


@pytest.mark.parametrize(
    ("dtype", "value"),
    [("float32", "1e39"), ("float32", "1.7976931348623157e308"), ("float16", "70000"), ("float32", "1" + "0" * 60)],
)
def test_a_number_too_large_for_its_float_is_infinite_as_in_tensorflow_serving(dtype: str, value: str) -> None:
    got = read(f'{{"inputs": [-{value}, {value}]}}', signature(x=dtype)).tensors[0]
    assert np.frombuffer(got.data, dtype).tolist() == [-math.inf, math.inf]


@pytest.mark.parametrize("text", ["aGk=", "aGk", " aG k\\n", "aGk ="])
def test_base64_may_lack_its_padding_and_hold_white_space(text: str) -> None:
    assert read(f'{{"inputs": {{"b64": "{text}"}}}}', signature(x="string")).tensors[0].data == b"\x02\0\0\0hi"


@pytest.mark.parametrize(
    ("body", "shape"),
    [
        ('{"instances": [1, 2, 5]}', (3,)),
        ('{"instances": [{"x": 1}, {"x": 2}]}', (2,)),
        ('{"instances": [[1, 2], [3, 4]]}', (2, 2)),
        ('{"inputs": 5}', ()),
        ('{"inputs": {"x": [[[1, 2]]]}}', (1, 1, 2)),
        ('{"inputs": []}', (0,)),
    ],
)
@pytest.mark.parametrize("dtype", ["float32", "int64", "string"])
def test_the_shape_that_a_signature_states_is_not_asked_for(body: str, shape: tuple[int, ...], dtype: str) -> None:
    sig = Signature(inputs={"x": TensorSpec(dtype=dtype, shape=(-1, 1))}, outputs={})
    if dtype == "string":
        body = re.sub(r"\d", '"a"', body)
    assert read(body, sig).tensors[0].shape == shape


@pytest.mark.parametrize(
    "body",
    [
        '{"instances": [{"a": 1}]}',
        '{"instances": [{"a": 1, "b": true, "c": 1}]}',
        '{"instances": [1]}',
        '{"instances": []}',
        '{"instances": {"a": 1}}',
        '{"inputs": {"a": [1]}}',
        '{"inputs": [1]}',
    ],
)
def test_inputs_that_are_missing_or_too_many_are_refused(body: str) -> None:
    with pytest.raises(InvalidInput):
        read(body, signature(a="int32", b="bool"))


@pytest.mark.parametrize(
    ("body", "offset"),
    [
        (b"", 0),
        (b'{"instances": [1.0', 18),
        (b'{"instances": [1,]}', 16),
        (b'{"instances": [NaN,}', 19),
        (b'{"instances": ["\xff"]}', 0),
    ],
)
def test_malformed_json_says_where(body: bytes, offset: int) -> None:
    with pytest.raises(InvalidJson) as caught:
        parse(body, BOUNDS)
    assert caught.value.facts["offset"] == offset
    assert caught.value.public_message.endswith(f"at offset: {offset}")


def test_deep_nesting_beside_a_nan_is_refused_and_not_recursed_into() -> None:
    with pytest.raises(InvalidJson):
        parse(b'{"instances": [NaN, ' + b"[" * 90_000, BOUNDS)


def test_size_and_number_of_elements_are_bounded_before_parsing() -> None:
    with pytest.raises(TooLarge):
        parse(b" " * 1_000_001, BOUNDS)
    with pytest.raises(TooLarge):
        parse(b'{"inputs": [' + b"[]," * 60_000, BOUNDS)


def test_decoded_tensors_are_bounded_too() -> None:
    with pytest.raises(TooLarge):
        read('{"inputs": [1.0, 2.0]}', signature(x="float64"), limit=15)


def test_lists_nested_beyond_what_tensors_have_are_refused() -> None:
    for dtype in ("float32", "string"):
        with pytest.raises(InvalidJson):
            read('{"inputs": ' + "[" * 70 + "]" * 70 + "}", signature(x=dtype))


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
        max_leaves=12,
    ),
    st.sampled_from([*NUMERIC, "string", "complex64", "bfloat16"]),
    st.sampled_from(["instances", "inputs", "input"]),
)
def test_whatever_is_sent_is_decoded_or_refused_in_our_words(value: Any, dtype: str, word: str) -> None:
    try:
        got = read(json.dumps({word: value}), signature(x=dtype))
    except (InvalidRequest, TooLarge):
        return
    assert got.tensors[0].dtype == dtype


@pytest.mark.parametrize(("shape", "rows", "is_batched"), [((-1, 2), 3, True), ((3, 2), 1, False), (None, 1, False)])
def test_only_signatures_with_a_free_first_dimension_share_a_run(
    shape: tuple[int, ...] | None, rows: int, is_batched: bool
) -> None:
    spec = TensorSpec(dtype="float32", shape=shape)
    sig = Signature(inputs={"x": spec}, outputs={"y": spec})
    got = read('{"inputs": [[1, 2], [3, 4], [5, 6]]}', sig)
    assert (got.rows, bool(got.batch_key)) == (rows, is_batched)


@pytest.mark.parametrize(
    ("body", "is_batched"),
    [
        ('{"inputs": {"a": [[1, 2]], "b": [1]}}', True),
        ('{"inputs": {"a": [[1, 2, 3, 4]], "b": [1]}}', True),
        ('{"inputs": {"a": [1, 2], "b": [1, 2]}}', False),
        ('{"inputs": {"a": [[1, 2]], "b": [[1]]}}', False),
        ('{"inputs": {"a": [[1, 2]], "b": 1}}', False),
        ('{"inputs": {"a": 1, "b": 1}}', False),
        ('{"inputs": {"a": [[1, 2]], "b": [1, 2]}}', False),
        ('{"inputs": {"a": [], "b": []}}', False),
    ],
)
def test_whoever_has_other_dimensions_than_the_signature_runs_alone(body: str, is_batched: bool) -> None:
    inputs = {"a": TensorSpec(dtype="int64", shape=(-1, 2)), "b": TensorSpec(dtype="int64", shape=(-1,))}
    sig = Signature(inputs=inputs, outputs={"y": inputs["b"]})
    got = read(body, sig)
    assert (got.rows, bool(got.batch_key)) == (1, is_batched)


def test_requests_share_a_batch_only_with_equal_inner_shapes() -> None:
    spec = TensorSpec(dtype="float32", shape=(-1, -1))
    sig = Signature(inputs={"x": spec}, outputs={"y": spec})
    two, again, three = (
        read(body, sig).batch_key
        for body in ('{"inputs": [[1, 2]]}', '{"inputs": [[1, 2], [3, 4]]}', '{"inputs": [[1, 2, 3]]}')
    )
    assert two == again != three
