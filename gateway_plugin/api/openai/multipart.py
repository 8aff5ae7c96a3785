"""Reads ``multipart/form-data`` (RFC 7578) as it comes. Pure: bytes go in, and what they say comes out."""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

from signalbox.program.errors import InvalidRequest

_MOST_HEAD_BYTES: Final = 8192
_MOST_FIELDS: Final = 32
_BOUNDARY: Final = re.compile(
    r'multipart/form-data\s*;(?:.*;)?\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70}))', re.IGNORECASE
)
# Some clients leave the quotes away where a name has only letters, as RFC 2183 lets them.
_NAME: Final = re.compile(rb'[;\s]name=(?:"((?:[^"\\]|\\.){0,200})"|([^\s;"]{1,200}))', re.IGNORECASE)
_FILENAME: Final = re.compile(rb'[;\s]filename=(?:"((?:[^"\\]|\\.){0,1000})"|([^\s;"]{1,1000}))', re.IGNORECASE)


class Began(NamedTuple):
    """A field begins. filename: None where it is none of a file."""

    name: str
    filename: str | None


class Multipart:
    """The reader of one body. Raises :class:`InvalidRequest` for one that is none. is_over: the end has come."""

    def __init__(self, content_type: str) -> None:
        found = _BOUNDARY.match(content_type)
        if found is None:
            raise InvalidRequest('Send the file as multipart/form-data: fields "purpose" and "file".')
        self._delimiter = b"\r\n--" + (found[1] or found[2]).encode()
        self._buffer = b"\r\n"  # before the first delimiter there may be nothing
        self._read = self._skip
        self._fields = 0
        self.is_over = False

    def feed(self, data: bytes) -> Iterator[Began | bytes]:
        """What more bytes say: fields that begin, and bytes of the field that began last."""
        self._buffer += data
        while not self.is_over:
            before = self._buffer
            found = self._read()
            if found is not None and found != b"":
                yield found
            if self._buffer is before:
                return
        self._buffer = b""

    def _skip(self) -> Began | bytes | None:
        """What comes before the first field, which is nobody's."""
        self._data()
        return None

    def _data(self) -> Began | bytes | None:
        """The bytes of a field, up to the delimiter."""
        data, delimiter, rest = self._buffer.partition(self._delimiter)
        if delimiter:
            self._buffer = rest
            self._read = self._after
            return data
        kept = len(self._delimiter) - 1
        if len(data) <= kept:
            return None
        self._buffer = data[-kept:]
        return data[:-kept]

    def _after(self) -> Began | bytes | None:
        """What follows a delimiter: the head of another field, or the end."""
        if len(self._buffer) < 2:
            return None
        if self._buffer[:2] == b"--":
            self.is_over = True
        elif self._buffer[:2] == b"\r\n":
            self._read = self._head
        else:
            raise InvalidRequest("The multipart body is malformed behind a boundary.")
        self._buffer = self._buffer[2:]
        return None

    def _head(self) -> Began | bytes | None:
        head, end, rest = self._buffer.partition(b"\r\n\r\n")
        if not end:
            if len(head) > _MOST_HEAD_BYTES:
                raise InvalidRequest("A field of the multipart body has a head that is too long.")
            return None
        self._fields += 1
        if self._fields > _MOST_FIELDS:
            raise InvalidRequest(f"The multipart body has more than {_MOST_FIELDS} fields.")
        name = _NAME.search(head)
        if name is None:
            raise InvalidRequest("A field of the multipart body has no name.")
        filename = _FILENAME.search(head)
        self._buffer = rest
        self._read = self._data
        return Began(_text(name), None if filename is None else _text(filename))


def _text(found: re.Match[bytes]) -> str:
    quoted, plain = found.groups()
    return (plain if quoted is None else re.sub(rb"\\(.)", rb"\1", quoted)).decode(errors="replace")
