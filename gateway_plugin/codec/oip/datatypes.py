"""The Open Inference Protocol's names of dtypes."""

from typing import Final

DATATYPES: Final = {
    "BOOL": "bool",
    "INT8": "int8",
    "INT16": "int16",
    "INT32": "int32",
    "INT64": "int64",
    "UINT8": "uint8",
    "UINT16": "uint16",
    "UINT32": "uint32",
    "UINT64": "uint64",
    "FP16": "float16",
    "BF16": "bfloat16",
    "FP32": "float32",
    "FP64": "float64",
    "BYTES": "string",
    "COMPLEX64": "complex64",
    "COMPLEX128": "complex128",
}
"""Our dtypes by the protocol's names, which has none for complex numbers: those are ours."""
BINARY_ONLY: Final = frozenset({"float16", "bfloat16", "complex64", "complex128"})
"""Dtypes whose elements the protocol has no JSON for."""
_NAMES: Final = {dtype: name for name, dtype in DATATYPES.items()}


def datatype(dtype: str) -> str:
    """The protocol's name of a dtype; of one that cannot travel its own, in capitals."""
    return _NAMES.get(dtype, dtype.upper())
