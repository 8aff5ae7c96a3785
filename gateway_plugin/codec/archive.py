"""Outputs as an archive of numpy's (``.npz``), an array for each, in their order."""

import io
import math
import zipfile
from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gateway_plugin.codec.decoder import too_large
from gateway_plugin.codec.outputs import split_strings
from gateway_plugin.codec.values import NUMPY
from signalbox.program.errors import InvalidRequest
from signalbox.wire.tensors import Tensor

_FORM: Final = " as arrays of numpy, where each string takes as much as the longest"


def npz(tensors: Sequence[Tensor], limit_bytes: int) -> bytes:
    """The archive. It has no times of its own: the same outputs are the same bytes.

    numpy has no bfloat16, so that becomes float32. Strings are of a fixed length, which takes their zero bytes at the
    end away: raises :class:`InvalidRequest` for a string that has some, and :class:`ResultTooLarge` where a tensor
    would have more than ``limit_bytes``.
    """
    written = io.BytesIO()
    with zipfile.ZipFile(written, "w") as archive:
        for tensor in tensors:
            array = _strings(tensor, limit_bytes) if tensor.dtype == "string" else _numbers(tensor)
            with archive.open(zipfile.ZipInfo(f"{tensor.name}.npy"), "w", force_zip64=True) as member:
                np.lib.format.write_array(member, array, allow_pickle=False)
    return written.getvalue()


def _numbers(tensor: Tensor) -> np.ndarray[Any, Any]:
    if tensor.dtype == "bfloat16":
        return (np.frombuffer(tensor.data, "<u2").astype("<u4") << 16).view("<f4").reshape(tensor.shape)
    return np.frombuffer(tensor.data, NUMPY[tensor.dtype]).reshape(tensor.shape)


def _strings(tensor: Tensor, limit_bytes: int) -> np.ndarray[Any, Any]:
    items = split_strings(tensor.data)
    longest = max(map(len, items), default=0) or 1
    if longest * math.prod(tensor.shape) > limit_bytes:
        raise too_large(len(tensor.data), limit_bytes, _FORM)
    if any(item.endswith(b"\0") for item in items):
        raise InvalidRequest(
            f'Output "{tensor.name[:60]}" has strings that end in a zero byte, which numpy does not keep. Ask for '
            "JSON or application/octet-stream.",
            output=tensor.name[:60],
        )
    return np.array(items, f"S{longest}").reshape(tensor.shape)
