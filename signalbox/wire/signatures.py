"""Which signatures of a model can be run: tensors travel dense only, and a SavedModel says which of its own are not."""

from collections.abc import Collection, Mapping
from typing import Final

from signalbox.wire.messages import Signature, TensorSpec

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


def _other_than_dense(specs: Mapping[str, TensorSpec]) -> str:
    names = sorted(name for name, spec in specs.items() if spec.kind)
    return f'"{names[0][:_LONGEST_NAME]}" is a {specs[names[0]].kind} tensor' if names else ""


def _others(signature: Signature) -> str:
    dense = sorted(name[:_LONGEST_NAME] for name, spec in signature.outputs.items() if not spec.kind)[:_MOST_NAMES]
    return f" Where a protocol lets outputs be chosen, these can be had: {', '.join(dense)}." if dense else ""
