"""Frames of tensors: what is taken for one, and that a few bytes of a model's cannot ask for a long answer."""

import json
import math
from typing import Any

import msgspec
import pytest

from gateway_plugin.codec.decoder import Decoder, ErrorReply, RenderAsk, rendered
from gateway_plugin.codec.inputs import decode as decode_body
from gateway_plugin.codec.inputs import plans
from gateway_plugin.codec.outputs import MOST_SHRUNK, least_bytes, render
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import Bug, ResultTooLarge, TooLarge, meaning
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.tensors import DTYPES, ITEM_SIZE, MAX_HOLLOW, MAX_RANK, Tensor, decode, encode

NOTHING = b"\0\0\0\0"
FITTING = [
    *(Tensor("x", dtype, (2, 3), bytes(6 * size)) for dtype, size in ITEM_SIZE.items()),
    Tensor("x", "string", (2, 1), NOTHING + b"\x02\0\0\0ab"),
    Tensor("x", "string", (), NOTHING),
    Tensor("x", "float32", (0, 224, 224, 3), b""),
    Tensor("x", "string", (3, 0, 10**12), b""),
    Tensor("x", "int8", (MAX_HOLLOW, 0), b""),
    Tensor("x", "int8", (1,) * MAX_RANK, b"\1"),
]
WRONG = [
    Tensor("x", "float32", (2,), bytes(4)),
    Tensor("x", "float32", (2,), bytes(9)),
    Tensor("x", "float32", (-2, -1), bytes(8)),
    Tensor("x", "float32", (-1, 0), b""),
    Tensor("x", "float33", (1,), bytes(4)),
    Tensor("x", "string", (2,), NOTHING),
    Tensor("x", "string", (1,), b"\0\0"),
    Tensor("x", "string", (1,), b"\x09\0\0\0cut"),
    Tensor("x", "string", (), b""),
    Tensor("x", "int8", (1,) * (MAX_RANK + 1), b"\1"),
    Tensor("x", "string", (MAX_HOLLOW + 1, 0), b""),
    Tensor("x", "float32", (10**12, 0), b""),
    Tensor("x", "string", (10**6, 10**6, 0, 5), b""),
]


@pytest.mark.parametrize("tensor", FITTING, ids=str)
def test_a_tensor_whose_data_fills_its_shape_is_taken(tensor: Tensor) -> None:
    assert decode(encode([tensor])) == [tensor]


@pytest.mark.parametrize("tensor", WRONG, ids=str)
def test_any_other_is_refused_before_somebody_believes_its_shape(tensor: Tensor) -> None:
    with pytest.raises(msgspec.ValidationError):
        decode(encode([tensor]))


def test_many_small_tensors_without_elements_count_as_one_large() -> None:
    half = Tensor("x", "float32", (MAX_HOLLOW // 2, 0), b"")
    assert len(decode(encode([half, half]))) == 2
    with pytest.raises(msgspec.ValidationError):
        decode(encode([half, half, Tensor("y", "string", (1, 0), b"")]))


@pytest.mark.parametrize("frame", [b"", b"no frame", b"\x91\x94\xa1\xff\xa4int8\x90\xc4\x01\0"])
def test_what_is_no_frame_is_refused_in_the_same_way(frame: bytes) -> None:
    with pytest.raises(msgspec.MsgspecError):
        decode(frame)


@pytest.mark.parametrize("dtype", sorted(DTYPES))
def test_the_least_bytes_of_a_result_s_json_are_never_more_than_it_has(dtype: str) -> None:
    size = ITEM_SIZE.get(dtype, 4)
    for shape in ((), (1,), (1000,), (10, 10)):
        count = math.prod(shape)
        tensor = Tensor("y", dtype, shape, bytes(size * count))
        least, written = least_bytes([tensor]), len(render([tensor], "columnar"))
        assert least <= written
        assert len(tensor.data) <= MOST_SHRUNK * written


def test_a_result_too_large_for_an_answer_is_refused_before_and_after_it_is_written() -> None:
    zeros = encode([Tensor("y", "float32", (10_000,), bytes(40_000))])
    thirds = encode([Tensor("y", "float32", (10_000,), b"\xab\xaa\xaa\x3e" * 10_000)])
    assert rendered(zeros, "columnar", 50_000)
    for frame, limit in ((zeros, 30_000), (thirds, 50_000)):
        with pytest.raises(ResultTooLarge) as caught:
            rendered(frame, "columnar", limit)
        assert caught.value.facts["limit_bytes"] == limit
        assert "Send fewer rows" in caught.value.public_message
        assert meaning(caught.value.code).http == 422


@pytest.mark.parametrize("tensor", WRONG, ids=str)
def test_a_result_that_is_none_is_our_failure_and_not_the_caller_s(tensor: Tensor) -> None:
    with pytest.raises(Bug):
        rendered(encode([tensor]), "columnar", 1000)
    reply = Decoder().perform(RenderAsk(encode([tensor]), "columnar", 1000))
    assert isinstance(reply, ErrorReply)
    assert meaning(reply.code).http == 500


@pytest.mark.parametrize(
    ("shape", "written"),
    [
        ((0,), []),
        ((2, 0), [[], []]),
        ((2, 0, 3), [[], []]),
        ((2, 3, 0), [[[]] * 3] * 2),
        ((0, 3), []),
        ((0, 10**12), []),
    ],
)
def test_tensors_without_elements_are_written_alike_whatever_they_would_hold(
    shape: tuple[int, ...], written: list[Any]
) -> None:
    for dtype in ("string", "float32"):
        out = json.loads(render([Tensor("x", dtype, shape, b"")], "columnar"))
        assert out == {"outputs": written}, dtype


@pytest.mark.parametrize("dtype", ["string", "float32"])
def test_inputs_of_too_many_empty_lists_are_the_caller_s_fault(dtype: str) -> None:
    spec = {"x": TensorSpec(dtype=dtype, shape=None)}
    available = plans({"serving_default": Signature(inputs=spec, outputs=spec)})

    def read(count: int) -> bytes:
        body = parse(json.dumps({"inputs": [[]] * count}).encode(), Bounds(10**6, 10**6))
        return encode(decode_body(body, available, 1 << 20).tensors)

    assert decode(read(MAX_HOLLOW))
    with pytest.raises(TooLarge) as caught:
        read(MAX_HOLLOW + 1)
    assert caught.value.facts["bound"] == "empty"
