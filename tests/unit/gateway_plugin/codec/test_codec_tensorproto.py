"""TensorProto to tensors and back; what TensorFlow itself makes of them: test_codec_tensorflow.py."""

from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.protobuf import tensorproto, varints
from gateway_plugin.codec.protobuf.protowire import MOST_FIELDS, WireReader, field, number
from gateway_plugin.codec.protobuf.tensorproto import ENUMERATORS
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.wire.tensors import ITEM_SIZE, Tensor

ROOM = 1 << 20


def read(message: bytes, room: int = ROOM) -> Tensor:
    return tensorproto.read(WireReader("PredictRequest"), "x", memoryview(message), room)


def shape(*sizes: int) -> bytes:
    return field(2, b"".join(field(2, number(1, size)) for size in sizes))


def proto(dtype: str, *sizes: int) -> bytes:
    return number(1, ENUMERATORS[dtype]) + shape(*sizes)


def packed(at: int, *values: int) -> bytes:
    return field(at, varints.pack(np.array(values, np.int64)))


def floats(*values: float) -> bytes:
    return field(5, np.array(values, "<f4").tobytes())


def of(dtype: str, values: list[int]) -> Tensor:
    return Tensor("x", dtype, (len(values),), np.array(values, dtype).tobytes())


@pytest.mark.parametrize("dtype", [*ITEM_SIZE, "string"])
@given(data=st.data())
def test_what_is_written_is_read(dtype: str, data: st.DataObject) -> None:
    sizes = data.draw(st.lists(st.integers(0, 3), max_size=4))
    if dtype == "string":
        raw = b"\x02\0\0\0\xff\x00" * prod(sizes)
    else:
        raw = data.draw(st.binary(min_size=(size := prod(sizes) * ITEM_SIZE[dtype]), max_size=size))
        raw = bytes(byte & 1 for byte in raw) if dtype == "bool" else raw
    sent = Tensor("x", dtype, tuple(sizes), raw)
    assert read(b"".join(tensorproto.write(sent))) == sent


def test_one_value_stands_for_all_and_the_last_for_those_that_are_missing() -> None:
    assert read(proto("float32", 3) + floats(1.5)) == of("float32", [1.5, 1.5, 1.5])  # type: ignore[list-item]
    assert read(proto("int64", 4) + packed(10, -1, 7)) == of("int64", [-1, 7, 7, 7])
    assert read(proto("uint8", 2) + packed(7, 1, 2, 3)) == of("uint8", [1, 2])
    assert read(proto("bool", 3)) == of("bool", [0, 0, 0])
    strings = read(proto("string", 3) + field(8, b"a") + field(8, b"bc"))
    assert split_strings(strings.data) == [b"a", b"bc", b"bc"]


@given(values=st.lists(st.integers(-(2**31), 2**31 - 1), min_size=1, max_size=9), cuts=st.lists(st.booleans()))
def test_numbers_may_come_unpacked_and_in_several_chunks(values: list[int], cuts: list[bool]) -> None:
    count = len(values)
    each = list(zip(values, [*cuts, *[True] * count][:count], strict=True))
    ints = b"".join(packed(7, value) if is_packed else number(7, value) for value, is_packed in each)
    assert read(proto("int32", count) + ints) == of("int32", values)
    parts = b"".join(floats(value) if is_packed else b"\x2d" + np.float32(value).tobytes() for value, is_packed in each)
    assert read(proto("float32", count) + parts) == of("float32", values)


def test_a_shape_in_parts_is_put_together_and_the_last_content_counts() -> None:
    message = proto("uint8", 2) + field(4, b"ab") + shape(3) + field(4, b"abcdef")
    assert read(message) == Tensor("x", "uint8", (2, 3), b"abcdef")


@pytest.mark.parametrize(
    ("message", "words"),
    [
        (b"", "expected a dtype of bfloat16, bool, "),
        (number(1, 20), "got the number 20"),
        (number(1, 101), "got the number 101"),
        (proto("float32", -1) + floats(1.0), "expected sizes of at least 0, got -1"),
        (proto("float32", *[1] * 33) + floats(1.0), "expected at most 32 dimensions, got more"),
        (number(1, 1) + field(2, number(3, 1)), "expected a shape, got an unknown rank"),
        (proto("float32", 2) + field(4, b"1234"), "got tensor_content of 4 bytes instead of 8"),
        (proto("string", 2) + field(4, b"\x01\x02ab"), "got tensor_content of 4 bytes instead of 5"),
        (proto("string", 2) + field(4, b"\x01"), "got tensor_content with 1 lengths"),
        (proto("int8", 1) + packed(7, 128), "got the value 128, which is not within -128 to 127"),
        (proto("uint16", 1) + packed(7, -1), "got the value -1, which is not within 0 to 65535"),
        (proto("float16", 1) + packed(13, 65536), "got the value 65536, which is not within 0 to 65535"),
        (proto("int32", 1) + field(7, b"\x80"), "got packed numbers end in the middle of one"),
        (proto("float32", 1) + field(5, b"12345"), "got a part of a number"),
        (proto("float32", 1) + number(5, 1), "got values of another type than float32's"),
        (proto("int32", 1) + b"\x3d1234", "got values of another type than int32's"),
        (proto("string", 1) + number(8, 1), "got values of another type than string's"),
    ],
)
def test_what_is_no_tensor_is_refused_in_tensorflow_serving_s_words_first(message: bytes, words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        read(message)
    assert caught.value.public_message.startswith('tensor parsing error: x. Input "x": ')
    assert words in caught.value.public_message


@pytest.mark.parametrize(
    "message",
    [
        proto("float32", 2**62, 2**62) + floats(1.0),
        proto("float64", ROOM // 8 + 1),
        proto("string", ROOM) + field(8, b"a"),
        proto("string", 100) + field(8, b"a" * (ROOM // 100)),
        proto("string", MOST_FIELDS + 1),
    ],
)
def test_a_small_message_makes_no_large_tensor(message: bytes) -> None:
    with pytest.raises(TooLarge):
        read(message)


@settings(max_examples=300)
@given(
    st.lists(
        st.binary(max_size=6)
        | st.builds(number, st.integers(1, 20), st.integers(0, 30) | st.integers(0, 2**64))
        | st.builds(field, st.integers(1, 20), st.binary(max_size=8)),
        max_size=8,
    )
)
def test_whatever_bytes_come_are_a_tensor_of_their_shape_or_are_refused(parts: list[bytes]) -> None:
    data = b"".join(parts)
    try:
        found = read(data, 4096)
    except InvalidRequest:
        return
    assert len(found.data) <= 4096 + len(data)
    if found.dtype == "string":
        assert len(split_strings(found.data)) == prod(found.shape)
    else:
        assert len(found.data) == prod(found.shape) * ITEM_SIZE[found.dtype]
