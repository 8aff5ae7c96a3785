"""Fits tensors that came with their dtype and shape to a signature: names, dtypes and sizes.

As :mod:`gateway_plugin.codec.inputs` does for a JSON body. Whether a shape suits the model is TensorFlow's to judge.
"""

from collections.abc import Collection, Mapping
from math import prod

from gateway_plugin.codec.inputs import COLUMNAR, Decoded, Plan, choose, require_bounded, some
from gateway_plugin.codec.values import Input
from signalbox.program.errors import InvalidInput
from signalbox.program.words import counted
from signalbox.wire.tensors import ITEM_SIZE, MAX_RANK, Tensor


def fit(given: Mapping[str, Tensor], available: Mapping[str, Plan], signature: str, max_tensor_bytes: int) -> Decoded:
    """The inputs of a request. given: exactly the signature's inputs, by name. signature: empty = the default one.

    Raises :class:`UnknownSignature`, :class:`InvalidInput` that says which input, expected and got, and
    :class:`TooLarge`. The elements of string tensors are taken to be well formed.
    """
    plan = choose({"signature_name": signature}, available)
    require_names(given.keys(), plan)
    found = [given[one.name] for one in plan.inputs]
    for tensor, one in zip(found, plan.inputs, strict=True):
        _require_fit(tensor, one)
    require_bounded(found, max_tensor_bytes)
    rows, key = plan.batch_key(found)
    return Decoded(found, plan.name, COLUMNAR, rows, key)


def require_names(given: Collection[str], plan: Plan) -> None:
    """Raise :class:`InvalidInput` for names that are not exactly those of a signature's inputs."""
    missing = sorted(plan.names.difference(given))
    others = missing or sorted(set(given) - plan.names)[:1]
    if not others:
        return
    shown = some(others)
    listed = ", ".join(f'"{name}"' for name in shown)
    lacking = f"The request lacks the {'inputs' if len(others) > 1 else 'input'}"
    raise InvalidInput(
        f'{lacking if missing else "There is an unknown input"} {listed}; the signature "{plan.name}" has '
        f"{plan.listed()}.",
        input=shown[0],
        expected=sorted(plan.names),
        got=some(given),
    )


def _require_fit(tensor: Tensor, one: Input) -> None:
    """Raise for a tensor of another dtype, or whose bytes do not fill its shape."""
    dtype, shape = tensor.dtype, tensor.shape
    if dtype != one.dtype:
        raise misfit(one.name, one.dtype, dtype)
    if len(shape) > MAX_RANK:
        raise misfit(one.name, f"at most {MAX_RANK} dimensions", str(len(shape)))
    if min(shape, default=0) < 0:
        raise misfit(one.name, "sizes of at least 0", f"shape {list(shape)}")
    if dtype != "string":
        size = ITEM_SIZE[dtype] * prod(shape)
        if len(tensor.data) != size:
            raise misfit(
                one.name, f"{counted(size, 'byte')} for {dtype}{list(shape)}", counted(len(tensor.data), "byte")
            )
    if dtype == "bool" and (other := tensor.data.translate(None, b"\0\1")):
        raise misfit(one.name, "bytes 0 and 1 for bool", f"a byte {other[0]}")


def misfit(name: str, expected: str, got: str) -> InvalidInput:
    """The error for an input that does not fit."""
    (shown,) = some([name])
    return InvalidInput(f'Input "{shown}": expected {expected}, got {got}.', input=shown, expected=expected, got=got)
