"""ModelInfer's messages against protobuf's own classes: typed contents, raw contents, parameters, and the reply."""

import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from gateway_plugin.codec.oip import messages as oipmessages
from gateway_plugin.codec.oip.datatypes import BINARY_ONLY, datatype
from gateway_plugin.codec.protobuf.protowire import MOST_NAMES
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.wire.tensors import DTYPES, ITEM_SIZE, Tensor

_MESSAGES = {
    "Parameter": ("b:bool=1", "i:int64=2", "s:string=3", "d:double=4", "u:uint64=5"),
    "Entry": ("key:string=1", "value:Parameter=2"),
    "Contents": (
        "bool_contents:bool*=1",
        "int_contents:int32*=2",
        "int64_contents:int64*=3",
        "uint_contents:uint32*=4",
        "uint64_contents:uint64*=5",
        "fp32_contents:float*=6",
        "fp64_contents:double*=7",
        "bytes_contents:bytes*=8",
    ),
    "Tensor": (
        "name:string=1",
        "datatype:string=2",
        "shape:int64*=3",
        "parameters:Entry*=4",
        "contents:Contents=5",
    ),
    "Output": ("name:string=1", "parameters:Entry*=2"),
    "Request": (
        "model_name:string=1",
        "model_version:string=2",
        "id:string=3",
        "parameters:Entry*=4",
        "inputs:Tensor*=5",
        "outputs:Output*=6",
        "raw_input_contents:bytes*=7",
    ),
    "Response": (
        "model_name:string=1",
        "model_version:string=2",
        "id:string=3",
        "outputs:Tensor*=5",
        "raw_output_contents:bytes*=6",
    ),
}
"""The protocol's messages, in the field numbers of ``grpc_predict_v2.proto``; maps are lists of entries."""


def _classes() -> dict[str, Any]:
    file = descriptor_pb2.FileDescriptorProto(name="oip_of_the_tests.proto", package="oip", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    for name, fields in _MESSAGES.items():
        message = file.message_type.add(name=name)
        for text in fields:
            known, _, number = text.partition("=")
            field, _, kind = known.partition(":")
            added = message.field.add(name=field, number=int(number), label=3 if kind.endswith("*") else 1)
            kind = kind.rstrip("*")
            if kind in _MESSAGES:
                added.type, added.type_name = kinds.TYPE_MESSAGE, f".oip.{kind}"
            else:
                added.type = getattr(kinds, f"TYPE_{kind.upper()}")
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return {name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"oip.{name}")) for name in _MESSAGES}


OIP = _classes()
_FIELDS = {
    "bool": "bool_contents",
    **dict.fromkeys(("int8", "int16", "int32"), "int_contents"),
    "int64": "int64_contents",
    **dict.fromkeys(("uint8", "uint16", "uint32"), "uint_contents"),
    "uint64": "uint64_contents",
    "float32": "fp32_contents",
    "float64": "fp64_contents",
    "string": "bytes_contents",
}


def given(data: Any, *, limit: int = 1 << 20, elements: int = 1_000) -> dict[str, Tensor]:
    message = oipmessages.read(data if isinstance(data, bytes) else data.SerializeToString())
    return oipmessages.tensors(message, max_tensor_bytes=limit, max_elements=elements)


def request(*inputs: dict[str, Any], **fields: Any) -> Any:
    return OIP["Request"](model_name="m", inputs=inputs, **fields)


def one(dtype: str, shape: list[int], name: str = "x", **contents: Any) -> dict[str, Any]:
    found = {"contents": contents} if contents else {}
    return {"name": name, "datatype": datatype(dtype), "shape": shape, **found}


def values_of(dtype: str) -> np.ndarray[Any, Any]:
    if dtype == "bool":
        return np.array([True, False, True, True])
    if dtype.startswith("float"):
        return np.array([0.1, -2.5, np.inf, 0], dtype)
    limits = np.iinfo(dtype)
    return np.array([limits.min, limits.max, 1, 0], dtype)


@pytest.mark.parametrize("dtype", sorted(set(_FIELDS) - {"string"}))
def test_typed_contents_are_the_bytes_of_their_dtype(dtype: str) -> None:
    values = values_of(dtype)
    found = given(request(one(dtype, [2, 2], **{_FIELDS[dtype]: values.tolist()})))
    assert found == {"x": Tensor("x", dtype, (2, 2), values.tobytes())}
    assert found == given(request(one(dtype, [2, 2]), raw_input_contents=[values.tobytes()]))


def test_strings_in_typed_contents_get_their_lengths() -> None:
    data = b"\x02\0\0\0hi\0\0\0\0\x01\0\0\0\xff"
    found = given(request(one("string", [3], bytes_contents=[b"hi", b"", b"\xff"])))
    assert found == {"x": Tensor("x", "string", (3,), data)}
    assert found == given(request(one("string", [3]), raw_input_contents=[data]))


@pytest.mark.parametrize("dtype", sorted(BINARY_ONLY))
def test_dtypes_without_typed_contents_come_raw(dtype: str) -> None:
    size = ITEM_SIZE[dtype]
    assert given(request(one(dtype, [1]), raw_input_contents=[bytes(size)]))["x"].dtype == dtype
    with pytest.raises(InvalidInput, match="expected raw_input_contents for"):
        given(request(one(dtype, [1], fp32_contents=[1.0])))


def test_numbers_may_come_unpacked() -> None:
    contents = b"\x18\x01" + b"\x18\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01"  # int64_contents 1 and -1
    shape = b"\x18\x02"
    tensor = b"\x0a\x01x\x12\x05INT64" + shape + b"\x2a" + bytes([len(contents)]) + contents
    found = given(b"\x2a" + bytes([len(tensor)]) + tensor)
    assert found == {"x": Tensor("x", "int64", (2,), struct.pack("<2q", 1, -1))}


def test_a_tensor_without_elements_has_no_contents() -> None:
    assert given(request(one("float32", [0, 3]))) == {"x": Tensor("x", "float32", (0, 3), b"")}


def test_names_parameters_and_outputs_are_as_a_json_body_has_them() -> None:
    entries = [
        {"key": "priority", "value": {"u": 2}},
        {"key": "timeout", "value": {"i": 500}},
        {"key": "binary_data_output", "value": {"b": True}},
        {"key": "signature_name", "value": {"s": "other"}},
        {"key": "scale", "value": {"d": 0.5}},
        {"key": "none"},
    ]
    message = request(
        model_version="3",
        id="42",
        parameters=entries,
        outputs=[{"name": "y", "parameters": [{"key": "classification", "value": {"i": 3}}]}],
    )
    found = oipmessages.read(message.SerializeToString())
    assert (found.model, found.version) == ("m", "3")
    assert found.fields == {
        "id": "42",
        "parameters": {
            "priority": 2,
            "timeout": 500,
            "binary_data_output": True,
            "signature_name": "other",
            "scale": 0.5,
        },
        "outputs": [{"name": "y", "parameters": {"classification": 3}}],
    }


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (request(one("int64", [2], int64_contents=[1])), "expected 2 elements for shape [2], got 1"),
        (request(one("int64", [2])), "expected 2 elements for shape [2], got 0"),
        (request(one("int64", [1], fp32_contents=[1.0])), "expected contents of INT64 alone, got others"),
        (request(one("int64", [1], int64_contents=[1], bool_contents=[True])), "expected contents of INT64 alone"),
        (request(one("int8", [1], int_contents=[300])), "the value 300, which is not within -128 to 127"),
        (request(one("float32", [1]), raw_input_contents=[b"1234", b"5678"]), "1 input and 2 raw_input_contents"),
        (request(one("float32", [1], fp32_contents=[1.0]), raw_input_contents=[b"1234"]), "send one of them"),
        (request(one("float32", [1]), one("float32", [1]), raw_input_contents=[b"1234"] * 2), "is given twice"),
        (request(one("float32", [-1])), "expected sizes of at least 0, got shape [-1]"),
        (request(one("float32", [1] * 33)), "at most 32 dimensions"),
        (request({"name": "x", "datatype": "FLOAT"}), 'got "FLOAT"'),
        (request({"datatype": "FP32"}), "an input has no name"),
        (request(one("string", [1]), raw_input_contents=[b"1234"]), "expected 1 string"),
        (
            request({**one("int8", [1]), "parameters": [{"key": "shared_memory_region", "value": {"s": "r"}}]}),
            "shared memory",
        ),
    ],
)
def test_what_does_not_fit_is_refused_with_the_reason(message: Any, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        given(message)
    assert words in caught.value.public_message


@pytest.mark.parametrize("data", [b"\x0a", b"\x2a\x05ab", b"\x0a\x01\xff", b"\x28\x01", b"\x2a\x02\x0a\x09"])
def test_what_is_no_message_is_refused(data: bytes) -> None:
    with pytest.raises(InvalidRequest):
        given(data)


def test_few_bytes_do_not_become_many_elements() -> None:
    for shape in ([1_001], [2**62, 2**62]):
        with pytest.raises(TooLarge):
            given(request(one("bool", shape, bool_contents=[True])))
    with pytest.raises(TooLarge):
        given(request(one("uint64", [200], uint64_contents=[1] * 200)), limit=1_000)


def test_what_a_request_names_is_bounded() -> None:
    for fields in (
        {"outputs": [{"name": "y"}] * (MOST_NAMES + 1)},
        {"parameters": [{"key": f"p{n}", "value": {"i": 1}} for n in range(MOST_NAMES + 1)]},
        {"raw_input_contents": [b""] * (MOST_NAMES + 1)},
    ):
        with pytest.raises(TooLarge):
            given(request(**fields))


def test_the_reply_is_what_protobuf_reads() -> None:
    outputs = [Tensor("a", "float32", (2, 1), b"12345678"), Tensor("b", "string", (1,), b"\x01\0\0\0x")]
    reply = OIP["Response"].FromString(
        oipmessages.write({"model_name": "m", "model_version": "300", "id": "é"}, outputs)
    )
    assert (reply.model_name, reply.model_version, reply.id) == ("m", "300", "é")
    assert [(one.name, one.datatype, list(one.shape)) for one in reply.outputs] == [
        ("a", "FP32", [2, 1]),
        ("b", "BYTES", [1]),
    ]
    assert list(reply.raw_output_contents) == [tensor.data for tensor in outputs]
    assert OIP["Response"].FromString(oipmessages.write({"model_name": "m", "model_version": "1"}, [])).id == ""


def test_every_dtype_comes_one_way_or_the_other() -> None:
    assert set(_FIELDS) | BINARY_ONLY == DTYPES
