"""TensorProto to tensors and back, against TensorFlow itself."""

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from tensorflow.core.framework.tensor_pb2 import TensorProto
from tensorflow.core.framework.types_pb2 import DataType

from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.protobuf import tensorproto, varints
from gateway_plugin.codec.protobuf.protowire import WireReader
from signalbox.wire.tensors import DTYPES, ITEM_SIZE, Tensor

NUMERIC = sorted(set(ITEM_SIZE) - {"bfloat16"})
SHAPES = hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)
TEXTS = st.lists(st.binary(max_size=12), max_size=8)


def read(message: bytes | TensorProto) -> Tensor:
    data = message if isinstance(message, bytes) else message.SerializeToString()
    return tensorproto.read(WireReader("PredictRequest"), "x", memoryview(data), 1 << 20)


def array(tensor: Tensor) -> Any:
    """The tensor as TensorFlow has it."""
    if tensor.dtype == "string":
        return np.array(split_strings(tensor.data), object).reshape(tensor.shape)
    return np.frombuffer(tensor.data, tf.as_dtype(tensor.dtype).as_numpy_dtype).reshape(tensor.shape)


def proto(dtype: str, shape: list[int], **values: Any) -> TensorProto:
    made = TensorProto(dtype=tf.as_dtype(dtype).as_datatype_enum, **values)
    for size in shape:
        made.tensor_shape.dim.add(size=size)
    return made


def test_every_dtype_that_travels_has_tensorflow_s_number() -> None:
    assert tensorproto.ENUMERATORS.keys() == DTYPES
    for dtype, number in tensorproto.ENUMERATORS.items():
        assert DataType.Name(number) == DataType.Name(tf.as_dtype(dtype).as_datatype_enum)


@pytest.mark.parametrize("dtype", NUMERIC)
@given(data=st.data())
def test_what_tensorflow_makes_of_an_array_is_read(dtype: str, data: st.DataObject) -> None:
    sent = data.draw(hnp.arrays(dtype, SHAPES))
    found = read(tf.make_tensor_proto(sent))
    assert (found.dtype, found.shape, found.data) == (dtype, sent.shape, sent.tobytes())


@pytest.mark.parametrize("dtype", sorted(ITEM_SIZE))
@given(data=st.data())
def test_what_is_written_tensorflow_reads_in_typed_fields(dtype: str, data: st.DataObject) -> None:
    count = data.draw(st.integers(0, 6))
    raw = data.draw(st.binary(min_size=count * ITEM_SIZE[dtype], max_size=count * ITEM_SIZE[dtype]))
    if dtype == "bool":
        raw = bytes(byte & 1 for byte in raw)
    sent = Tensor("x", dtype, (count,), raw)
    written = b"".join(tensorproto.write(sent))
    theirs = TensorProto.FromString(written)
    assert not theirs.tensor_content
    assert tf.make_ndarray(theirs).tobytes() == raw or has_nan(sent)
    assert tf.io.parse_tensor(written, theirs.dtype).numpy().tobytes() == raw
    assert read(written) == sent


def has_nan(tensor: Tensor) -> bool:
    """Whether Python's protobuf may have changed the bits of an element on its way through a float."""
    return tensor.dtype in {"float32", "complex64"} and bool(np.isnan(array(tensor)).any())


@given(items=TEXTS)
def test_strings_go_both_ways_also_as_tensorflow_s_c_packs_them(items: list[bytes]) -> None:
    made = tf.make_tensor_proto(np.array(items, object), dtype=tf.string, shape=[len(items)])
    found = read(made)
    assert split_strings(found.data) == items
    assert read(b"".join(tensorproto.write(found))) == found
    assert list(TensorProto.FromString(b"".join(tensorproto.write(found))).string_val) == items
    lengths = varints.pack(np.array([len(item) for item in items], np.uint64))
    assert read(proto("string", [len(items)], tensor_content=lengths + b"".join(items))) == found


@pytest.mark.parametrize(
    ("dtype", "field", "values"),
    [
        ("float32", "float_val", [1.5, -2.0]),
        ("float64", "double_val", [1.5, 1e300]),
        ("int32", "int_val", [-(2**31), 2**31 - 1]),
        ("uint8", "int_val", [0, 255]),
        ("int16", "int_val", [-(2**15), 2**15 - 1]),
        ("int8", "int_val", [-128, 127]),
        ("uint16", "int_val", [0, 65535]),
        ("string", "string_val", [b"", b"\xff\x00"]),
        ("complex64", "scomplex_val", [1.0, 2.0, 3.0, 4.0]),
        ("int64", "int64_val", [-(2**63), 2**63 - 1]),
        ("bool", "bool_val", [True, False]),
        ("complex128", "dcomplex_val", [1.0, 2.0, 3.0, 4.0]),
        ("float16", "half_val", [0x3C00, 0xFFFF]),
        ("bfloat16", "half_val", [0x3F80, 0xFFFF]),
        ("uint32", "uint32_val", [0, 2**32 - 1]),
        ("uint64", "uint64_val", [0, 2**64 - 1]),
    ],
)
@pytest.mark.parametrize("shape", [[2], [5], [1], [], [2, 3], [0, 7]])
def test_typed_fields_fill_a_tensor_as_tensorflow_s_server_fills_it(
    dtype: str, field: str, values: list[Any], shape: list[int]
) -> None:
    width = 2 if dtype.startswith("complex") else 1
    for given_values in (values, values[:width], []):
        made = proto(dtype, shape, **{field: given_values})
        theirs = tf.io.parse_tensor(made.SerializeToString(), made.dtype).numpy()  # Tensor::FromProto
        found = read(made)
        assert found.shape == tuple(shape)
        if dtype == "string":
            assert array(found).tolist() == (theirs.tolist() if shape else theirs)
        else:
            assert found.data == theirs.tobytes()
