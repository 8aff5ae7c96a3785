"""Named tensors to JSON: TF Serving's row (``predictions``) and columnar (``outputs``) forms.

Floats are printed shortest in their own precision and always with a fraction or exponent, so that no
reader takes them for integers. NaN and infinities are the bare tokens TF Serving prints; in strict JSON, which a
browser reads, the strings of protobuf's JSON: ``"NaN"``, ``"Infinity"``, ``"-Infinity"``. Strings whose output is
called ``..._bytes``, or that are not UTF-8, become ``{"b64": ...}``.
"""

import base64
import json
import math
import struct
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import orjson

from gateway_plugin.codec.inputs import ROW
from gateway_plugin.codec.values import NUMPY
from signalbox.program.errors import InvalidRequest
from signalbox.wire.tensors import Tensor

_BYTES_SUFFIX: Final = "_bytes"
_MOST_NAMED: Final = 8
_LEAST_BYTES: Final = {
    "bool": 5,
    "complex64": 10,
    "complex128": 10,
    "string": 3,
    "float16": 4,
    "bfloat16": 4,
    "float32": 4,
    "float64": 4,
}
"""Least bytes of an element in JSON with its comma; 2 for a whole number. A string's text comes on top."""
MOST_SHRUNK: Final = 4
"""A tensor's bytes are at most so many times those of its JSON: eight of an int64 may become two."""
_STRING_HEAD: Final = 4


def render(tensors: Sequence[Tensor], style: str, *, is_strict: bool = False) -> bytes:
    """The whole answer, ``{"predictions": ...}`` or ``{"outputs": ...}``. is_strict: numbers that are none are strings.

    Raises :class:`InvalidRequest` when rows are asked for and the outputs do not share dimension 0.
    """
    values = [(t, jsonable(t)) for t in tensors]
    if style == ROW:
        doc = {"predictions": _rows(values)}
    elif len(values) == 1:
        doc = {"outputs": values[0][1]}
    else:
        doc = {"outputs": {t.name: value for t, value in values}}
    return dumped(doc, [value for _, value in values], is_strict=is_strict)


def dumped(doc: Any, values: Sequence[Any], *, is_strict: bool = False) -> bytes:
    """JSON of what holds these values, each as :func:`jsonable` gives it; not finite numbers as bare tokens.

    is_strict: as strings.
    """
    data = orjson.dumps(doc, option=orjson.OPT_SERIALIZE_NUMPY)
    # It writes null for what is not finite, and nothing else of ours becomes null.
    if b"null" in data and any(map(_has_non_finite, values)):
        return tokens(doc, is_strict=is_strict)
    return data


def tokens(doc: Any, *, is_strict: bool) -> bytes:
    """JSON of what may hold numbers that are not finite, numpy's values among it. is_strict: they are strings."""
    if is_strict:
        doc = _strict(doc)
    return json.dumps(doc, default=plain, ensure_ascii=False, allow_nan=not is_strict, separators=(",", ":")).encode()


def _strict(value: Any) -> Any:
    """The value with strings in place of the numbers that are not finite."""
    if isinstance(value, np.ndarray | np.generic):
        value = plain(value)
    if isinstance(value, dict):
        return {name: _strict(item) for name, item in value.items()}
    if isinstance(value, list):
        return [_strict(item) for item in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def least_bytes(tensors: Sequence[Tensor]) -> int:
    """Bytes that the JSON of these has at least, known without writing it."""
    total = 0
    for tensor in tensors:
        count = math.prod(tensor.shape)
        total += count * _LEAST_BYTES.get(tensor.dtype, 2)
        if tensor.dtype == "string":
            total += len(tensor.data) - _STRING_HEAD * count
    return total


def jsonable(tensor: Tensor) -> Any:
    """The tensor as an array, a scalar of numpy's, or nested lists of strings."""
    if tensor.dtype == "string":
        return _strings(tensor)
    if tensor.dtype == "bfloat16":
        bits = np.frombuffer(tensor.data, "<u2").astype("<u4") << 16
        array: np.ndarray[Any, Any] = bits.view("<f4")
    elif tensor.dtype in {"complex64", "complex128"}:
        half = "<f4" if tensor.dtype == "complex64" else "<f8"
        return np.frombuffer(tensor.data, half).reshape(*tensor.shape, 2)
    else:
        array = np.frombuffer(tensor.data, NUMPY[tensor.dtype])
    return array.reshape(tensor.shape) if tensor.shape else array[0]


def _rows(values: Sequence[tuple[Tensor, Any]]) -> Any:
    count = _rows_of([tensor for tensor, _ in values])
    if len(values) == 1:
        return values[0][1]
    return [{t.name: value[row] for t, value in values} for row in range(count)]


def _rows_of(tensors: Sequence[Tensor]) -> int:
    """The rows that all outputs have; as many as the request had, or not, as in TF Serving."""
    if not tensors:
        raise InvalidRequest("Cannot convert empty tensor map to JSON")
    head = tensors[0]
    for tensor in tensors:
        if not tensor.shape:
            wrong = "has no shape information"
        elif tensor.shape[0] != head.shape[0]:
            wrong = f"has inconsistent batch size: {tensor.shape[0]} expecting: {head.shape[0]}"
        else:
            continue
        shapes = ", ".join(f'"{t.name[:60]}" {list(t.shape)}' for t in tensors[:_MOST_NAMED])
        raise InvalidRequest(
            f"Tensor name: {tensor.name} {wrong}. The outputs do not share dimension 0, so there are no rows; "
            f"ask with 'inputs' instead of 'instances'. Shapes: {shapes}."
        )
    return head.shape[0]


def _strings(tensor: Tensor) -> Any:
    is_wrapped = tensor.name.endswith(_BYTES_SUFFIX)
    flat = [_text(item, is_wrapped) for item in split_strings(tensor.data)]
    for axis in range(len(tensor.shape) - 1, 0, -1):
        size, count = tensor.shape[axis], math.prod(tensor.shape[:axis])
        flat = [flat[i * size : (i + 1) * size] for i in range(count)]
    return flat if tensor.shape else flat[0]


def split_strings(data: bytes) -> list[bytes]:
    """The elements of a string tensor: each a 4-byte length and its bytes."""
    items: list[bytes] = []
    at = 0
    while at < len(data):
        (size,) = struct.unpack_from("<I", data, at)
        items.append(data[at + 4 : at + 4 + size])
        at += 4 + size
    return items


def _text(item: bytes, is_wrapped: bool) -> Any:
    if not is_wrapped:
        try:
            return item.decode()
        except UnicodeDecodeError:
            pass
    return {"b64": base64.b64encode(item).decode()}


def _has_non_finite(value: Any) -> bool:
    if isinstance(value, np.ndarray | np.generic) and value.dtype.kind == "f":
        return not np.isfinite(value).all()
    return False


def plain(value: Any) -> Any:
    """Numpy values as Python's own, floats at the shortest digits of their own precision."""
    if not isinstance(value, np.ndarray | np.generic):
        raise TypeError(f"{type(value).__name__} is not JSON")
    if value.dtype.kind == "f" and value.dtype.itemsize < 8:
        if np.isfinite(value).all():
            whole = (
                np.ascontiguousarray(value) if isinstance(value, np.ndarray) else value
            )  # of a scalar it makes a list
            return orjson.loads(orjson.dumps(whole, option=orjson.OPT_SERIALIZE_NUMPY))
        shortest = np.asarray(value).astype(str)
        return np.vectorize(float, otypes=[np.float64])(shortest).tolist()
    return value.tolist()
