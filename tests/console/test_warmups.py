"""``model_warmup`` of a ``config.pbtxt`` becomes requests that workers make up, within bounds; the rest is said."""

import pytest
from msgspec.structs import replace

from console.catalog import triton
from console.catalog.warmups import MOST, MOST_ELEMENTS, warm_ups
from signalbox.repositories.triton import TritonConfig, TritonFill, TritonWarmUp
from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.warmups import WarmUp, WarmUpInput

X = TritonFill("float32", (8,), "zero")
SAMPLE = TritonWarmUp({"x": X}, rows=2, name="a")
CONFIG = TritonConfig(fields=("model_warmup",), max_batch_size=16, warm_ups=(SAMPLE,))
SIGNATURES = {"serving_default": Signature(inputs={"x": TensorSpec(dtype="float32", shape=(-1, 8))}, outputs={})}


def said(config: TritonConfig) -> tuple[str, bool]:
    """What stands on the model's page, and whether all of it is run."""
    (found,) = triton.became(config)
    return found.what, found.is_taken


def test_a_sample_has_its_batch_before_its_dims_and_is_run_as_often_as_it_says() -> None:
    random = replace(SAMPLE, inputs={"x": replace(X, fill="random")}, count=3, name="")
    found = warm_ups(replace(CONFIG, warm_ups=(SAMPLE, random)))
    assert found.taken == (
        WarmUp("a", {"x": WarmUpInput("float32", (2, 8))}),
        WarmUp("sample 2", {"x": WarmUpInput("float32", (2, 8), is_random=True)}, count=3),
    )
    assert said(replace(CONFIG, warm_ups=(SAMPLE, random))) == ("2 samples are run after each load", True)


def test_a_model_without_a_batch_has_none_in_its_samples() -> None:
    config = replace(CONFIG, max_batch_size=0, warm_ups=(replace(SAMPLE, rows=1),))
    assert warm_ups(config).taken[0].inputs == {"x": WarmUpInput("float32", (8,))}
    assert said(replace(config, warm_ups=(SAMPLE,)))[0].endswith('"a": batch_size is 2, and max_batch_size 0')


@pytest.mark.parametrize(
    ("sample", "why"),
    [
        (replace(SAMPLE, rows=0), "batch_size is 0"),
        (replace(SAMPLE, count=101), "count is 101, and 100 at most"),
        (replace(SAMPLE, inputs={}), "it has 0 inputs, of 1 to 64"),
        (replace(SAMPLE, inputs={str(n): X for n in range(65)}), "it has 65 inputs, of 1 to 64"),
        (
            replace(SAMPLE, inputs={"x": replace(X, fill="")}),
            'its input "x" is neither zero_data nor random_data: no file is read',
        ),
        (replace(SAMPLE, inputs={"x": replace(X, dtype="")}), 'its input "x" has no data_type'),
        (replace(SAMPLE, inputs={"x": replace(X, dims=(1,) * 32)}), 'its input "x" has 32 dimensions'),
        (replace(SAMPLE, inputs={"x": replace(X, dims=(2**63 - 1,) * 30_000)}), 'its input "x" has 30000 dimensions'),
        (
            replace(SAMPLE, inputs={"x": replace(X, dims=(-1, 3))}),
            'its input "x" has the dims [-1, 3], which leave a size open',
        ),
        (replace(SAMPLE, rows=MOST_ELEMENTS // 8 + 1), f"it has more than {MOST_ELEMENTS} elements"),
        (
            replace(SAMPLE, inputs={"x": replace(X, dims=(2**63 - 1, 2**63 - 1))}),
            f"it has more than {MOST_ELEMENTS} elements",
        ),
    ],
)
def test_a_sample_that_cannot_be_made_up_within_the_bounds_is_left_with_the_reason(
    sample: TritonWarmUp, why: str
) -> None:
    assert said(replace(CONFIG, warm_ups=(sample,))) == (f'not taken over: "a": {why}', False)
    both = said(replace(CONFIG, warm_ups=(sample, replace(SAMPLE, name="b"))))
    assert both == (f'1 sample is run after each load; not taken over: "a": {why}', False)


def test_a_model_has_so_many_samples_and_the_others_are_left() -> None:
    config = replace(CONFIG, warm_ups=(SAMPLE,) * 100)
    assert len(warm_ups(config).taken) == MOST
    assert said(config) == ("16 samples are run after each load; not taken over: at most 16 samples are run", False)


def test_a_sample_that_the_version_does_not_take_is_no_refusal_and_said() -> None:
    config = replace(CONFIG, warm_ups=(SAMPLE, replace(SAMPLE, inputs={"x": replace(X, dtype="int32")}, name="b")))
    assert triton.refusal(config, SIGNATURES) == ""
    assert triton.differences(config, SIGNATURES) == [
        'The warm-up "b" is not run: its input "x" is int32 [2, 8], and float32 [-1, 8] in the signature.'
    ]
