"""A whole payload as a file: JSON in the API's own forms, or NumPy's archive of arrays."""

import io
import json
import re
import zipfile
from collections.abc import Sequence
from enum import StrEnum
from typing import Any, Final

import numpy as np

from console.payloads import values
from signalbox.program.errors import TooLarge
from signalbox.wire.tensors import Tensor

MOST_ELEMENTS: Final = 1_000_000
"""Of a payload that is written as JSON: each is an object of Python's before it is text."""
_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]")
Named = dict[str, Any]


class Form(StrEnum):
    """Of a download."""

    JSON = "json"
    NPZ = "npz"


def named(tensors: Sequence[Tensor]) -> Named:
    """The values by name, as JSON has them. Raises :class:`TooLarge` above :data:`MOST_ELEMENTS`."""
    if (count := values.count(tensors)) > MOST_ELEMENTS:
        raise TooLarge(
            f"It has {count} elements, and at most {MOST_ELEMENTS} are written as JSON. Take it as .npz, or narrow it "
            "down with the client."
        )
    return {tensor.name: values.as_json(tensor) for tensor in tensors}


def as_json(doc: Any) -> bytes:
    """A file of JSON; numbers that are none are the bare tokens that the API takes."""
    return json.dumps(doc, ensure_ascii=False, separators=(",", ":")).encode()


def as_npz(tensors: Sequence[Tensor]) -> bytes:
    """Arrays by name, for ``numpy.load``: bfloat16 as float32. Raises :class:`TooLarge` for strings.

    They have no place in it: NumPy would pickle them, and nobody should have to unpickle a customer's data.
    """
    if any(tensor.dtype == "string" for tensor in tensors):
        raise TooLarge("Strings are not written as .npz. Take it as JSON.")
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        names: set[str] = set()
        for tensor in tensors:
            name = _ODD.sub("_", tensor.name)[:100] or "_"
            while name in names:
                name += "_"
            names.add(name)
            # The time of an entry is not told: it would be that of the reading.
            with archive.open(zipfile.ZipInfo(f"{name}.npy"), "w", force_zip64=True) as file:
                np.lib.format.write_array(file, values.array(tensor).reshape(tensor.shape), allow_pickle=False)
    return written.getvalue()
