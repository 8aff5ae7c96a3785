"""Named tensors to the inputs of a signature."""

from typing import Any

import numpy as np
import pytest

from gateway_plugin.codec.binding import bind
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.inputs import UnknownSignature, decode
from gateway_plugin.codec.prepared import PreparedVersion
from signalbox.front.jsonbody import Bounds, parse
from signalbox.program.errors import InvalidInput, TooLarge
from signalbox.wire import tensors
from signalbox.wire.modeldocs import Model, Signature, TensorSpec, Version
from signalbox.wire.tensors import MAX_HOLLOW, Tensor

PAIR = Signature(
    inputs={"b": TensorSpec(dtype="int32", shape=(-1,)), "a": TensorSpec(dtype="float32", shape=(-1, 2))},
    outputs={"y": TensorSpec(dtype="float32", shape=(-1,))},
)
NOTHING = Signature(inputs={}, outputs=PAIR.outputs)
FLAG = Signature(inputs={"f": TensorSpec(dtype="bool", shape=(-1,))}, outputs=PAIR.outputs)
READY = PreparedVersion(
    Model(name="m"),
    Version(version=3, path="/nowhere", signatures={"serving_default": PAIR, "none": NOTHING, "flag": FLAG}),
)


def tensor(name: str, value: Any, dtype: str) -> Tensor:
    array = np.array(value, dtype)
    return Tensor(name, dtype, array.shape, array.tobytes())


A = tensor("a", [[1, 2], [3, 4]], "float32")
B = tensor("b", [1, 2], "int32")


def bound(*given: Tensor, signature: str = "", limit: int = 1000) -> DecodedInputs:
    return bind({each.name: each for each in given}, READY, signature, max_tensor_bytes=limit)


def test_tensors_are_bound_in_the_signature_s_order_as_a_json_body_is() -> None:
    found = bound(A, B)
    body = parse(b'{"inputs": {"a": [[1, 2], [3, 4]], "b": [1, 2]}}', Bounds(1000, 100))
    same = decode(body, READY.plans, 1000)
    assert tensors.decode(found.frame) == same.tensors == [B, A]
    assert (found.signature, found.style, found.rows, found.batch_key) == (
        "serving_default",
        "columnar",
        2,
        same.batch_key,
    )
    assert found == bound(B, A, signature="serving_default")


def test_another_rank_than_the_signature_s_runs_alone() -> None:
    assert bound(A, tensor("b", [[1], [2]], "int32")).batch_key == ""


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ((A,), 'The request lacks the input "b"; the signature "serving_default" has "a", "b".'),
        ((A, B, tensor("c", [1], "int32")), 'There is an unknown input "c"'),
        ((A, tensor("b", [1, 2], "int64")), 'Input "b": expected int32, got int64.'),
        ((A, Tensor("b", "int32", (2,), b"1234")), 'Input "b": expected 8 bytes for int32[2], got 4 bytes.'),
        ((A, Tensor("b", "int32", (-1,), b"")), 'Input "b": expected sizes of at least 0, got shape [-1].'),
        ((A, Tensor("b", "int32", (1,) * 33, b"1234")), 'Input "b": expected at most 32 dimensions, got 33.'),
    ],
)
def test_what_does_not_fit_is_named(given: tuple[Tensor, ...], words: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        bound(*given)
    assert words in caught.value.public_message


def test_the_names_of_a_request_are_cut_in_its_error() -> None:
    long = Tensor("n" * 100_000, "int32", (), b"1234")
    with pytest.raises(InvalidInput) as caught:
        bound(A, B, long)
    assert len(caught.value.public_message) < 1000


def test_a_signature_that_is_not_there_is_refused() -> None:
    with pytest.raises(UnknownSignature, match='"nope" not found'):
        bound(A, B, signature="nope")


def test_what_takes_nothing_runs_alone() -> None:
    found = bound(signature="none")
    assert (tensors.decode(found.frame), found.rows, found.batch_key) == ([], 1, "")


def test_sizes_and_empty_lists_are_bounded_together() -> None:
    with pytest.raises(TooLarge, match="24 bytes; this model takes at most 23"):
        bound(A, B, limit=23)
    hollow = Tensor("a", "float32", (MAX_HOLLOW + 1, 0), b"")
    with pytest.raises(TooLarge, match="empty lists"):
        bound(hollow, B)


def test_a_byte_that_is_no_boolean_is_refused() -> None:
    assert bound(Tensor("f", "bool", (2,), b"\0\1"), signature="flag").rows == 2
    with pytest.raises(InvalidInput, match="expected bytes 0 and 1 for bool, got a byte 7"):
        bound(Tensor("f", "bool", (2,), b"\1\7"), signature="flag")
