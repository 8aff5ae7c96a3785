"""Which signatures of a model can be run, and with what: tensors travel dense only, and a SavedModel says which of its
own are not."""

from collections.abc import Collection, Mapping, Sequence
from typing import Final, Protocol

from signalbox.wire.modeldocs import Signature, TensorSpec
from signalbox.wire.warmups import WarmUp

DEFAULT: Final = "serving_default"
"""The signature of a request that names none."""
_LONGEST_NAME: Final = 120
_MOST_NAMES: Final = 8


def refusal(signature: Signature, outputs: Collection[str] = ()) -> str:
    """Why the signature cannot be run for these outputs, all where none is named; empty where it can."""
    if found := _other_than_dense(signature.inputs):
        return f"The input {found}; only dense tensors can be sent."
    wanted = {name: spec for name, spec in signature.outputs.items() if not outputs or name in outputs}
    if found := _other_than_dense(wanted):
        return f"The output {found}; only dense tensors are given out.{_others(signature)}"
    return ""


def can_be_run(signature: Signature) -> bool:
    """Whether the signature can be run for some of its outputs at least."""
    return not refusal(signature) or any(not refusal(signature, (name,)) for name in signature.outputs)


def misfit(warm_up: WarmUp, signatures: Mapping[str, Signature]) -> str:
    """Why a warm-up is not for a version with these signatures, in words; empty where it may be run."""
    signature = signatures.get(DEFAULT)
    if signature is None:
        return f'there is no signature "{DEFAULT}"'
    return unfit(warm_up.inputs, signature)


class Shaped(Protocol):
    """A tensor, or what is said of one."""

    @property
    def dtype(self) -> str:
        """The name of its type, as in :data:`signalbox.wire.tensors.DTYPES`."""

    @property
    def shape(self) -> tuple[int, ...]:
        """All sizes."""


def unfit(inputs: Mapping[str, Shaped], signature: Signature) -> str:
    """Why these are not the inputs of a signature, in words; empty where they are."""
    for name, spec in signature.inputs.items():
        one = inputs.get(name)
        if one is None:
            return f'it has no input "{name[:_LONGEST_NAME]}"'
        if one.dtype != spec.dtype or spec.kind or not _fits(one.shape, spec.shape):
            said = f"{one.dtype} {list(one.shape)}, and {_shown(spec)} in the signature"
            return f'its input "{name[:_LONGEST_NAME]}" is {said}'
    if unknown := sorted(inputs.keys() - signature.inputs.keys()):
        return f'the signature has no input "{unknown[0][:_LONGEST_NAME]}"'
    return ""


def _fits(shape: Sequence[int], stated: Sequence[int] | None) -> bool:
    if stated is None:
        return True
    return len(shape) == len(stated) and all(want in (-1, size) for size, want in zip(shape, stated, strict=True))


def _shown(spec: TensorSpec) -> str:
    return f"{spec.kind or spec.dtype} {'of any shape' if spec.shape is None else list(spec.shape)}"


def _other_than_dense(specs: Mapping[str, TensorSpec]) -> str:
    names = sorted(name for name, spec in specs.items() if spec.kind)
    return f'"{names[0][:_LONGEST_NAME]}" is a {specs[names[0]].kind} tensor' if names else ""


def _others(signature: Signature) -> str:
    dense = sorted(name[:_LONGEST_NAME] for name, spec in signature.outputs.items() if not spec.kind)[:_MOST_NAMES]
    return f" Where a protocol lets outputs be chosen, these can be had: {', '.join(dense)}." if dense else ""
