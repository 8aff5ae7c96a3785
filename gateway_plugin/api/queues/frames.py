"""Items as the product's SDKs read them: ``DataFrame`` of protobuf, alone in a frame of a websocket or in a list.

``message DataFrame {uint64 index = 1; map<string, string> tags = 2; bytes data = 3; string message = 4;}``
``message DataFrameList {repeated DataFrame index = 1;}``
"""

from collections.abc import Iterable
from typing import Final

from gateway_plugin.codec.protobuf.protowire import field, number, wrapped
from gateway_plugin.queues.items import Item

PROTOBUF: Final = "application/vnd.google.protobuf"
_INDEX, _TAGS, _DATA = 1, 2, 3
_KEY, _VALUE = 1, 2


def frame(item: Item) -> bytes:
    """One item. One that was asked for without its data has none here."""
    return b"".join(_parts(item))


def frames(items: Iterable[Item]) -> bytes:
    """A list of items, empty for none."""
    return b"".join(part for item in items for part in wrapped(1, _parts(item)))


def _parts(item: Item) -> list[bytes]:
    parts = [number(_INDEX, item.index)]
    for key, value in item.tags.items():
        parts.append(field(_TAGS, field(_KEY, key.encode()) + field(_VALUE, value.encode())))
    if item.data:
        parts.append(field(_DATA, item.data))
    return parts
