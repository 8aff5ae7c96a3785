"""Arrays on their way: as the Open Inference Protocol's bytes, and as JSON."""

import json
from typing import Any

import numpy as np
import pytest

from gateway_plugin.codec.oip import inputs, outputs, request
from signalbox.client import errors, tensors
from signalbox.client.exchange import Response
from signalbox.front.jsonbody import Bounds
from signalbox.wire.tensors import Tensor

INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
DTYPES = ("bool", *INTEGERS, "float16", "float32", "float64", "complex64", "complex128")


def read(given: dict[str, Any]) -> dict[str, Tensor]:
    """What the gateway reads of a request."""
    body, headers = tensors.encode(given, {})
    found = request.read(body, Bounds(1 << 20, 1 << 20), int(headers[tensors.HEADER]))
    assert found.inputs is not None
    return {
        one.name: inputs.from_bytes(one.name, one.dtype, one.shape, bytes(one.binary or b"")) for one in found.inputs
    }


def answered(*given: Tensor) -> tensors.Arrays:
    """What the client reads of the gateway's answer."""
    body, header_bytes = outputs.answer({}, given, {one.name for one in given}, b"")
    return tensors.decode(Response(200, {tensors.HEADER.lower(): str(header_bytes)}, body))


@pytest.mark.parametrize("dtype", DTYPES)
def test_each_dtype_reaches_the_gateway_and_comes_back(dtype: str) -> None:
    array = (np.arange(6).reshape(2, 3) % 2).astype(dtype)
    sent = read({"x": array})["x"]
    assert (sent.dtype, sent.shape) == (dtype, (2, 3))
    back = answered(sent)["x"]
    np.testing.assert_array_equal(back, array)
    assert back.dtype == array.dtype
    assert back.flags.writeable
    assert back.flags.aligned


def test_other_orders_of_bytes_and_of_elements_do_not_matter() -> None:
    array = np.arange(6, dtype=">i4").reshape(2, 3).T
    np.testing.assert_array_equal(answered(read({"x": array})["x"])["x"], array)


@pytest.mark.parametrize("array", [np.array([["a", "é"]]), np.array([[b"a", "é".encode()]], object), [["a", "é"]]])
def test_strings_go_as_utf8_and_come_as_bytes(array: Any) -> None:
    back = answered(read({"x": array, "y": np.zeros(1)})["x"])["x"]
    assert (back.tolist(), back.shape, back.dtype) == ([[b"a", "é".encode()]], (1, 2), np.dtype(object))


def test_bfloat16_comes_as_float32() -> None:
    data = (np.array([1.5, -2.0], np.float32).view(np.uint32) >> 16).astype("<u2").tobytes()
    assert answered(Tensor("x", "bfloat16", (2,), data))["x"].tolist() == [1.5, -2.0]


def test_an_empty_array_and_a_scalar_keep_their_shapes() -> None:
    given = {"empty": np.zeros((0, 3), np.float32), "one": np.float32(2)}
    shapes = {name: answered(one)[name].shape for name, one in read(given).items()}
    assert shapes == {"empty": (0, 3), "one": ()}


def test_what_cannot_be_sent_is_named() -> None:
    with pytest.raises(errors.InvalidInput, match=r"datetime64.*astype"):
        tensors.encode({"x": np.array(["2026-01-01"], "datetime64[D]")}, {})
    with pytest.raises(errors.InvalidInput, match="neither str nor bytes"):
        tensors.encode({"x": np.array([1, None], object)}, {})
    with pytest.raises(errors.InvalidRequest, match="complex has no JSON"):
        tensors.as_json({"x": np.array([1j])})


def test_arrays_and_bytes_have_json() -> None:
    doc = {"x": np.array([[1, 2]], np.int64), "s": np.array([b"a"], object), "one": np.float32(0.5)}
    assert json.loads(tensors.as_json(doc)) == {"x": [[1, 2]], "s": [{"b64": "YQ=="}], "one": 0.5}


def test_an_answer_without_tensors_is_our_fault() -> None:
    for body in (b"", b"{}", b'{"outputs": [{"name": "y"}]}', b'{"outputs": 1}'):
        with pytest.raises(errors.Bug, match="no tensors"):
            tensors.decode(Response(200, {}, body))
