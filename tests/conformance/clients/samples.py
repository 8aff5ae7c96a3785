"""Arrays that every client sends: each dtype's own limits, and what is easily lost on the way."""

import base64
from typing import Any, Final

import numpy as np

INTEGERS: Final = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
FLOATS: Final = ("float16", "float32", "float64")
LARGE: Final = 1_500_000
"""Elements of a float32 array of 6 MB: above gRPC's own limit of 4 MiB."""


def mirrored() -> dict[str, Any]:
    """An array ``[3, 2]`` of each dtype, by its name; finite, and strings in UTF-8, so that JSON can say it too."""
    return {
        "bool": np.array([[True, False], [False, True], [True, True]]),
        **{name: _integers(name) for name in INTEGERS},
        **{name: _floats(np.dtype(name), np.finfo(name)) for name in FLOATS},
        **_bfloat16(),
        **{name: _complex(name) for name in ("complex64", "complex128")},
        "string": strings([[b"", b"plain"], ["gr\u00fc\u00dfe \U0001f600".encode(), b'"quoted" \\ \n'], [b"\0", b" "]]),
    }


def not_finite(dtype: Any) -> Any:
    """``[2, 2]``: NaN, both infinities and the negative zero."""
    return np.array([[np.nan, np.inf], [-np.inf, -0.0]], dtype)


def strings(elements: list[Any]) -> Any:
    """A string tensor as numpy has it: bytes of any length, as objects."""
    return np.array(elements, object)


def plain(array: Any) -> Any:
    """An array as TensorFlow Serving's JSON says it: strings as base64, a complex number as a pair."""
    if array.dtype == object:
        return [plain(one) if isinstance(one, np.ndarray) else {"b64": base64.b64encode(one).decode()} for one in array]
    if array.dtype.kind == "c":
        return np.stack([array.real, array.imag], axis=-1).tolist()
    return array.astype(np.float32).tolist() if array.dtype.name == "bfloat16" else array.tolist()


def like(array: Any, found: Any) -> Any:
    """What TensorFlow Serving's JSON says, as an array of the dtype of another."""
    if array.dtype == object:
        flat = [octets(one) for one in np.array(found, object).ravel()]
        return strings(flat).reshape(array.shape)
    if array.dtype.kind == "c":
        return np.array(found, array.real.dtype).view(array.dtype)[..., 0]
    return np.array(found, array.dtype)


def octets(found: Any) -> bytes:
    """A string as JSON says it: text, or base64."""
    return base64.b64decode(found["b64"]) if isinstance(found, dict) else found.encode()


def large() -> Any:
    """``[LARGE]`` float32, exact when halved, and as hard to compress as real ones: gateways bound what inflates."""
    return (np.arange(LARGE, dtype=np.uint64) * 2654435761 % 2**20).astype(np.float32)


def _integers(name: str) -> Any:
    limits = np.iinfo(name)
    return np.array([[limits.min, limits.max], [0, 1], [limits.max - 1, 42]], name)


def _floats(dtype: Any, limits: Any) -> Any:
    """The largest, the smallest normal and subnormal numbers, the negative zero, and a fraction that is not exact."""
    return np.array([[limits.max, limits.min], [limits.tiny, limits.smallest_subnormal], [-0.0, 0.1]], dtype)


def _bfloat16() -> dict[str, Any]:
    try:
        import ml_dtypes
    except ImportError:  # KServe's client has no such type
        return {}
    finfo: Any = ml_dtypes.finfo
    return {"bfloat16": _floats(ml_dtypes.bfloat16, finfo(ml_dtypes.bfloat16))}


def _complex(name: str) -> Any:
    return np.array([[1 + 2j, -1.5j], [0.1 - 0.1j, 0], [1e30, complex(-0.0, 1e-30)]], name)
