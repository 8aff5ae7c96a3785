"""TFRequest and TFResponse, against protobuf's own reading of the queue product's messages."""

import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.codec import tfrequest
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.inputs import UnknownSignature
from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.codec.protobuf.protowire import FEW_FIELDS, MOST_NAMES, TooManyFields, field, number
from gateway_plugin.codec.protobuf.tensorproto import ENUMERATORS
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Limits, Model, Signature, TensorSpec, Version
from signalbox.wire.tensors import ITEM_SIZE, Tensor

FLOATS = TensorSpec(dtype="float32", shape=(-1,))
VALUES = {"float32": "float_val", "float64": "double_val", "string": "string_val", "int64": "int64_val"} | {
    "bool": "bool_val",
    **dict.fromkeys(("int32", "uint8", "int16", "int8", "uint16"), "int_val"),
}


def _messages() -> tuple[Any, Any]:
    """The product's two messages, as its client declares them."""
    file = descriptor_pb2.FileDescriptorProto(name="tf_request_of_tests.proto", package="eas", syntax="proto3")
    kinds = descriptor_pb2.FieldDescriptorProto
    shape = file.message_type.add(name="Shape")
    shape.field.add(name="dim", number=1, type=kinds.TYPE_INT64, label=kinds.LABEL_REPEATED)
    array = file.message_type.add(name="Array")
    array.field.add(name="dtype", number=1, type=kinds.TYPE_INT32, label=kinds.LABEL_OPTIONAL)
    array.field.add(
        name="array_shape", number=2, type=kinds.TYPE_MESSAGE, type_name=".eas.Shape", label=kinds.LABEL_OPTIONAL
    )
    for at, (name, kind) in enumerate(
        [
            ("float_val", kinds.TYPE_FLOAT),
            ("double_val", kinds.TYPE_DOUBLE),
            ("int_val", kinds.TYPE_INT32),
            ("string_val", kinds.TYPE_BYTES),
            ("int64_val", kinds.TYPE_INT64),
            ("bool_val", kinds.TYPE_BOOL),
        ],
        3,
    ):
        array.field.add(name=name, number=at, type=kind, label=kinds.LABEL_REPEATED)
    for name, at in (("Request", 2), ("Response", 1)):
        message = file.message_type.add(name=name)
        pair = message.nested_type.add(name="PairsEntry")
        pair.options.map_entry = True
        pair.field.add(name="key", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
        pair.field.add(
            name="value", number=2, type=kinds.TYPE_MESSAGE, type_name=".eas.Array", label=kinds.LABEL_OPTIONAL
        )
        message.field.add(
            name="pairs",
            number=at,
            type=kinds.TYPE_MESSAGE,
            type_name=f".eas.{name}.PairsEntry",
            label=kinds.LABEL_REPEATED,
        )
    request = file.message_type[2]
    request.field.add(name="signature_name", number=1, type=kinds.TYPE_STRING, label=kinds.LABEL_OPTIONAL)
    request.field.add(name="output_filter", number=3, type=kinds.TYPE_STRING, label=kinds.LABEL_REPEATED)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    made = (
        message_factory.GetMessageClass(pool.FindMessageTypeByName(f"eas.{name}")) for name in ("Request", "Response")
    )
    return next(made), next(made)


Request, Response = _messages()


def version(**signatures: Signature) -> PreparedVersion:
    limits = Limits(max_payload_bytes=1000)
    return PreparedVersion(Model(name="m", limits=limits), Version(version=1, path="/nowhere", signatures=signatures))


READY = version(
    serving_default=Signature(inputs={"x": FLOATS}, outputs={"y": FLOATS, "z": FLOATS}),
    scaled=Signature(
        inputs={"x": FLOATS, "scale": TensorSpec(dtype="float32", shape=())},
        outputs={"y": FLOATS},
        defaults={"scale": number(1, 1) + field(2, b"") + field(5, struct.pack("<f", 2.0))},
    ),
    half=Signature(inputs={"x": FLOATS}, outputs={"y": FLOATS, "h": TensorSpec(dtype="float16", shape=(-1,))}),
)


def asked(signature: str = "", outputs: tuple[str, ...] = (), /, **arrays: tuple[str, list[int], list[Any]]) -> bytes:
    request = Request(signature_name=signature, output_filter=outputs)
    for name, (dtype, sizes, values) in arrays.items():
        array = request.pairs[name]
        array.dtype = ENUMERATORS[dtype]
        array.array_shape.dim.extend(sizes)
        getattr(array, VALUES[dtype]).extend(values)
    body = request.SerializeToString(deterministic=True)
    assert isinstance(body, bytes)
    return body


def decoded(body: bytes, ready: PreparedVersion = READY, most: int = FEW_FIELDS) -> DecodedInputs:
    return tfrequest.decoded(tfrequest.read(body), ready, most)


def inputs(body: bytes, ready: PreparedVersion = READY) -> dict[str, Tensor]:
    return {tensor.name: tensor for tensor in tensors.decode(decoded(body, ready).frame)}


X = ("float32", [2], [1.0, 2.5])


def test_the_first_byte_tells_a_request_from_json() -> None:
    assert tfrequest.is_one(asked("serving_default", x=X))
    assert tfrequest.is_one(asked(x=X))
    assert tfrequest.is_one(asked("ten_letter", x=X)), "the name's length is a line end too"
    for text in (b"", b"{}", b'{"instances": [1]}', b'\n{"instances": [1]}', b"\n\n {}", b"[1]", b"plain"):
        assert not tfrequest.is_one(text), text


def test_a_request_names_its_signature_inputs_and_outputs() -> None:
    found = decoded(asked("serving_default", ("z",), x=X))
    assert (found.signature, found.outputs, found.rows) == ("serving_default", ("z",), 2)
    assert inputs(asked(x=X)) == {"x": Tensor("x", "float32", (2,), struct.pack("<2f", 1.0, 2.5))}
    assert decoded(asked("", ("z", "y"), x=X)).outputs == ()
    assert inputs(asked("scaled", x=X))["scale"] == Tensor("scale", "float32", (), struct.pack("<f", 2.0))


@pytest.mark.parametrize("dtype", VALUES)
@given(data=st.data())
def test_arrays_of_each_kind_come_in_and_go_out_as_protobuf_has_them(dtype: str, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=3))
    count = int(np.prod(sizes, dtype=int))
    raw = data.draw(st.binary(min_size=count * ITEM_SIZE.get(dtype, 1), max_size=count * ITEM_SIZE.get(dtype, 1)))
    if dtype == "string":
        values: list[Any] = [raw[:at] for at in range(count)]
        stored = b"".join(struct.pack("<I", len(value)) + value for value in values)
    else:
        array = np.frombuffer(raw, np.uint8) % 2 == 1 if dtype == "bool" else np.frombuffer(raw, dtype)
        values, stored = array.tolist(), array.tobytes()
    ready = version(
        serving_default=Signature(
            inputs={"x": TensorSpec(dtype=dtype, shape=None)}, outputs={"y": TensorSpec(dtype=dtype, shape=None)}
        )
    )
    found = inputs(asked(x=(dtype, sizes, values)), ready)["x"]
    assert (found.dtype, found.shape) == (dtype, tuple(sizes))
    if dtype != "float32":  # protobuf's own float makes another of some numbers that are none
        assert found.data == stored
    reply = Response.FromString(tfrequest.written([Tensor("y", dtype, tuple(sizes), found.data)]))
    array = reply.pairs["y"]
    assert (array.dtype, list(array.array_shape.dim)) == (ENUMERATORS[dtype], sizes)
    given_out = list(getattr(array, VALUES[dtype]))
    assert np.array_equal(given_out, values) if dtype == "string" else np.array_equal(given_out, values, equal_nan=True)


def test_a_reply_holds_each_output_by_its_name() -> None:
    reply = Response.FromString(
        tfrequest.written([Tensor("y", "float32", (1,), struct.pack("<f", 0.5)), Tensor("n", "int8", (), b"\xff")])
    )
    assert list(reply.pairs["y"].float_val) == [0.5]
    assert list(reply.pairs["n"].int_val) == [-1]
    assert tfrequest.written([]) == b""


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (asked(), "lacks the input"),
        (asked(other=X), 'lacks the input "x"'),
        (asked(x=X, other=X), 'unknown input "other"'),
        (asked("", ("nothing",), x=X), 'no output "nothing"'),
        (asked("half", x=X), "float16, for which a TFResponse has no place"),
        (asked(x=("float32", [3], [1.0])), "expected 3 elements for shape [3], got 1"),
        (asked(x=("float32", [1], [1.0, 2.0])), "expected 1 element for shape [1], got 2"),
        (asked(x=("float32", [-1], [])), "sizes of at least 0"),
        (asked(x=("float32", [1] * 33, [1.0])), "at most 32 dimensions"),
        (asked(x=("int32", [2], [1, 2])), "expected float32, got int32"),
        (field(2, field(1, b"x") + field(2, number(1, 18))), "the number 18"),
        (field(2, field(1, b"x") + field(2, number(1, 1) + field(2, field(1, b"\x80")))), "end in the middle"),
        (field(2, field(1, b"x") + field(2, number(1, 1) + field(2, field(1, b"\x01")) + field(3, b"abc"))), "got 0"),
    ],
)
def test_what_does_not_fit_is_refused_before_anything_runs(body: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decoded(body)
    assert words in caught.value.public_message


def test_outputs_that_have_a_place_may_be_asked_for_beside_one_that_has_none() -> None:
    assert decoded(asked("half", ("y",), x=X)).outputs == ("y",)
    with pytest.raises(InvalidRequest, match="no place"):
        tfrequest.written([Tensor("h", "float16", (1,), b"\0\0")])


def test_a_narrow_number_out_of_range_is_refused() -> None:
    ready = version(
        serving_default=Signature(inputs={"x": TensorSpec(dtype="int8", shape=None)}, outputs={"y": FLOATS})
    )
    with pytest.raises(InvalidInput, match="-128 to 127"):
        decoded(asked(x=("int8", [1], [300])), ready)


def test_unknown_signatures_large_arrays_and_very_many_parts_are_refused() -> None:
    with pytest.raises(UnknownSignature):
        decoded(asked("other", x=X))
    with pytest.raises(TooLarge):
        decoded(asked(x=("float32", [1000], [1.0] * 1000)))
    with pytest.raises(TooLarge):
        decoded(asked(x=("float32", [2**40], [1.0])))
    with pytest.raises(InvalidRequest, match="more than"):
        tfrequest.read(b"".join(field(3, b"%d" % at) for at in range(MOST_NAMES + 1)))
    with pytest.raises(TooManyFields):
        tfrequest.read(field(3, b"y") * (FEW_FIELDS + 1))


def test_unpacked_numbers_are_taken() -> None:
    array = number(1, 1) + field(2, number(1, 2)) + b"".join(b"\x1d" + struct.pack("<f", one) for one in (1.0, 2.0))
    body = field(2, field(1, b"x") + field(2, array))
    assert inputs(body)["x"].data == struct.pack("<2f", 1.0, 2.0)


@given(st.binary(max_size=60))
def test_no_bytes_fail_otherwise_than_as_a_bad_request(body: bytes) -> None:
    try:
        decoded(body)
    except InvalidRequest:
        pass
    else:
        assert tfrequest.read(body).inputs


def test_strings_keep_their_bytes() -> None:
    texts = TensorSpec(dtype="string", shape=None)
    ready = version(serving_default=Signature(inputs={"x": texts}, outputs={"y": texts}))
    found = inputs(asked(x=("string", [2], [b"\xff", b""])), ready)["x"]
    assert split_strings(found.data) == [b"\xff", b""]
