"""Inputs of a model from the command line: JSON as it stands there, files of JSON and numpy, standard input."""

import argparse
import io
import json
import sys
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

import numpy as np

from signalbox.program.errors import InvalidInput

_NPY: Final = b"\x93NUMPY"
_ZIP: Final = b"PK\x03\x04"
_UNREADABLE: Final = (ValueError, EOFError, RuntimeError, MemoryError, zipfile.BadZipFile, zlib.error)
"""What damaged files make of the readers of JSON and numpy. RuntimeError: too deep, encrypted, or packed otherwise."""
_BODY: Final = frozenset({"inputs", "instances", "signature_name"})

HELP: Final = """An input is one of:

  '[1.0, 2.0]'        JSON: a list is rows ("instances"), an object is inputs by name, or a whole body with "instances"
                      or "inputs" as TensorFlow Serving takes it
  digits.json         the same in a file
  arrays.npz          arrays by name; they go as bytes
  image=image.npy     one array of that name; without NAME= for a model that has one input
  -                   standard input: JSON, .npy or .npz"""


class Inputs(NamedTuple):
    """What a model is given: ``inputs`` by name, or rows in ``instances``. signature: that the JSON named, or empty."""

    inputs: Any = None
    instances: Any = None
    signature: str = ""


def add_option(parser: argparse.ArgumentParser) -> None:
    """The inputs; their forms are in :data:`HELP`."""
    parser.add_argument(
        "--input",
        "-i",
        action="append",
        default=[],
        metavar="[NAME=]INPUT",
        help="JSON, a file, or - for standard input; several by name.",
    )


def read(given: list[str], only_input: Callable[[], str]) -> Inputs:
    """What the options say. only_input: name of a model's one input, asked for where an array has none.

    Raises :class:`InvalidInput` with the mend.
    """
    if not given:
        raise InvalidInput("Give the inputs: --input '[1.0, 2.0]', --input FILE, or --input - for standard input.")
    found = [_one(text) for text in given]
    if len(found) == 1 and not found[0][0]:
        value = found[0][1]
        return _of_json(value) if not _is_numpy(value) else Inputs(inputs=_by_name(value, only_input))
    arrays: dict[str, Any] = {}
    for name, value in found:
        if not name and not isinstance(value, dict):
            raise InvalidInput("Name each of several inputs: --input x=FILE --input y=FILE.")
        arrays |= {name: value} if name else value
    return Inputs(inputs=arrays)


def of_line(doc: Any) -> Inputs:
    """The inputs in one line of JSON. Raises :class:`InvalidInput`."""
    return _of_json(doc)


def _one(text: str) -> tuple[str, Any]:
    """Name, or nothing, and value of one option."""
    if text.lstrip()[:1] in {"[", "{"}:
        return "", _parsed(text.encode(), "--input")
    name, equals, rest = text.partition("=")
    if equals and name.isidentifier():
        value = _parsed(rest.encode(), name) if rest.lstrip()[:1] in {"[", "{"} else _in_file(rest)
        return name, value
    return "", _in_file(text)


def _in_file(path: str) -> Any:
    try:
        data = sys.stdin.buffer.read() if path == "-" else Path(path).read_bytes()
    except (OSError, ValueError) as error:  # ValueError: no path has such a letter
        raise InvalidInput(f"{path} cannot be read: {error}.") from error
    return _parsed(data, "standard input" if path == "-" else path)


def _parsed(data: bytes, where: str) -> Any:
    """An array, arrays by name, or what the JSON has."""
    try:
        if data.startswith((_NPY, _ZIP)):
            loaded = np.load(io.BytesIO(data), allow_pickle=False)
            return loaded if isinstance(loaded, np.ndarray) else dict(loaded)
        return json.loads(data)
    except _UNREADABLE as error:
        raise InvalidInput(f"{where} is neither JSON nor arrays of numpy without objects: {error}.") from error


def _is_numpy(value: Any) -> bool:
    return isinstance(value, np.ndarray) or (
        isinstance(value, dict) and any(isinstance(one, np.ndarray) for one in value.values())
    )


def _by_name(value: Any, only_input: Callable[[], str]) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {only_input(): value}


def _of_json(value: Any) -> Inputs:
    if not isinstance(value, dict):
        return Inputs(instances=value if isinstance(value, list) else [value])
    if not value.keys() & {"inputs", "instances"}:
        return Inputs(inputs=value)
    if odd := value.keys() - _BODY:
        raise InvalidInput(f"The JSON has {', '.join(sorted(odd))} beside inputs or instances.")
    return Inputs(value.get("inputs"), value.get("instances"), str(value.get("signature_name") or ""))
