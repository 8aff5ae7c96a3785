"""What becomes of a ``config.pbtxt``: settings of a new model, refusals, differences, and what is left."""

from typing import Any

import pytest
from msgspec.structs import replace

from console.catalog import triton
from signalbox.repositories.triton import TritonConfig, TritonTensor
from signalbox.wire.modeldocs import Signature, TensorSpec

SIGNATURES = {
    "serving_default": Signature(
        inputs={"x": TensorSpec(dtype="float32", shape=(-1, 8)), "n": TensorSpec(dtype="int32", shape=())},
        outputs={"y": TensorSpec(dtype="float32", shape=(-1, 3))},
        defaults={"n": b""},
    )
}
CONFIG = TritonConfig(
    fields=("platform", "max_batch_size", "input", "output", "dynamic_batching"),
    platform="tensorflow_savedmodel",
    max_batch_size=16,
    inputs=(TritonTensor("x", "float32", (8,)),),
    outputs=(TritonTensor("y", "float32", (3,)),),
)
DELAY = "dynamic_batching.max_queue_delay_microseconds"
POLICY = "dynamic_batching.default_queue_policy"


@pytest.mark.parametrize(
    ("config", "given"),
    [
        (CONFIG, {"max_batch_size": 16, "rows_independent": True}),
        (replace(CONFIG, fields=("max_batch_size",)), {"max_batch_size": 16}),
        (replace(CONFIG, max_batch_size=0, fields=("dynamic_batching",)), {}),
        (
            replace(CONFIG, fields=(*CONFIG.fields, DELAY), delay_us=1500),
            {"max_batch_size": 16, "rows_independent": True, "max_batch_delay_ms": 1.5},
        ),
        (
            TritonConfig(
                fields=(f"{POLICY}.max_queue_size", f"{POLICY}.default_timeout_microseconds"), queue=7, timeout_us=10**7
            ),
            {"max_queue": 7, "deadline_s": 10.0},
        ),
        (
            TritonConfig(
                fields=("max_batch_size", "dynamic_batching", DELAY, f"{POLICY}.max_queue_size"),
                max_batch_size=2**31 - 1,
                delay_us=2**64 - 1,
                queue=2**32 - 1,
            ),
            {
                "max_batch_size": 65536,
                "rows_independent": True,
                "max_batch_delay_ms": 60_000.0,
                "max_queue": 1_000_000,
            },
        ),
    ],
)
def test_batching_delay_and_queue_become_settings_within_their_bounds(
    config: TritonConfig, given: dict[str, Any]
) -> None:
    assert triton.settings(config) == given


@pytest.mark.parametrize(
    ("said", "given"),
    [
        ({"latest": 2}, {"kind": "latest", "count": 2}),
        ({"latest": 2**32 - 1}, {"kind": "latest", "count": 64}),
        ({"specific": (3, 1, 1)}, {"kind": "specific", "versions": [1, 3]}),
        ({"specific": tuple(range(1, 100))}, {"kind": "specific", "versions": list(range(36, 100))}),
        ({}, {"kind": "all"}),
    ],
)
def test_a_version_policy_becomes_the_policy_of_a_new_model(said: dict[str, Any], given: dict[str, Any]) -> None:
    assert triton.settings(TritonConfig(fields=("version_policy",), **said)) == {"policy": given}


def test_every_field_that_the_file_sets_is_named() -> None:
    fields = ("platform", "instance_group", "version_policy", "parameters.TF_NUM_INTRA_THREADS", "model_metrics")
    found = triton.became(TritonConfig(fields=fields))
    assert [one.field for one in found] == list(fields)
    assert [one.is_taken for one in found] == [True, False, True, False, False]
    assert found[1].what == "not taken over: placement chooses GPUs, and the setting replicas how many"
    assert found[4].what == "not taken over"


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"platform": "onnxruntime_onnx"}, 'platform or backend "onnxruntime_onnx"'),
        ({"platform": "tensorflow_graphdef"}, 'platform or backend "tensorflow_graphdef"'),
        ({"platform": "", "backend": "python"}, 'platform or backend "python"'),
        ({"fields": ("ensemble_scheduling",)}, "ensemble_scheduling: "),
        ({"fields": ("sequence_batching",)}, "sequence_batching: "),
        ({"folder": "other.savedmodel"}, 'default_model_filename is "other.savedmodel"'),
        ({"tags": "gpu"}, 'TF_GRAPH_TAG is "gpu"'),
        ({"signature": "predict"}, 'TF_SIGNATURE_DEF is "predict"; requests get "serving_default"'),
        ({"inputs": (TritonTensor("z"),)}, 'The input "z" is not in the signature, which has n, x.'),
        (
            {"inputs": (TritonTensor("x", "int64", (8,)),)},
            'The input "x" is int64 [-1, 8] in the file, and float32 [-1, 8] in the signature.',
        ),
        ({"inputs": (TritonTensor("n", "int32"),)}, 'The input "x" is in the signature alone, and has to be sent.'),
        ({"inputs": (TritonTensor("x", "float32", (8, 1)),)}, "float32 [-1, 8, 1] in the file"),
        ({"inputs": (TritonTensor("x", "float32", (9,)),)}, "float32 [-1, 9] in the file"),
        ({"max_batch_size": 0}, "float32 [8] in the file, and float32 [-1, 8] in the signature"),
        ({"outputs": (TritonTensor("z"),)}, 'The output "z" is not in the signature, which has y.'),
    ],
)
def test_what_no_client_of_triton_s_would_ever_get_is_refused_with_both_sides(
    changes: dict[str, Any], why: str
) -> None:
    assert why in triton.refusal(replace(CONFIG, **changes), SIGNATURES)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, []),
        ({"inputs": (), "outputs": ()}, []),
        ({"platform": "", "backend": "tensorflow", "folder": "model.savedmodel"}, []),
        ({"inputs": (TritonTensor("x"),)}, []),
        (
            {"inputs": (TritonTensor("x", "float32", (-1,)),)},
            ['The input "x" is float32 [-1, -1] in the file, and float32 [-1, 8] in the signature.'],
        ),
    ],
)
def test_what_differs_and_may_be_answered_is_served_and_said(changes: dict[str, Any], said: list[str]) -> None:
    config = replace(CONFIG, **changes)
    assert triton.refusal(config, SIGNATURES) == ""
    assert [text for text in triton.differences(config, SIGNATURES) if "alone" not in text] == said


def test_a_version_without_the_signature_that_requests_get_is_refused() -> None:
    assert 'no signature "serving_default"' in triton.refusal(CONFIG, {"predict": SIGNATURES["serving_default"]})
    assert triton.refusal(TritonConfig(), {"predict": SIGNATURES["serving_default"]}) == ""
