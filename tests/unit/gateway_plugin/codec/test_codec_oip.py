"""Inference requests of the Open Inference Protocol to tensors, and outputs to its answers: JSON and bytes."""

import gzip
import json
import math
import struct
import zlib
from typing import Any

import numpy as np
import pytest

from gateway_plugin.codec import forms
from gateway_plugin.codec.decoder import inflate
from gateway_plugin.codec.forms import Form
from gateway_plugin.codec.inputs import Decoded, UnknownSignature, plans
from gateway_plugin.codec.oip.datatypes import BINARY_ONLY, DATATYPES, datatype
from gateway_plugin.codec.oip.inputs import MOST_STRINGS
from gateway_plugin.codec.oip.outputs import answer, flat
from signalbox.front.jsonbody import Bounds
from signalbox.program.errors import InvalidRequest, TooLarge
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import DTYPES, ITEM_SIZE, Tensor

BOUNDS = Bounds(1_000_000, 100_000)
LIMIT = 1 << 20


def signature(**inputs: tuple[str, tuple[int, ...] | None]) -> Signature:
    return Signature(
        inputs={name: TensorSpec(dtype=dtype, shape=shape) for name, (dtype, shape) in inputs.items()},
        outputs={"y": TensorSpec(dtype="float32", shape=(-1,))},
    )


SIGNATURES = {
    "serving_default": signature(x=("float32", (-1, 2))),
    "pair": signature(a=("int32", (-1,)), b=("string", (-1,))),
    "text": signature(s=("string", (-1, 1))),
    "image": signature(x=("float32", (-1, 2, -1))),
    "loose": signature(x=("uint8", (2, -1, -1))),
    "any": signature(x=("uint8", None)),
    "fixed": signature(x=("uint8", (2, 3))),
    "nothing": signature(),
    **{dtype: signature(x=(dtype, None)) for dtype in DTYPES},
}
PLANS = plans(SIGNATURES)


def decoded(body: bytes, header_bytes: int | None = None, limit: int = LIMIT) -> Decoded:
    return forms.decode(forms.read(Form.INFER, body, BOUNDS, header_bytes), PLANS, limit)


def raw(body: bytes, name: str) -> Tensor:
    """The input of a body without JSON, of a model with this signature."""
    read = forms.read(Form.INFER, body, BOUNDS, 0)
    (found,) = forms.decode(read, plans({"serving_default": SIGNATURES[name]}), LIMIT).tensors
    return found


def request(*inputs: dict[str, Any], signature_name: str = "", **fields: Any) -> bytes:
    parameters = {"parameters": {"signature_name": signature_name}} if signature_name else {}
    return json.dumps({"inputs": inputs, **parameters, **fields}).encode()


def one(dtype: str, data: Any, shape: Any, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype(dtype), "shape": shape, "data": data}


def binary(dtype: str, size: int, shape: Any, name: str = "x") -> dict[str, Any]:
    return {"name": name, "datatype": datatype(dtype), "shape": shape, "parameters": {"binary_data_size": size}}


def refused(body: bytes, header_bytes: int | None = None) -> str:
    with pytest.raises(InvalidRequest) as caught:
        decoded(body, header_bytes)
    return caught.value.public_message


def test_every_dtype_that_travels_has_a_name() -> None:
    assert set(DATATYPES.values()) == DTYPES
    assert [datatype(dtype) for dtype in DATATYPES.values()] == list(DATATYPES)
    assert datatype("resource") == "RESOURCE"


@pytest.mark.parametrize("data", [[1, 2.5, 3, 4], [[1, 2.5], [3, 4]], [[[1.0], [2.5]], [[3], [4]]], [[1, 2.5, 3, 4]]])
def test_data_may_be_flat_or_nested(data: Any) -> None:
    (tensor,) = decoded(request(one("float32", data, [2, 2]))).tensors
    assert (tensor.name, tensor.dtype, tensor.shape) == ("x", "float32", (2, 2))
    assert np.frombuffer(tensor.data, "<f4").tolist() == [1.0, 2.5, 3.0, 4.0]


@pytest.mark.parametrize("dtype", sorted(set(ITEM_SIZE) - BINARY_ONLY))
@pytest.mark.parametrize("nested", [False, True])
def test_each_dtype_comes_as_json_and_as_the_same_bytes(dtype: str, nested: bool) -> None:
    values = np.array([0, 1, 1, 0, 1, 1]).astype(dtype).reshape(3, 2)
    (as_json,) = decoded(
        request(one(dtype, (values if nested else values.ravel()).tolist(), [3, 2]), signature_name=dtype)
    ).tensors
    head = request(binary(dtype, values.nbytes, [3, 2]), signature_name=dtype)
    (as_bytes,) = decoded(head + values.tobytes(), len(head)).tensors
    assert as_json == as_bytes == Tensor("x", dtype, (3, 2), values.tobytes())


@pytest.mark.parametrize("dtype", sorted(BINARY_ONLY))
def test_dtypes_without_json_come_as_bytes(dtype: str) -> None:
    size = 2 * ITEM_SIZE[dtype]
    head = request(binary(dtype, size, [2]), signature_name=dtype)
    (tensor,) = decoded(head + bytes(range(size)), len(head)).tensors
    assert tensor == Tensor("x", dtype, (2,), bytes(range(size)))
    assert "has no JSON; send its bytes" in refused(request(one(dtype, [1.0, 2.0], [2]), signature_name=dtype))


def test_json_and_bytes_may_be_mixed_and_come_in_any_order() -> None:
    strings = struct.pack("<I2sI", 2, b"hi", 0)
    head = request(binary("string", len(strings), [2], "b"), one("int32", [7, 8], [2], "a"), signature_name="pair")
    found = decoded(head + strings, len(head))
    assert found.tensors == [
        Tensor("a", "int32", (2,), struct.pack("<2i", 7, 8)),
        Tensor("b", "string", (2,), strings),
    ]
    assert (found.signature, found.rows) == ("pair", 2)
    assert found.batch_key


def test_strings_may_be_base64() -> None:
    body = request(one("string", ["hi", {"b64": "/w=="}], [2, 1], "s"), signature_name="text")
    (tensor,) = decoded(body).tensors
    assert tensor.data == b"\x02\0\0\0hi\x01\0\0\0\xff"


@pytest.mark.parametrize(
    ("data", "dtype", "words"),
    [
        ([1.0, 2.0], "int32", "expected int32, got the number 1.0 at [0]"),
        ([1, True], "int32", "got a boolean at [1]"),
        ([1, True], "float32", "got a boolean at [1]"),
        ([1, 0], "bool", "got the number 1 at [0]"),
        ([300, 1], "uint8", "uint8 (0 to 255), got 300"),
        ([1, "2"], "float32", "got a string at [1]"),
        ([1, None], "float32", "got null at [1]"),
        (["a", 1], "string", "got the number 1 at [1]"),
        ([1, 2, 3], "float32", "expected 2 elements for shape [2], got 3"),
        ([[1], [2, 3]], "float32", "expected a list of 1, got a list of 2 at [1]"),
        (1.0, "float32", 'expected a list in "data", got the number 1.0'),
        (None, "float32", 'expected a list in "data", got null'),
    ],
)
def test_numbers_are_strict_and_what_is_wrong_is_named(data: Any, dtype: str, words: str) -> None:
    assert words in refused(request(one(dtype, data, [2]), signature_name=dtype))


@pytest.mark.parametrize("note", ["plain", 'a "quoted" word', "true", "\\u0074rue", "tests"])
@pytest.mark.parametrize("bad", ['"1"', "true", "false"])
@pytest.mark.parametrize("rows", [1, 2_000])
def test_texts_and_booleans_beside_the_data_hide_none_in_it(note: str, bad: str, rows: int) -> None:
    head = f'{{"id": {json.dumps(note)}, "parameters": {{"binary_data_output": true, "note": {json.dumps(note)}}}, '
    data = "1, 2, " * (rows - 1) + "1, %s"
    text = f'{head}"inputs": [{{"name": "x", "datatype": "FP32", "shape": [{rows}, 2], "data": [{data}]}}]}}'
    assert decoded((text % 2).encode()).tensors[0].shape == (rows, 2)
    assert "Input" in refused((text % bad).encode())


def test_only_large_json_is_judged_and_found_plain() -> None:
    def is_plain(data: list[Any]) -> bool:
        found = forms.read(Form.INFER, request(one("float32", data, [len(data)])), BOUNDS).inference
        assert found is not None
        return found.is_plain

    assert is_plain([1.5] * 2_000)
    assert not is_plain([1.5] * 2_000 + [True])
    assert not is_plain([1.5] * 2_000 + ["1"])
    assert not is_plain([1.5])


def test_a_name_in_data_is_no_reason_to_take_a_string_for_a_number() -> None:
    head = request(binary("int32", 4, [1], "a"), signature_name="pair")
    doc = json.loads(head)
    doc["inputs"].append(one("string", ["b"], [1], "b"))
    doc["inputs"].append(one("float32", [True], [1], "c"))
    text = json.dumps(doc).encode()
    assert 'unknown input "c"' in refused(text + b"1234", len(text))


@pytest.mark.parametrize(
    ("shape", "words"),
    [
        (2, 'expected a list in "shape", got the number 2'),
        ([2.0], "whole numbers of at least 0 in its shape"),
        ([-1], "whole numbers of at least 0 in its shape"),
        ([True], "whole numbers of at least 0 in its shape"),
        ([2**63], "whole numbers of at least 0 in its shape"),
        ([1] * 33, "at most 32 dimensions, got 33"),
    ],
)
def test_a_shape_is_a_list_of_sizes(shape: Any, words: str) -> None:
    assert words in refused(request(one("float32", [1.0, 2.0], shape)))


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"[]", "must be a JSON object"),
        (b"{", "JSON Parse error"),
        (b"{}", 'must have a list of "inputs"'),
        (b'{"inputs": {}}', 'must have a list of "inputs"'),
        (b'{"inputs": []}', 'The request lacks the input "x"; the signature "serving_default" has "x"'),
        (request(signature_name="pair"), 'The request lacks the inputs "a", "b"; the signature "pair" has "a", "b"'),
        (b'{"inputs": [1]}', '"inputs"[0] must be an object'),
        (b'{"inputs": [{"name": ""}]}', '"inputs"[0] must have a "name"'),
        (b'{"inputs": [{"name": "x"}]}', "expected a datatype (BOOL, INT8"),
        (b'{"inputs": [{"name": "x", "datatype": "float"}]}', 'BYTES, COMPLEX64, COMPLEX128), got "float"'),
        (b'{"parameters": [], "inputs": [{}]}', '"parameters" of the request must be an object'),
        (request(one("float32", [], [0, 2]), one("float32", [], [0, 2])), 'Input "x" is given twice'),
        (
            request(one("float32", [], [0], "z")),
            'The request lacks the input "x"; the signature "serving_default" has "x"',
        ),
        (request(one("float64", [1, 2], [1, 2])), 'Input "x": expected FP32, got FP64'),
        (
            request(one("uint8", [1], [1]), signature_name="nothing"),
            'an unknown input "x"; the signature "nothing" has no',
        ),
        (request(one("float32", [1, 2], [1, 2]), signature_name="no"), "not found in signature def"),
        (
            request({**one("float32", None, [1]), "parameters": {"shared_memory_region": "r"}}),
            'Input "x" is to lie in shared memory',
        ),
    ],
)
def test_malformed_requests_are_refused_with_the_reason(body: bytes, words: str) -> None:
    assert words in refused(body)


def test_a_signature_without_inputs_is_called_with_none() -> None:
    found = decoded(request(signature_name="nothing"))
    assert (found.tensors, found.signature, found.rows, found.batch_key) == ([], "nothing", 1, "")


def test_unknown_fields_are_ignored() -> None:
    body = request({**one("float32", [1, 2], [1, 2]), "more": 1}, model_name="m", other=[{}])
    assert decoded(body).rows == 1


def test_more_inputs_than_may_be_named_are_refused() -> None:
    assert "at most 1024 are taken" in refused(request(*[one("float32", [], [0], f"n{n}") for n in range(1_025)]))


PLAIN = request(one("float32", [1, 2], [1, 2]))
HEAD = request(binary("float32", 8, [1, 2]))


@pytest.mark.parametrize(
    ("body", "header_bytes", "words"),
    [
        (HEAD + b"1234567", len(HEAD), "expected 8 bytes (its binary_data_size) after the JSON, got 7"),
        (HEAD + b"123456789", len(HEAD), "1 byte follows those of the last input"),
        (HEAD, len(HEAD) + 1, "Inference-Header-Content-Length is"),
        (HEAD + b"12345678", len(HEAD) - 1, "JSON Parse error"),
        (request(binary("float32", 4, [1, 2])) + b"1234", len(HEAD), "expected 8 bytes for float32[1, 2], got 4"),
        (PLAIN + b"x", len(PLAIN), "1 byte follows"),
    ],
)
def test_bytes_must_be_as_many_as_were_announced(body: bytes, header_bytes: int | None, words: str) -> None:
    assert words in refused(body, header_bytes)


@pytest.mark.parametrize(
    "body",
    [
        HEAD,
        HEAD + b"12345678",
        HEAD + b"\xff" * 8,
        HEAD + b",[" * 60_000,  # more than the bound of elements, as bytes may look
        PLAIN + bytes(8),
        struct.pack("<2f", 1, 2),
    ],
)
def test_bytes_without_the_header_that_says_where_they_begin_are_told_of_it(body: bytes) -> None:
    assert "no header Inference-Header-Content-Length" in refused(body)


def test_no_bytes_need_no_header() -> None:
    assert decoded(request(binary("float32", 0, [0, 2]))).tensors[0].shape == (0, 2)
    assert "JSON Parse error" in refused(PLAIN + b"x")


@pytest.mark.parametrize("size", [-1, 1.0, True, "8", 2**63])
def test_a_size_that_is_none_is_refused(size: Any) -> None:
    head = request(binary("float32", size, [1, 2]))
    assert "binary_data_size" in refused(head + b"12345678", len(head))


def test_data_beside_bytes_is_refused() -> None:
    head = request({**binary("float32", 8, [1, 2]), "data": [1, 2]})
    assert 'has both "data" and a binary_data_size' in refused(head + b"12345678", len(head))


@pytest.mark.parametrize(
    "strings",
    [b"", b"\x01\0\0", b"\x02\0\0\0a", b"\x01\0\0\0a", b"\x01\0\0\0ab", b"\xff\xff\xff\xffa\0\0\0\0", b"\0\0\0\0" * 3],
)
def test_bytes_that_are_not_so_many_strings_are_refused(strings: bytes) -> None:
    head = request(binary("string", len(strings), [2, 1], "s"), signature_name="text")
    assert "expected 2 strings, each a 4-byte length and its bytes" in refused(head + strings, len(head))


def test_strings_that_come_as_bytes_are_bounded_in_number() -> None:
    count = MOST_STRINGS + 1
    head = request(binary("string", 4 * count, [count, 1], "s"), signature_name="text")
    with pytest.raises(TooLarge):
        decoded(head + bytes(4 * count), len(head))


def test_a_boolean_s_byte_is_zero_or_one() -> None:
    head = request(binary("bool", 2, [2]), signature_name="bool")
    assert "bytes 0 and 1" in refused(head + b"\x01\x02", len(head))


def test_the_bound_of_a_model_holds_for_bytes_too() -> None:
    with pytest.raises(TooLarge):
        decoded(HEAD + b"12345678", len(HEAD), limit=7)


@pytest.mark.parametrize(
    ("name", "body", "shape"),
    [("image", bytes(24), (1, 2, 3)), ("image", b"", (1, 2, 0)), ("serving_default", bytes(24), (3, 2))],
)
def test_a_body_without_json_is_the_one_input_and_its_shape_is_deduced(
    name: str, body: bytes, shape: tuple[int, ...]
) -> None:
    assert raw(body, name) == Tensor("x", "float32", shape, body)


def test_a_string_without_json_is_sent_as_it_is() -> None:
    assert raw(b"hello", "text") == Tensor("s", "string", (1, 1), b"\x05\0\0\0hello")


@pytest.mark.parametrize(
    ("name", "body", "words"),
    [
        ("pair", b"1234", "is for a model with one input"),
        ("nothing", b"", "has no inputs"),
        ("loose", b"1234", "cannot be deduced"),
        ("any", b"1234", "cannot be deduced"),
        ("fixed", b"1234", "expected a body that fills the shape [2, 3], got 4 elements"),
        ("image", b"123", "expected a body of FP32, got 3 bytes"),
        ("image", b"1234", "fills the shape [-1, 2, -1], got 1 element"),
    ],
)
def test_a_body_without_json_must_fit_one_shape(name: str, body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        raw(body, name)
    assert words in caught.value.public_message


def test_a_signature_that_is_none_is_an_unknown_one() -> None:
    with pytest.raises(UnknownSignature):
        decoded(request(one("float32", [1, 2], [1, 2]), signature_name="no"))


def test_a_body_may_be_compressed_either_way() -> None:
    body = request(one("float32", [1, 2], [1, 2]))
    assert inflate(gzip.compress(body), 1000) == inflate(zlib.compress(body), 1000, "deflate") == body
    with pytest.raises(InvalidRequest, match="not valid deflate"):
        inflate(gzip.compress(body), 1000, "deflate")
    with pytest.raises(TooLarge):
        inflate(zlib.compress(bytes(1001)), 1000, "deflate")


# ---------------------------------------------------------------------------------------------- answers


def tensor(name: str, value: Any, dtype: str = "float32") -> Tensor:
    array = np.array(value, dtype)
    return Tensor(name, dtype, array.shape, array.tobytes())


A = tensor("a", [[1.5, 2.0], [3.0, 0.1]])
B = tensor("b", [1, 2], "int64")
S = Tensor("s_bytes", "string", (2,), b"\x03\0\0\0a\nb\x01\0\0\0\xff")


def test_outputs_go_flat_with_their_shape() -> None:
    body, header_bytes = answer({"model_name": "m"}, [A, B, S], (), flat([A, B, S]))
    assert header_bytes is None
    assert json.loads(body) == {
        "model_name": "m",
        "outputs": [
            {"name": "a", "datatype": "FP32", "shape": [2, 2], "data": [1.5, 2.0, 3.0, 0.1]},
            {"name": "b", "datatype": "INT64", "shape": [2], "data": [1, 2]},
            {"name": "s_bytes", "datatype": "BYTES", "shape": [2], "data": ["a\nb", {"b64": "/w=="}]},
        ],
    }


def test_outputs_go_as_bytes_in_their_order_beside_others_in_json() -> None:
    body, header_bytes = answer({}, [S, A, B], {"s_bytes", "b"}, flat([A]))
    assert header_bytes is not None
    doc = json.loads(body[:header_bytes])
    assert [one.get("parameters") for one in doc["outputs"]] == [
        {"binary_data_size": len(S.data)},
        None,
        {"binary_data_size": 16},
    ]
    assert doc["outputs"][1]["data"] == [1.5, 2.0, 3.0, 0.1]
    assert body[header_bytes:] == S.data + B.data


def test_an_output_without_elements_has_bytes_too() -> None:
    empty = Tensor("e", "float32", (0, 3), b"")
    body, header_bytes = answer({}, [empty], {"e"}, b"")
    assert header_bytes == len(body)
    assert json.loads(body)["outputs"][0]["parameters"] == {"binary_data_size": 0}
    assert json.loads(answer({}, [empty], (), flat([empty])).body)["outputs"][0]["data"] == []


def test_numbers_that_are_not_finite_are_bare_tokens() -> None:
    outputs = [tensor("a", [math.nan, -math.inf, 0.1]), A]
    body, _ = answer({}, outputs, (), flat(outputs))
    assert b'"data":[NaN,-Infinity,0.1]' in body
    assert b'"data":[1.5,2.0,3.0,0.1]' in body


def test_a_scalar_is_a_list_of_one() -> None:
    scalar = tensor("a", 2.5)
    assert json.loads(answer({}, [scalar], (), flat([scalar])).body)["outputs"][0] == {
        "name": "a",
        "datatype": "FP32",
        "shape": [],
        "data": [2.5],
    }


def test_a_rendering_of_every_dtype_is_a_line_of_json() -> None:
    for dtype in DTYPES - BINARY_ONLY:
        data = b"\0\0\0\0" * 2 if dtype == "string" else bytes(2 * ITEM_SIZE[dtype])
        assert len(json.loads(flat([Tensor("x", dtype, (2, 1), data)]))) == 2
