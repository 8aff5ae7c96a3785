"""Reads protobuf messages field by field from bytes, within a bound, and writes their parts.

For messages that hold tensors: protobuf's own classes take many times the bytes of a message before anything in it can
be refused. Here a field is a slice of the message, and a message whose fields outnumber a bound is given up. Source:
protobuf's description of its encoding. Numbers that are packed: :mod:`gateway_plugin.codec.protobuf.varints`.
"""

from collections.abc import Iterator, Sequence
from typing import Final

import msgspec

from signalbox.program.errors import InvalidRequest, TooLarge

VARINT: Final = 0
FIXED64: Final = 1
LENGTH: Final = 2
FIXED32: Final = 5
MOST_FIELDS: Final = 100_000
"""Fields of one request, those of the messages in it included: each costs a step of Python where others wait."""
FEW_FIELDS: Final = 4_096
"""As many as delay no other request: those of a message's own level, and of tensors without strings."""
MOST_NAMES: Final = 1_024
"""Entries of one kind that a request may name, such as inputs and outputs."""
LONGEST_NAME: Final = 512
"""Bytes of a name: an error that has it twice fits the 8 KiB that gRPC's clients take."""
_FIXED_BYTES: Final = {FIXED64: 8, FIXED32: 4}
_LARGEST: Final = 2**64 - 1
_LONGEST_VARINT: Final = 10


class TooManyFields(TooLarge):
    """A request has more fields than are read."""


class Field(msgspec.Struct, frozen=True, gc=False):
    """One field. kind: its wire type. data: its bytes without tag and length; of a varint those that encode it."""

    number: int
    kind: int
    data: memoryview


class WireReader:
    """Reads the messages of one request. what: the request's name, for errors."""

    def __init__(self, what: str, most: int = MOST_FIELDS) -> None:
        self._what = what
        self._most = self._left = most

    def fields(self, message: memoryview) -> Iterator[Field]:
        """The fields of a message, in order. Each counts towards the bound of the whole request.

        Raises :class:`InvalidRequest` for what is no message, and :class:`TooManyFields`.
        """
        at, end = 0, len(message)
        while at < end:
            if not self._left:
                raise TooManyFields(
                    f"The {self._what} has more than {self._most} fields, strings and numbers that are not packed "
                    "included; send it in parts.",
                    bound="fields",
                    limit=self._most,
                )
            self._left -= 1
            tag, start = message[at], at + 1
            if tag > 0x7F:
                tag, start = self._varint(message, at)
            number, kind = tag >> 3, tag & 7
            if not 0 < number < 2**29:
                raise self.malformed(f"there is no field {number}")
            if kind == LENGTH:
                size, start = self._varint(message, start)
                at = start + size
            elif kind == VARINT:
                _, at = self._varint(message, start)
            elif kind in _FIXED_BYTES:
                at = start + _FIXED_BYTES[kind]
            else:
                raise self.malformed(f"field {number} has the wire type {kind}")
            if at > end:
                raise self.malformed(f"field {number} goes on behind the end")
            yield Field(number, kind, message[start:at])

    def message(self, field: Field) -> memoryview:
        """The bytes of a field that is a message or bytes."""
        if field.kind != LENGTH:
            raise self._other(field, "a message, a string or bytes")
        return field.data

    def name(self, field: Field) -> str:
        """A field that is a short text. Raises :class:`InvalidRequest`."""
        data = self.message(field)
        if len(data) > LONGEST_NAME:
            raise self.malformed(f"field {field.number}, a name, has {len(data)} bytes; {LONGEST_NAME} are taken")
        try:
            return bytes(data).decode()
        except UnicodeDecodeError:
            raise self.malformed(f"field {field.number}, a name, is not UTF-8") from None

    def integer(self, field: Field) -> int:
        """A field that is an int64."""
        if field.kind != VARINT:
            raise self._other(field, "an integer")
        value, _ = self._varint(field.data, 0)
        return value - 2**64 if value >= 2**63 else value

    def entry(self, field: Field) -> tuple[str, Field | None]:
        """Name and value of an entry of a map; the value is None where the entry has none, which is the default."""
        name, value = "", None
        for part in self.fields(self.message(field)):
            if part.number == 1:
                name = self.name(part)
            elif part.number == 2:
                value = part
        return name, value

    def malformed(self, why: str) -> InvalidRequest:
        """The error for a message that is none, or that breaks a rule of its kind."""
        return InvalidRequest(f"The {self._what} is malformed: {why}.")

    def _other(self, field: Field, wanted: str) -> InvalidRequest:
        return self.malformed(f"field {field.number} has the wire type {field.kind}, which is not that of {wanted}")

    def _varint(self, data: memoryview, at: int) -> tuple[int, int]:
        """An unsigned number, and the place behind it."""
        if at < len(data) and data[at] < 0x80:
            return data[at], at + 1
        value = 0
        for place, byte in enumerate(data[at : at + _LONGEST_VARINT]):
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value & _LARGEST, at + place + 1
        raise self.malformed("a number does not end")


def varint(value: int) -> bytes:
    """A number as a varint; a negative one as int64 is encoded."""
    value &= _LARGEST
    if value < 0x80:
        return bytes((value,))
    made = bytearray()
    while value > 0x7F:
        made.append(value & 0x7F | 0x80)
        value >>= 7
    made.append(value)
    return bytes(made)


def head(number: int, size: int) -> bytes:
    """What stands before the bytes of a message, a string, bytes or packed numbers."""
    return varint(number << 3 | LENGTH) + varint(size)


def field(number: int, data: bytes) -> bytes:
    """A field that is a message, a string, bytes or packed numbers."""
    return head(number, len(data)) + data


def wrapped(number: int, parts: Sequence[bytes]) -> list[bytes]:
    """A field that holds a large message that is still in parts, in parts."""
    return [head(number, sum(map(len, parts))), *parts]


def number(number: int, value: int) -> bytes:
    """A field that is an integer, a boolean or an enumerator."""
    return varint(number << 3 | VARINT) + varint(value)
