"""Items of a queue, and the protobuf ``DataFrame`` that carries them (eas-prediction 0.36; docs/queues.md)."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from signalbox.program.errors import Bug

REQUEST_ID: Final = "requestId"
"""Tag of an item's request id."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT: Final = 10


@dataclass
class Item:
    """What was put into a queue. tags: without those that begin with an underscore, which say what befell it.

    index: its place, which only grows. is_settled: it was committed, or given back.
    """

    index: int
    data: bytes = b""
    tags: Mapping[str, str] = field(default_factory=dict)
    notes: Mapping[str, str] = field(default_factory=dict)
    is_settled: bool = field(default=False, repr=False, compare=False)

    @property
    def request_id(self) -> str:
        """What it was put under, empty where it has none. A result has that of the item it came of."""
        return self.tags.get(REQUEST_ID, "")


@dataclass(frozen=True)
class Receipt:
    """What was put is durable. request_id: by which its result is asked for in the sink."""

    index: int
    request_id: str


class Found(NamedTuple):
    """Where an item is. is_pending: given out and not committed. wait_count: how many are ahead of it."""

    is_pending: bool
    wait_count: int


def items_of(body: bytes) -> list[Item]:
    """The items of a ``DataFrameList``. Raises :class:`Bug`."""
    return [item_of(value) for number, value in _fields(body) if number == 1 and isinstance(value, bytes)]


def item_of(body: bytes) -> Item:
    """The item of a ``DataFrame``. Fields that this client does not know are passed over. Raises :class:`Bug`."""
    index, data, tags = 0, b"", dict[str, str]()
    for number, value in _fields(body):
        if number == 1 and isinstance(value, int):
            index = value
        elif number == 2 and isinstance(value, bytes):
            entry = {
                number: text.decode(errors="replace") for number, text in _fields(value) if isinstance(text, bytes)
            }
            tags[entry.get(1, "")] = entry.get(2, "")
        elif number == 3 and isinstance(value, bytes):
            data = value
    own = {name: value for name, value in tags.items() if not name.startswith("_")}
    return Item(index, data, own, {name: value for name, value in tags.items() if name not in own})


def _fields(body: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Numbers and values of a protobuf message's fields; those of fixed width are left out."""
    at = 0
    while at < len(body):
        tag, at = _varint(body, at)
        number, kind = tag >> 3, tag & 7
        if kind == _VARINT:
            value, at = _varint(body, at)
            yield number, value
        elif kind == _BYTES:
            length, at = _varint(body, at)
            if at + length > len(body):
                raise Bug("The front sent an item that ends early.")
            yield number, body[at : at + length]
            at += length
        elif kind in {_FIXED64, _FIXED32}:
            at += 8 if kind == _FIXED64 else 4
        else:
            raise Bug("The front sent no DataFrame: is its URL Signalbox's?")


def _varint(body: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift, byte in enumerate(body[at : at + _LONGEST_VARINT]):
        value |= (byte & 0x7F) << (7 * shift)
        if byte < 0x80:
            return value, at + shift + 1
    raise Bug("The front sent an item that ends early.")
