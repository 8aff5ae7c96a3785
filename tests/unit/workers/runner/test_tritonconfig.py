"""``config.pbtxt`` is read field by field, whatever else stands in it; a broken one is refused with the reason."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from signalbox.program.errors import InvalidRequest
from signalbox.repositories.triton import TritonConfig, TritonFill, TritonTensor, TritonWarmUp
from workers.runner import tritonconfig

WHOLE = b"""
# A comment.
name: "half"
platform: "tensorflow_savedmodel"
max_batch_size: 8
input [ { name: "x" data_type: TYPE_FP32 dims: [ -1, 3 ] reshape { shape: [ 3 ] } is_shape_tensor: false } ]
output { name: "y", data_type: TYPE_STRING, dims: 1 }
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  max_queue_delay_microseconds: 100
  default_queue_policy { timeout_action: REJECT max_queue_size: 7 default_timeout_microseconds: 2000000 }
}
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
version_policy: { specific { versions: [ 1, 3 ] } }
optimization { execution_accelerators { gpu_execution_accelerator: [ { name: "tensorrt" } ] } }
parameters { key: "TF_SIGNATURE_DEF" value: { string_value: "predict" } }
parameters { key: "TF_GRAPH_TAG" value: { string_value: "serve" } }
model_warmup [ { name: "a" batch_size: 2 inputs { key: "x" value { data_type: TYPE_FP32 dims: 3 zero_data: true } } } ]
of_a_later_triton { a: [ 1, 2 ] b < c: "d" 'e' > }
"""


def test_all_that_counts_is_read_and_other_fields_are_passed_over() -> None:
    found = tritonconfig.read(WHOLE)
    assert found == TritonConfig(
        fields=found.fields,
        name="half",
        platform="tensorflow_savedmodel",
        max_batch_size=8,
        inputs=(TritonTensor("x", "float32", (-1, 3)),),
        outputs=(TritonTensor("y", "string", (1,)),),
        delay_us=100,
        timeout_us=2_000_000,
        queue=7,
        specific=(1, 3),
        signature="predict",
        tags="serve",
        warm_ups=(TritonWarmUp({"x": TritonFill("float32", (3,), "zero")}, rows=2, name="a"),),
    )
    assert set(found.fields) >= {
        "input.reshape",
        "dynamic_batching.preferred_batch_size",
        "dynamic_batching.default_queue_policy.max_queue_size",
        "instance_group",
        "parameters.TF_GRAPH_TAG",
        "model_warmup",
    }


def test_a_file_that_says_nothing_is_one() -> None:
    assert tritonconfig.read(b"") == TritonConfig()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"\xff\xfe", "It is no UTF-8."),
        (b"\0\0", "Line 1: "),
        (b'\n\nmax_batch_size: "8"', 'Line 3: Couldn\'t parse integer: "8"'),
        (b"max_batch_size: 99999999999", "Line 1: "),
        (b"max_batch_size: -1", "max_batch_size is -1; Triton takes 0 and more."),
        (b"name: 3", "Line 1: Expected string"),
        (b'name: "\\xff"', "Line 1: "),
        (b"input { data_type: TYPE_FP8 }", "no value named TYPE_FP8"),
        (b"input { dims: [ 1, x ] }", "Line 1: "),
        (b"input {", "Line 1: "),
        (b"input " + b"{ a " * 20_000, "It is nested too deeply."),
        (b"a { " * 20_000 + b"} " * 20_000, "It is nested too deeply."),
        (b"dims: [" + b"[" * 20_000, "Line 1: "),
    ],
)
def test_a_broken_file_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        tritonconfig.read(data)
    assert why in refused.value.public_message
    assert len(refused.value.public_message) < 300
    assert refused.value.public_message.isprintable()


@given(st.binary(max_size=200) | st.lists(st.sampled_from(WHOLE.split()), max_size=40).map(b" ".join))
def test_no_text_does_more_than_be_refused(data: bytes) -> None:
    with suppress(InvalidRequest):
        tritonconfig.read(data)
