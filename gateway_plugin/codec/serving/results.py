"""The outputs of classification and regression signatures as TensorFlow Serving's ``results``.

A row of ``classify`` is a list of ``[label, score]`` pairs, one of ``regress`` a number. A label that no output gives
is empty, a score zero. Source: TensorFlow Serving's ``classifier.cc``, ``regressor.cc`` and ``json_tensor.cc``.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import orjson
from msgspec.structs import replace

from gateway_plugin.codec import dtypes
from gateway_plugin.codec.outputs import jsonable, plain, split_strings, tokens
from gateway_plugin.codec.serving.examples import CLASSES, CLASSIFY, OUTPUT, SCORES
from signalbox.program.errors import InvalidRequest
from signalbox.wire.tensors import Tensor

_PAIR: Final = "[batch_size num_classes]"


def render(tensors: Sequence[Tensor], style: str, *, is_strict: bool = False) -> bytes:
    """The whole answer, ``{"results": [...]}``. style: the verb, a colon and the number of examples.

    is_strict: numbers that are none are strings. Raises :class:`InvalidRequest` where the outputs are no classification
    or regression of so many examples.
    """
    verb, _, count = style.partition(":")
    outputs = {tensor.name: tensor for tensor in tensors}
    results: list[Any] = classifications(outputs, int(count)) if verb == CLASSIFY else regressions(outputs, int(count))
    data = orjson.dumps({"results": results})
    if b"null" in data:  # it writes null for what is not finite, and nothing else of ours becomes null but labels
        return tokens({"results": results}, is_strict=is_strict)
    return data


def classifications(outputs: Mapping[str, Tensor], count: int) -> list[list[list[Any]]]:
    """Pairs of label and score for each of ``count`` examples. Raises as :func:`render`."""
    classes, scores = outputs.get(CLASSES), outputs.get(SCORES)
    for tensor, dtype in ((classes, "string"), (scores, "float32")):
        if tensor is not None:
            _check(tensor, dtype, count)
    if classes is not None and scores is not None and classes.shape != scores.shape:
        raise InvalidRequest(
            f"Tensors class and score should match in dim_size(1). Got {classes.shape[1]} vs. {scores.shape[1]}"
        )
    labels = _rows(_labels(classes), classes) if classes is not None else None
    values: list[list[float]] | None = _floats(scores) if scores is not None else None
    if labels is None:
        return [[["", value] for value in row] for row in values or []]
    if values is None:
        return [[[label, 0.0] for label in row] for row in labels]
    return [[list(pair) for pair in zip(*rows, strict=True)] for rows in zip(labels, values, strict=True)]


def _check(tensor: Tensor, dtype: str, count: int) -> None:
    if len(tensor.shape) != 2:
        raise InvalidRequest(f"Expected Tensor shape: {_PAIR} but got {_shape(tensor)}")
    if tensor.dtype != dtype:
        raise InvalidRequest(
            f"Expected {tensor.name} Tensor of {dtypes.enumerator(dtype)}. Got: {dtypes.enumerator(tensor.dtype)}"
        )
    if tensor.shape[0] != count:
        raise InvalidRequest(f"Expected {tensor.name} output batch size of {count}. Got: {tensor.shape[0]}")


def _labels(classes: Tensor) -> list[str]:
    return [item.decode(errors="replace") for item in split_strings(classes.data)]


def _rows(items: list[str], tensor: Tensor) -> list[list[str]]:
    count, width = tensor.shape
    return [items[row * width : (row + 1) * width] for row in range(count)]


def regressions(outputs: Mapping[str, Tensor], count: int) -> list[float]:
    """A number for each of ``count`` examples. Raises as :func:`render`."""
    tensor = outputs.get(OUTPUT)
    if tensor is None:
        raise InvalidRequest(f"Could not find output tensor '{OUTPUT}'")
    if len(tensor.shape) != 1 and (len(tensor.shape) != 2 or tensor.shape[1] != 1):
        raise InvalidRequest(
            "Expected output Tensor shape to be either [batch_size] or [batch_size, 1] but got " + _shape(tensor)
        )
    if tensor.shape[0] != count:
        raise InvalidRequest(f"Input batch size did not match output batch size: {count} vs. {tensor.shape[0]}")
    if tensor.dtype != "float32":
        raise InvalidRequest(f"Expected output Tensor of DT_FLOAT.  Got: {dtypes.enumerator(tensor.dtype)}")
    found: list[float] = _floats(replace(tensor, shape=(count,)))
    return found


def _floats(tensor: Tensor) -> Any:
    """Nested lists of the shortest numbers that are the same float32."""
    return plain(jsonable(tensor))


def _shape(tensor: Tensor) -> str:
    return "[" + ",".join(map(str, tensor.shape)) + "]"
