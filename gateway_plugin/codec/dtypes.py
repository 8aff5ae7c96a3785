"""TensorFlow's names of dtypes."""

from typing import Final

from signalbox.wire.tensors import DTYPES

_OTHERS: Final = {"float32": "float", "float64": "double", "float16": "half"}


def word(dtype: str) -> str:
    """The word that TensorFlow writes in a sentence: ``float``."""
    return _OTHERS.get(dtype, dtype)


def enumerator(dtype: str) -> str:
    """The name in TensorFlow's ``types.proto``: ``DT_FLOAT``; ``DT_INVALID`` for what cannot travel."""
    return f"DT_{word(dtype).upper()}" if dtype in DTYPES else "DT_INVALID"
