"""Walks the wire format of protocol buffers, for the few fields we need of somebody else's messages.

Source: protobuf's "Encoding" page. Nothing is copied; whatever does not parse raises :class:`IndexError`.
"""

from collections.abc import Iterator

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
Field = tuple[int, int, int | memoryview]


def text(message: memoryview, field: int) -> str:
    """The first string in ``field``; empty where there is none."""
    return next((bytes(value).decode() for value in submessages(message, field)), "")


def submessages(message: memoryview, field: int) -> Iterator[memoryview]:
    """What is in each occurrence of ``field``: messages, strings or bytes."""
    for tag, _, value in fields(message):
        if tag == field and isinstance(value, memoryview):
            yield value


def fields(message: memoryview) -> Iterator[Field]:
    """(field number, wire type, value) of each field; raises IndexError where the bytes end early."""
    at, end = 0, len(message)
    while at < end:
        key, at = _varint(message, at)
        kind, value = key & 7, 0
        if kind == _VARINT:
            value, at = _varint(message, at)
            yield key >> 3, kind, value
            continue
        if kind == _BYTES:
            size, at = _varint(message, at)
        elif kind in {_FIXED64, _FIXED32}:
            size = 8 if kind == _FIXED64 else 4
        else:
            raise IndexError(kind)
        if at + size > end:
            raise IndexError(at)
        yield key >> 3, kind, message[at : at + size]
        at += size


def _varint(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 63:
            raise IndexError(at)
