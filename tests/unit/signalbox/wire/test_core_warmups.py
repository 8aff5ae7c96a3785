"""A warm-up is run on versions whose signature takes it, and what is wrong with it otherwise is said."""

import pytest

from signalbox.wire.messages import decode, encode
from signalbox.wire.modeldocs import Model, Signature, TensorSpec
from signalbox.wire.signatures import misfit
from signalbox.wire.warmups import WarmUp, WarmUpInput

INPUTS = {"x": TensorSpec(dtype="float32", shape=(-1, 8)), "any": TensorSpec(dtype="string", shape=None)}
SIGNATURES = {"serving_default": Signature(inputs=INPUTS, outputs={})}
X = WarmUpInput("float32", (2, 8))
ANY = WarmUpInput("string", (1, 1, 1), is_random=True)


@pytest.mark.parametrize(
    ("inputs", "why"),
    [
        ({"x": X, "any": ANY}, ""),
        ({"any": WarmUpInput("string", ()), "x": WarmUpInput("float32", (1, 8))}, ""),
        ({"x": X}, 'it has no input "any"'),
        ({"x": X, "any": ANY, "z": X}, 'the signature has no input "z"'),
        (
            {"x": WarmUpInput("int64", (2, 8)), "any": ANY},
            'its input "x" is int64 [2, 8], and float32 [-1, 8] in the signature',
        ),
        (
            {"x": WarmUpInput("float32", (8,)), "any": ANY},
            'its input "x" is float32 [8], and float32 [-1, 8] in the signature',
        ),
        (
            {"x": WarmUpInput("float32", (2, 9)), "any": ANY},
            'its input "x" is float32 [2, 9], and float32 [-1, 8] in the signature',
        ),
        ({"x": X, "any": X}, 'its input "any" is float32 [2, 8], and string of any shape in the signature'),
    ],
)
def test_a_warm_up_has_the_inputs_of_the_signature_or_it_is_said(inputs: dict[str, WarmUpInput], why: str) -> None:
    assert misfit(WarmUp("a", inputs), SIGNATURES) == why


def test_no_warm_up_fits_sparse_inputs_nor_a_version_without_the_signature_of_requests() -> None:
    sparse = Signature(inputs={"x": TensorSpec(dtype="float32", shape=(-1, 8), kind="sparse")}, outputs={})
    assert "sparse [-1, 8] in the signature" in misfit(WarmUp("a", {"x": X}), {"serving_default": sparse})
    assert misfit(WarmUp("a", {"x": X}), {"other": sparse}) == 'there is no signature "serving_default"'


def test_a_model_s_document_carries_its_warm_ups() -> None:
    model = Model(name="m", warm_ups=(WarmUp("a", {"x": X, "any": ANY}, count=3),))
    assert decode(Model, encode(model)) == model
