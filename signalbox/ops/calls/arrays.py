"""Arrays that a model gave: printed for a person or as JSON, or saved for numpy."""

import io
import json
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from signalbox.program.errors import InvalidInput, Misconfigured


def put(arrays: dict[str, NDArray[Any]], into: str, *, is_json: bool) -> None:
    """Save into a file (.npz, .npy of one array, .json; -: .npz on standard output), or print where none is named.

    Raises :class:`Misconfigured`.
    """
    if not into:
        print(_json(arrays) if is_json else "\n".join(_shown(name, one) for name, one in arrays.items()))
        return
    _write(_bytes(arrays, ".npz" if into == "-" else Path(into).suffix), into)


def _write(data: bytes, into: str) -> None:
    try:
        if into == "-":
            sys.stdout.buffer.write(data)
            sys.stdout.buffer.flush()
        else:
            Path(into).write_bytes(data)
    except BrokenPipeError:  # who reads it has read enough, which is no fault
        raise
    except OSError as error:
        raise Misconfigured(f"{into} cannot be written: {error.strerror}.") from error


def put_json(doc: Any, into: str) -> None:
    """Save a JSON document (-: on standard output). Raises :class:`Misconfigured`, and :class:`InvalidInput`."""
    if into != "-" and Path(into).suffix != ".json":
        raise InvalidInput(f"{into}: JSON in gives JSON out; save it as .json, or give arrays (--input FILE.npz).")
    _write(json.dumps(doc).encode() + b"\n", into)


def check(into: str) -> None:
    """Raise :class:`InvalidInput` for a file that :func:`put` has no form for, before anything is waited for."""
    if into and into != "-" and Path(into).suffix not in {".npz", ".npy", ".json"}:
        raise InvalidInput(f"{into}: results are saved as .npz, .npy or .json.")


def _bytes(arrays: dict[str, NDArray[Any]], suffix: str) -> bytes:
    if suffix == ".json":
        return _json(arrays).encode() + b"\n"
    out = io.BytesIO()
    if suffix == ".npz":
        with zipfile.ZipFile(out, "w") as archive:  # numpy.savez takes no array that is called "file"
            for name, one in arrays.items():
                with archive.open(f"{name}.npy", "w", force_zip64=True) as member:
                    np.lib.format.write_array(member, _plain(one), allow_pickle=False)
    elif len(arrays) == 1:
        np.save(out, _plain(next(iter(arrays.values()))), allow_pickle=False)
    else:
        raise InvalidInput(f"A .npy file has one array, and the result has {len(arrays)}: save it as .npz.")
    return out.getvalue()


def _plain(array: NDArray[Any]) -> NDArray[Any]:
    """Texts as numpy's own type, so that they are saved without pickle."""
    return array.astype(np.bytes_) if array.dtype.kind == "O" else array


def _json(arrays: dict[str, NDArray[Any]]) -> str:
    return json.dumps({name: one.tolist() for name, one in arrays.items()}, default=_text)


def _text(value: object) -> str:
    if isinstance(value, bytes):
        return value.decode(errors="replace")
    return str(value)


def _shown(name: str, array: NDArray[Any]) -> str:
    return f"{name}  {array.dtype} {list(array.shape)}\n{array}"
