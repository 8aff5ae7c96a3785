"""Fields of protobuf messages from bytes, and packed varints, against protobuf's own classes."""

import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway_plugin.codec.protobuf import protowire, varints
from gateway_plugin.codec.protobuf.protowire import FIXED32, FIXED64, LENGTH, LONGEST_NAME, VARINT, WireReader
from gateway_plugin.proto.example_pb2 import Int64List
from gateway_plugin.proto.serving_pb2 import TensorShapeProto
from signalbox.program.errors import InvalidRequest, TooLarge

INT64 = st.integers(-(2**63), 2**63 - 1)
NUMBERS = st.lists(INT64 | st.integers(0, 300), max_size=40)


def fields(data: bytes, most: int = 100) -> list[tuple[int, int, bytes]]:
    return [(f.number, f.kind, bytes(f.data)) for f in WireReader("Message", most).fields(memoryview(data))]


def test_fields_of_every_wire_type_are_slices_of_the_message() -> None:
    data = b"\x08\x96\x01" + b"\x12\x02hi" + b"\x1d\x00\x00\x80\x3f" + b"\x21" + bytes(8) + b"\x82\x01\x00"
    assert fields(data) == [
        (1, VARINT, b"\x96\x01"),
        (2, LENGTH, b"hi"),
        (3, FIXED32, b"\x00\x00\x80\x3f"),
        (4, FIXED64, bytes(8)),
        (16, LENGTH, b""),
    ]


@given(value=INT64, name=st.text(max_size=20))
def test_what_protobuf_writes_is_read_and_what_is_written_protobuf_reads(value: int, name: str) -> None:
    dim = TensorShapeProto.Dim(size=value, name=name)
    reader = WireReader("Dim")
    found = {field.number: field for field in reader.fields(memoryview(dim.SerializeToString()))}
    assert (reader.integer(found[1]) if 1 in found else 0) == value
    assert (reader.name(found[2]) if 2 in found else "") == name
    made = protowire.number(1, value) + protowire.field(2, name.encode())
    assert TensorShapeProto.Dim.FromString(made) == dim


@pytest.mark.parametrize(
    ("data", "words"),
    [
        (b"\x80", "a number does not end"),
        (b"\x08" + b"\x80" * 10 + b"\x01", "a number does not end"),
        (b"\x08", "a number does not end"),
        (b"\x00\x00", "there is no field 0"),
        (b"\x80\x80\x80\x80\x80\x80\x01\x00", "there is no field"),
        (b"\x0a\x02a", "field 1 goes on behind the end"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01a", "field 1 goes on behind the end"),
        (b"\x0d\x00\x00", "field 1 goes on behind the end"),
        (b"\x0b\x0c", "field 1 has the wire type 3"),
        (b"\x0f", "field 1 has the wire type 7"),
    ],
)
def test_what_is_no_message_is_refused(data: bytes, words: str) -> None:
    with pytest.raises(InvalidRequest, match="The Message is malformed: ") as caught:
        fields(data)
    assert words in caught.value.public_message


def test_the_fields_of_a_request_are_bounded_together() -> None:
    reader = WireReader("Message", 3)
    (outer,) = reader.fields(memoryview(b"\x0a\x04\x08\x00\x08\x00"))
    assert len(list(reader.fields(outer.data))) == 2
    with pytest.raises(TooLarge, match="more than 3 fields"):
        list(reader.fields(outer.data))


def test_fields_of_another_type_than_their_number_s_are_refused() -> None:
    reader = WireReader("Message")
    number, text = reader.fields(memoryview(b"\x08\x05\x12\x01a"))
    for wrong in (lambda: reader.message(number), lambda: reader.name(number), lambda: reader.integer(text)):
        with pytest.raises(InvalidRequest, match="wire type"):
            wrong()


def test_names_are_short_and_utf_8() -> None:
    reader = WireReader("Message")
    for name in (b"\xff", b"a" * (LONGEST_NAME + 1)):
        (field,) = reader.fields(memoryview(protowire.field(1, name)))
        with pytest.raises(InvalidRequest, match="field 1, a name"):
            reader.name(field)


def test_an_entry_without_a_name_or_a_value_has_the_defaults() -> None:
    reader = WireReader("Message")
    (whole, bare) = reader.fields(memoryview(b"\x0a\x06\x0a\x01x\x12\x01v" + b"\x0a\x00"))
    name, value = reader.entry(whole)
    assert value is not None
    assert (name, bytes(value.data)) == ("x", b"v")
    assert reader.entry(bare) == ("", None)


@given(st.binary(max_size=60))
def test_whatever_bytes_come_are_fields_or_are_refused(data: bytes) -> None:
    try:
        found = fields(data)
    except InvalidRequest:
        return
    assert sum(len(part) for _, _, part in found) < max(1, len(data))


@given(NUMBERS)
def test_varints_are_unpacked_and_packed_as_protobuf_does(numbers: list[int]) -> None:
    packed = protowire.field(1, varints.pack(np.array(numbers, np.int64)))
    assert Int64List.FromString(packed if numbers else b"").value == numbers
    theirs = Int64List(value=numbers).SerializeToString()
    data = b"".join(bytes(f.data) for f in WireReader("List").fields(memoryview(theirs)))
    assert varints.count(data) == len(numbers)
    assert varints.unpack(data, 10**6).view(np.int64).tolist() == numbers
    assert varints.unpack(data, 3).size == min(3, len(numbers))


@pytest.mark.parametrize("dtype", ["bool", "uint8", "int8", "int16", "uint16", "int32", "uint32", "int64", "uint64"])
def test_many_varints_of_every_dtype_survive_in_pieces(dtype: str) -> None:
    limits = np.iinfo(dtype) if dtype != "bool" else np.iinfo("uint8")
    rng = random.Random(dtype)
    numbers = [rng.choice((limits.min, limits.max, 0, 1, rng.randrange(limits.max))) for _ in range(70_000)]
    values = np.array(numbers, dtype)
    found = varints.unpack(varints.pack(values), 10**6)
    np.testing.assert_array_equal(found.astype(dtype), values)


@pytest.mark.parametrize(
    "data", [b"\x80", b"\x01\xff", b"\x80" * 10 + b"\x01", b"\x80" * 300_000 + b"\x01", b"\x01" + b"\x80" * 300_000]
)
def test_bytes_that_are_no_varints_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match="packed numbers"):
        varints.unpack(data, 10)
