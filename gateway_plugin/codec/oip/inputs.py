"""Makes the inputs of a signature from a request of the Open Inference Protocol.

Data in JSON may be flat or nested, row-major; it must have as many elements as its shape, of the kind that its datatype
has. Bytes are taken as they are. :mod:`gateway_plugin.codec.fitting` checks the rest.
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Final

from gateway_plugin.codec.fitting import fit, misfit, require_names
from gateway_plugin.codec.inputs import Decoded, Plan, choose
from gateway_plugin.codec.oip.datatypes import datatype
from gateway_plugin.codec.oip.request import GivenTensor, InferBody
from gateway_plugin.codec.values import Input
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.program.words import counted
from signalbox.wire.modeldocs import TensorSpec
from signalbox.wire.tensors import ITEM_SIZE, Tensor

SIGNATURE: Final = "signature_name"
"""Our request parameter for what the protocol has no word for."""
MOST_STRINGS: Final = 100_000
"""Elements of a string tensor that come as bytes: each is looked at where others wait."""
_PREFIX_BYTES: Final = 4


def decode(found: InferBody, available: Mapping[str, Plan], max_tensor_bytes: int) -> Decoded:
    """The inputs for the signature that a request names, or for the default one.

    Raises :class:`UnknownSignature`, :class:`InvalidInput` and :class:`TooLarge`.
    """
    plan = signature_of(found.fields.get("parameters") or {}, available)
    if found.inputs is None:
        tensors = [_raw(found.raw, plan)]
    else:
        require_names([one.name for one in found.inputs], plan)
        for one in found.inputs:
            require_dtype(one.name, one.dtype, plan)
        tensors = [_tensor(one, is_plain=found.is_plain) for one in found.inputs]
    return fit({tensor.name: tensor for tensor in tensors}, available, plan.name, max_tensor_bytes)


def signature_of(parameters: Mapping[str, object], available: Mapping[str, Plan]) -> Plan:
    """The signature that a request's parameters name, or the default one.

    Raises as :func:`inputs.choose`.
    """
    return choose({"signature_name": parameters.get(SIGNATURE, "")}, available)


def require_dtype(name: str, dtype: str, plan: Plan) -> None:
    """Raise :class:`InvalidInput`, in the protocol's words, for an input of another dtype than the signature's."""
    wanted = plan.signature.inputs[name].dtype
    if dtype != wanted:
        raise misfit(name, datatype(wanted), datatype(dtype))


def from_bytes(name: str, dtype: str, shape: tuple[int, ...], data: bytes) -> Tensor:
    """A tensor that came as bytes. Its size is checked where it does not follow from the shape.

    Raises :class:`InvalidInput` and :class:`TooLarge`.
    """
    if dtype == "string":
        _require_strings(name, data, prod(shape))
    return Tensor(name, dtype, shape, data)


def _tensor(one: GivenTensor, *, is_plain: bool) -> Tensor:
    name, dtype, shape, data, binary = one
    if binary is not None:
        return from_bytes(name, dtype, shape, bytes(binary))
    built = Input(name, TensorSpec(dtype=dtype, shape=None)).build(data, is_plain)
    if prod(built.shape) != prod(shape):
        raise misfit(name, f"{counted(prod(shape), 'element')} for shape {list(shape)}", str(prod(built.shape)))
    return Tensor(name, dtype, shape, built.data)


def _raw(data: bytes, plan: Plan) -> Tensor:
    """The one input of a signature from a body that is its bytes; a string as it is, without its length."""
    if len(plan.inputs) != 1:
        raise InvalidRequest(
            "A body without JSON (Inference-Header-Content-Length: 0) is for a model with one input; the signature "
            f'"{plan.name}" has {plan.listed()}.'
        )
    name, spec = next(iter(plan.signature.inputs.items()))
    if spec.shape is None:
        raise InvalidInput(f'Input "{name}": its shape cannot be deduced, since the model takes any rank.', input=name)
    if spec.dtype == "string":
        shape = _deduced(name, spec.shape, 1)
        return Tensor(name, "string", shape, len(data).to_bytes(_PREFIX_BYTES, "little") + data)
    if spec.dtype not in ITEM_SIZE or len(data) % ITEM_SIZE[spec.dtype]:
        raise misfit(name, f"a body of {datatype(spec.dtype)}", counted(len(data), "byte"))
    shape = _deduced(name, spec.shape, len(data) // ITEM_SIZE[spec.dtype])
    return from_bytes(name, spec.dtype, shape, data)


def _deduced(name: str, sizes: Sequence[int], count: int) -> tuple[int, ...]:
    """A shape with so many elements: of free sizes the last one takes what there is, a first one beside it is 1."""
    free = [index for index, size in enumerate(sizes) if size < 0]
    shape = list(sizes)
    if len(free) == 2 and free[0] == 0:
        shape[free.pop(0)] = 1
    if len(free) > 1:
        raise InvalidInput(
            f'Input "{name}": its shape {list(sizes)} cannot be deduced from a body without JSON.', input=name
        )
    if free:
        shape[free[0]] = 1
        shape[free[0]] = count // prod(shape) if prod(shape) else 0
    if prod(shape) != count:
        raise misfit(name, f"a body that fills the shape {list(sizes)}", counted(count, "element"))
    return tuple(shape)


def _require_strings(name: str, data: bytes, count: int) -> None:
    """Raise for bytes that are not so many strings, each a 4-byte length and its bytes."""
    if count > MOST_STRINGS:
        raise TooLarge(
            f'Input "{name}" has {count} strings; at most {MOST_STRINGS} are taken as bytes.',
            bound="strings",
            limit=MOST_STRINGS,
        )
    at = found = 0
    while at < len(data) and found < count:
        at += _PREFIX_BYTES + int.from_bytes(data[at : at + _PREFIX_BYTES], "little")
        found += 1
    if at != len(data) or found != count:
        raise misfit(
            name,
            f"{counted(count, 'string')}, each a 4-byte length and its bytes",
            f"{counted(len(data), 'byte')} that are not",
        )
