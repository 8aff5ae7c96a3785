"""``examples`` and ``context`` of TensorFlow Serving's classify and regress to serialized ``tf.Example`` messages.

A feature holds one type: whole numbers and booleans become int64, other numbers float, strings and base64 bytes. The
context's bytes are put before each example's: protobuf merges them, and the example's feature wins. Source:
TensorFlow Serving's ``json_tensor.cc``, ``classifier.cc`` and ``regressor.cc``; the texts that name what is wrong are
its own, since clients match them, followed by ours.
"""

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from gateway_plugin.codec import dtypes
from gateway_plugin.codec.inputs import DEFAULT_SIGNATURE, Decoded, Plan, listed
from gateway_plugin.codec.serving.rapidjson import kind, shown
from gateway_plugin.codec.values import bytes_of, is_base64
from gateway_plugin.proto.example_pb2 import Example, Feature
from signalbox.program.errors import InvalidInput, InvalidRequest, TooLarge
from signalbox.wire.tensors import Tensor

CLASSIFY: Final = "classify"
REGRESS: Final = "regress"
INPUT: Final = "inputs"
CLASSES: Final = "classes"
SCORES: Final = "scores"
OUTPUT: Final = "outputs"
_KINDS: Final[dict[type, str]] = {bool: "int64", int: "int64", float: "float", str: "bytes", dict: "bytes"}
_LARGEST: Final = 2**63 - 1
_ONE_TYPE: Final = (
    "A feature holds one type: whole numbers and booleans (int64), numbers with a fraction (float), or strings and "
    '{"b64": ...} (bytes).'
)
_WHOLE: Final = frozenset({int, bool})


class Examples(NamedTuple):
    """Serialized examples, and what is common to all of them."""

    context: bytes | memoryview
    each: Sequence[bytes | memoryview]


def read(doc: Mapping[str, Any]) -> Examples:
    """The examples of a body. Raises :class:`InvalidInput`."""
    context = _example(doc["context"], '"context"') if "context" in doc else b""
    if "examples" not in doc:
        raise InvalidInput(
            f"JSON Value: {shown(doc)} When method is classify, key 'examples' is expected and was not found. "
            'Send {"examples": [{"feature": value}]}.'
        )
    value = doc["examples"]
    if type(value) is not list:
        raise InvalidInput(
            f"JSON Value: {shown(doc)} Expecting 'examples' value to be an list/array. "
            'Send {"examples": [{"feature": value}]}.'
        )
    if not value:
        raise InvalidInput(f"JSON Value: {shown(doc)} 'examples' value is an empty array. Give at least one example.")
    return Examples(context, [_example(one, f'"examples"[{index}]') for index, one in enumerate(value)])


def _example(value: Any, where: str) -> bytes:
    if type(value) is not dict:
        raise InvalidInput(
            f"Example must be JSON object but got JSON {kind(value)}. {where} must be an object of features."
        )
    made = Example()
    features = made.features.feature
    for name, content in value.items():
        _fill(features[name], content if type(content) is list else [content], name, where)
    return made.SerializeToString()


def _fill(feature: Feature, values: Sequence[Any], name: str, where: str) -> None:
    """Put ``values`` into a feature without any; what is wrong is looked for only where they are not all alike."""
    kinds = set(map(type, values))
    if kinds == {float}:
        feature.float_list.value.extend(values)
    elif kinds and kinds <= _WHOLE and max(values) <= _LARGEST:
        feature.int64_list.value.extend(map(int, values))
    elif kinds and kinds <= {str, dict}:
        feature.bytes_list.value.extend([_bytes(value, name, where) for value in values])
    elif kinds:
        _explain(values, name, where)


def _bytes(value: Any, name: str, where: str) -> bytes:
    if type(value) is str:
        return value.encode()
    if not is_base64(value):
        raise _wrong(f"Feature: {name[:120]} has element with unexpected JSON type: Object", name, where)
    try:
        return bytes_of(value["b64"])
    except ValueError:
        raise _wrong("Unable to base64 decode", name, where) from None


def _explain(values: Sequence[Any], name: str, where: str) -> None:
    """Raise for the first value that cannot be in a feature with those before it."""
    first = ""
    for value in values:
        is_known = type(value) in _KINDS and (type(value) is not dict or is_base64(value))
        if not is_known:
            raise _wrong(f"Feature: {name[:120]} has element with unexpected JSON type: {kind(value)}", name, where)
        first = first or _KINDS[type(value)]
        if _KINDS[type(value)] != first:
            raise _wrong(f"Unexpected element type in feature: {name[:120]} expecting type: {first}", name, where)
        if type(value) is int and value > _LARGEST:
            raise _wrong(f"Feature: {name[:120]} has uint64_t element. Only int64_t is supported", name, where)


def _wrong(theirs: str, name: str, where: str) -> InvalidInput:
    return InvalidInput(f'{theirs}. In {where}, feature "{name[:120]}". {_ONE_TYPE}', input=name[:120])


def decode(
    doc: Mapping[str, Any], found: Examples, available: Mapping[str, Plan], verb: str, max_tensor_bytes: int
) -> Decoded:
    """The one string input of a classification or regression signature.

    Raises :class:`InvalidRequest` for a signature that is no such thing, and :class:`TooLarge`.
    """
    plan = _plan(doc.get("signature_name") or DEFAULT_SIGNATURE, available)
    (_check_classification if verb == CLASSIFY else _check_regression)(plan)
    spec = plan.signature.inputs[INPUT]
    if spec.dtype != "string":
        raise InvalidRequest(
            f"Expects arg[0] to be {dtypes.word(spec.dtype)} but string is provided. The signature "
            f'"{plan.name}" takes no serialized examples; use :predict.'
        )
    size = len(found.each) * len(found.context) + sum(map(len, found.each))
    if size > max_tensor_bytes:
        raise TooLarge(
            f"The examples take {size} bytes; this model takes at most {max_tensor_bytes}.",
            bound="tensor_bytes",
            limit_bytes=max_tensor_bytes,
        )
    parts: list[bytes | memoryview] = []
    for one in found.each:
        parts += (struct.pack("<I", len(found.context) + len(one)), found.context, one)
    tensors = [Tensor(INPUT, "string", (len(found.each),), b"".join(parts))]
    rows, key = plan.batch_key(tensors)
    return Decoded(tensors, plan.name, f"{verb}:{len(found.each)}", rows, key)


def _plan(name: str, available: Mapping[str, Plan]) -> Plan:
    plan = available.get(name)
    if plan is None:
        raise InvalidRequest(
            f"No signature was found with the name: {name[:120]}. {listed(available)}",
            signature=name[:120],
            available=sorted(available),
        )
    plan.require_dense()
    return plan


def _check_classification(plan: Plan) -> None:
    """Raise for a signature that does not classify: what counts are the names of its inputs and outputs."""
    inputs, outputs = plan.signature.inputs, plan.signature.outputs
    if len(inputs) != 1:
        raise _other("Expected one input Tensor", plan)
    if len(outputs) not in {1, 2}:
        raise _other(f"Expected one or two output Tensors, found {len(outputs)}", plan)
    if INPUT not in inputs:
        raise _other("No classification inputs found in SignatureDef", plan)
    if CLASSES not in outputs and SCORES not in outputs:
        raise _other('Expected classification signature outputs to contain at least one of "classes" or "scores"', plan)


def _check_regression(plan: Plan) -> None:
    inputs, outputs = plan.signature.inputs, plan.signature.outputs
    if len(inputs) != 1:
        raise _other("Expected one input Tensor", plan)
    if len(outputs) != 1:
        raise _other("Expected one output Tensor", plan)
    if INPUT not in inputs:
        raise _other("No regression inputs found in SignatureDef", plan)
    if OUTPUT not in outputs:
        raise _other("No regression outputs found in SignatureDef", plan)


def _other(theirs: str, plan: Plan) -> InvalidRequest:
    signature = plan.signature
    return InvalidRequest(
        f'{theirs}. The signature "{plan.name}" ({signature.method}) has the inputs {_names(signature.inputs)} and the '
        f"outputs {_names(signature.outputs)}; name another with signature_name, or use :predict."
    )


def _names(specs: Mapping[str, Any]) -> str:
    return ", ".join(f'"{name}"' for name in sorted(specs)) or "none"
