"""Reads the text format of protocol buffers. Foreign files: the inspector is confined, and nesting bounded."""

from pathlib import Path
from typing import Final

from google.protobuf import text_format
from google.protobuf.message import Message

from signalbox.program.errors import InvalidRequest

_MOST_DEPTH: Final = 32
_MOST_SAID: Final = 200


def read_file(path: Path, most_bytes: int) -> bytes | None:
    """The bytes of a file; None where there is none. Raises :class:`InvalidRequest`."""
    try:
        with path.open("rb") as file:
            data = file.read(most_bytes + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise InvalidRequest(f"It cannot be read: {error.strerror}.") from error
    if len(data) > most_bytes:
        raise InvalidRequest(f"It has more than {most_bytes} bytes.")
    return data


def parse(data: bytes, into: Message) -> None:
    """Fill ``into`` with what the text says; fields that it does not have are passed over.

    Raises :class:`InvalidRequest` with the line, for what is no such text.
    """
    try:
        text_format.Parse(data.decode(), into, allow_unknown_field=True, max_recursion_depth=_MOST_DEPTH)
    except UnicodeDecodeError as error:
        raise InvalidRequest("It is no UTF-8.") from error
    except RecursionError as error:
        raise InvalidRequest("It is nested too deeply.") from error
    except text_format.ParseError as error:
        said = _reason(error, into.DESCRIPTOR.file.package)
        raise InvalidRequest(f"Line {error.GetLine() or 1}: {said}") from error


def _reason(error: text_format.ParseError, package: str) -> str:
    """What the parser says without the line, which may hold anything: printable, cut short."""
    said = str(error).rpartition("': ")[2].replace(f"{package}.", "")
    return "".join(letter if letter.isprintable() else " " for letter in said)[:_MOST_SAID]
