"""Values of inputs that nobody has sent."""

import math
import string
from typing import Final

import ml_dtypes
import numpy as np

from workers.runner.arrays import STRING, Array

_TOP: Final = 10
"""Integers are below it: they may be places in a table."""
_BYTE_TOP: Final = 256
"""The same for uint8, which pictures are made of."""
_WORDS: Final = (1, 30, 4, 12, 2, 7)
"""Words of a row's text."""
_VOCABULARY: Final = 200


def random_values(dice: np.random.Generator, name: str, shape: tuple[int, ...], *, is_tame: bool) -> Array:
    """Values of a dtype and shape; texts need a rank of 1 at least.

    is_tame: only what nearly every model takes, integers of 0 and 1 and floats between.
    """
    if name == STRING:
        return _texts(dice, shape)
    dtype = np.dtype(ml_dtypes.bfloat16 if name == "bfloat16" else name)
    if dtype.kind in "biu":
        top = 2 if is_tame or dtype.kind == "b" else _BYTE_TOP if dtype == np.uint8 else _TOP
        return dice.integers(0, top, shape).astype(dtype)
    values = dice.random(shape) if is_tame else dice.normal(size=shape)
    if not is_tame:
        values[1::2] = dice.random(values[1::2].shape)  # a root or a logarithm shows something too
    if dtype.kind == "c":
        return np.asarray(values + 1j * dice.normal(size=shape)).astype(dtype)
    return values.astype(dtype)


def _texts(dice: np.random.Generator, shape: tuple[int, ...]) -> Array:
    """Words, in texts of unlike length."""
    letters = list(string.ascii_lowercase)
    words = ["".join(dice.choice(letters, size=size)) for size in dice.integers(2, 9, _VOCABULARY)]
    found = np.empty(math.prod(shape), dtype=object)
    in_row = max(1, len(found) // shape[0])
    for at in range(len(found)):
        chosen = dice.integers(0, _VOCABULARY, _WORDS[at // in_row % len(_WORDS)])
        found[at] = " ".join(words[one] for one in chosen).encode()
    return found.reshape(shape)
