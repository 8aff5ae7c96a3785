"""Outputs as the Open Inference Protocol has them: JSON, with the bytes of tensors after it where asked for."""

import math
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

import orjson

from gateway_plugin.codec.oip.datatypes import datatype
from gateway_plugin.codec.outputs import dumped, jsonable
from signalbox.wire.tensors import Tensor

FLAT: Final = "flat"
"""Style of a rendering: each tensor's elements as one list, row-major, in a line of its own."""


class InferAnswer(NamedTuple):
    """The body of an answer. header_bytes: of its JSON; None where that is all of it."""

    body: bytes
    header_bytes: int | None


def flat(tensors: Sequence[Tensor]) -> bytes:
    """The tensors in the style :data:`FLAT`. JSON has no line breaks unless it is to look nice."""
    return b"\n".join(_elements(tensor) for tensor in tensors)


def _elements(tensor: Tensor) -> bytes:
    values = jsonable(Tensor("", tensor.dtype, (math.prod(tensor.shape),), tensor.data))
    return dumped(values, [values])


def answer(head: Mapping[str, Any], tensors: Sequence[Tensor], binary: Collection[str], lines: bytes) -> InferAnswer:
    """An answer's body. head: its fields beside the outputs. binary: names of outputs that go as bytes.

    lines: the other outputs, as :func:`flat` writes them.
    """
    rest = iter(lines.split(b"\n"))
    outputs, tails = [], []
    for tensor in tensors:
        one: dict[str, Any] = {"name": tensor.name, "datatype": datatype(tensor.dtype), "shape": tensor.shape}
        if tensor.name in binary:
            one["parameters"] = {"binary_data_size": len(tensor.data)}
            tails.append(tensor.data)
        else:
            one["data"] = orjson.Fragment(next(rest))
        outputs.append(one)
    text = orjson.dumps({**head, "outputs": outputs})
    return InferAnswer(b"".join([text, *tails]), len(text) if tails else None)
