"""Numpy arrays as the Open Inference Protocol's binary tensors, and as JSON where bytes cannot go."""

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from signalbox.client.exchange import Response
from signalbox.program.errors import Bug, InvalidInput, InvalidRequest

Arrays = dict[str, NDArray[Any]]
HEADER: Final = "Inference-Header-Content-Length"
BINARY: Final = "application/octet-stream"
_DATATYPES: Final = {
    "bool": "BOOL",
    **{f"{sign}int{bits}": f"{sign.upper()}INT{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
    "float16": "FP16",
    "bfloat16": "BF16",  # of the package ml_dtypes
    "float32": "FP32",
    "float64": "FP64",
    "complex64": "COMPLEX64",
    "complex128": "COMPLEX128",
}
_DTYPES: Final = {datatype: name for name, datatype in _DATATYPES.items() if name != "bfloat16"}


def are_arrays(inputs: object) -> bool:
    """Whether inputs are to go as bytes: a mapping that has an array."""
    return isinstance(inputs, Mapping) and any(isinstance(one, np.ndarray) for one in inputs.values())


def encode(
    inputs: Mapping[str, Any], parameters: Mapping[str, Any], outputs: Sequence[str] = ()
) -> tuple[bytes, dict[str, str]]:
    """Body and headers of an inference. outputs: empty = all. Raises :class:`InvalidInput`."""
    given, tails = [], []
    for name, value in inputs.items():
        array = np.asarray(value)
        datatype, data = _bytes(name, array)
        size = {"binary_data_size": len(data)}
        given.append({"name": name, "shape": list(array.shape), "datatype": datatype, "parameters": size})
        tails.append(data)
    doc: dict[str, Any] = {"inputs": given, "parameters": {**parameters, "binary_data_output": True}}
    if outputs:
        doc["outputs"] = [{"name": name} for name in outputs]
    head = json.dumps(doc, separators=(",", ":")).encode()
    return b"".join([head, *tails]), {HEADER: str(len(head)), "Content-Type": BINARY}


def _bytes(name: str, array: NDArray[Any]) -> tuple[str, bytes]:
    """The datatype of an array, and its bytes: little-endian, row-major."""
    if array.dtype.kind in "SUO":
        texts = [one.encode() if isinstance(one, str) else one for one in array.ravel().tolist()]
        if not all(isinstance(one, bytes) for one in texts):
            raise InvalidInput(f'Input "{name}" holds objects that are neither str nor bytes.', input=name)
        return "BYTES", b"".join([len(text).to_bytes(4, "little") + text for text in texts])
    datatype = _DATATYPES.get(array.dtype.name)
    if datatype is None:
        raise InvalidInput(f'Input "{name}": arrays of {array.dtype} cannot be sent; convert it (astype).', input=name)
    return datatype, array.astype(array.dtype.newbyteorder("<"), copy=False).tobytes()


def decode(response: Response) -> Arrays:
    """The outputs of an answer by name: strings as objects (bytes), bfloat16 as float32. Raises :class:`Bug`."""
    head_bytes = response.headers.get(HEADER.lower())
    try:
        size = len(response.body) if head_bytes is None else int(head_bytes)
        doc = json.loads(response.body[:size])
        rest, found = memoryview(response.body)[size:], {}
        for one in doc["outputs"]:
            taken = one.get("parameters", {}).get("binary_data_size", 0)
            found[str(one["name"])] = _array(one, rest[:taken])
            rest = rest[taken:]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Bug(f"The front's answer holds no tensors: {error}. Is the client older than the front?") from error
    return found


def _array(output: Mapping[str, Any], data: memoryview) -> NDArray[Any]:
    datatype, shape = output["datatype"], output["shape"]
    if "data" in output:
        return np.array(output["data"], _DTYPES.get(datatype, "object")).reshape(shape)
    if datatype == "BYTES":
        texts = np.empty(int(np.prod(shape)), object)
        at = 0
        for index in range(texts.size):
            end = at + 4 + int.from_bytes(data[at : at + 4], "little")
            texts[index], at = bytes(data[at + 4 : end]), end
        return texts.reshape(shape)
    if datatype == "BF16":
        return (np.frombuffer(data, "<u2").astype("<u4") << 16).view(np.float32).reshape(shape)
    dtype = np.dtype(_DTYPES[datatype])
    return np.frombuffer(data, dtype.newbyteorder("<")).astype(dtype).reshape(shape)  # aligned, and the caller's own


def as_json(doc: Any) -> bytes:
    """A body, with arrays as lists and bytes as ``{"b64": ...}``. Raises :class:`InvalidRequest`."""
    try:
        return json.dumps(doc, separators=(",", ":"), default=_plain).encode()
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"This cannot be sent as JSON: {error}.") from error


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    if isinstance(value, bytes):
        return {"b64": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} has no JSON")
