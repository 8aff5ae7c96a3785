"""Walks the wire format of protocol buffers, for the few fields that Signalbox reads of foreign messages.

Source: protobuf's "Encoding" page. Nothing is copied; whatever does not parse raises :class:`IndexError`.
So does what honest writers never write and readers take differently: protobuf keeps the last of a scalar field
that comes twice, merges messages, skips a field of an unexpected wire type, and cuts numbers of fields short.
A gate that reads on where another reader reads something else is no gate.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_KEY_END = 1 << 32
"""Keys of fields have 32 bits; some readers cut off what is above them."""
_VALUE_BITS = (1 << 64) - 1
Field = tuple[int, int, int | memoryview]


def text(message: memoryview, field: int) -> str:
    """The string in ``field``; empty where there is none. Raises IndexError where there are two."""
    return bytes(single(message, field)).decode()


def number(message: memoryview, field: int) -> int:
    """The varint in ``field``; 0 where there is none. Raises IndexError where there are two."""
    found = [value for value in _values(message, field, _VARINT) if isinstance(value, int)]
    if len(found) > 1:
        raise IndexError(field)
    return found[0] if found else 0


def single(message: memoryview, field: int) -> memoryview:
    """What is in ``field``; empty where there is nothing. Raises IndexError where it comes twice."""
    found = list(submessages(message, field))
    if len(found) > 1:
        raise IndexError(field)
    return found[0] if found else memoryview(b"")


def submessages(message: memoryview, field: int) -> Iterator[memoryview]:
    """What is in each occurrence of a repeated ``field``: messages, strings or bytes."""
    for value in _values(message, field, _BYTES):
        if isinstance(value, memoryview):
            yield value


def _values(message: memoryview, field: int, kind: int) -> Iterator[int | memoryview]:
    for tag, found, value in fields(message):
        if tag == field:
            if found != kind:
                raise IndexError(found)
            yield value


def fields(message: memoryview) -> Iterator[Field]:
    """(field number, wire type, value) of each field; raises IndexError where the bytes end early."""
    at, end = 0, len(message)
    while at < end:
        key, at = varint(message, at)
        if not 8 <= key < _KEY_END:
            raise IndexError(key)
        kind, value = key & 7, 0
        if kind == _VARINT:
            value, at = varint(message, at)
            yield key >> 3, kind, value
            continue
        if kind == _BYTES:
            size, at = varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise IndexError(kind)
        if at + size > end:
            raise IndexError(at)
        yield key >> 3, kind, message[at : at + size]
        at += size


def varint(message: memoryview, at: int) -> tuple[int, int]:
    """(the number at ``at``, where it ends). Raises IndexError where the bytes end early."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value & _VALUE_BITS, at
        shift += 7
        if shift > 63:
            raise IndexError(at)
