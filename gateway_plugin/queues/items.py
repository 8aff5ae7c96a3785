"""What a queue keeps: an item, its tags, and who may take it. No I/O."""

import re
from collections.abc import Mapping
from typing import Final, NamedTuple

import msgspec

from signalbox.bus.client import Delivery, Stored
from signalbox.program.errors import InvalidRequest
from signalbox.wire import queuenames
from signalbox.wire.names import Header
from signalbox.wire.queues import DEFAULT_GROUP

REQUEST_TAG: Final = "requestId"
"""Tag of every item: the id of the put that made it, unless that put gave another one's (a result does)."""
MOST_TAGS: Final = 32
TAG_BYTES: Final = 256
"""Of a tag's value, in UTF-8."""
MOST_TAG_BYTES: Final = 12 * 1024
"""Of all tags of an item, as they are stored: control characters take six bytes each."""
_KEY: Final = re.compile(r"[A-Za-z][A-Za-z0-9_.-]{0,63}\Z")
_ID: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}\Z")
_encode: Final = msgspec.json.Encoder().encode
_decode: Final = msgspec.json.Decoder(dict[str, str]).decode


class Item(msgspec.Struct, frozen=True):
    """One item as it is given out.

    index: its number in its side of the queue, in the rear queue the number there. request_id: of the put that made it.
    time: UTC seconds of that. deliveries: how many times its group has been given it, this time included. trace: the
    ``traceparent`` of who put it, empty = none.
    """

    index: int
    tags: Mapping[str, str]
    data: bytes
    request_id: str = ""
    is_high: bool = False
    time: float = 0.0
    deliveries: int = 1
    trace: str = ""

    @property
    def size(self) -> int:
        """Bytes of its data and tags."""
        return len(self.data) + sum(len(key) + len(value) for key, value in self.tags.items())

    def matches(self, tags: Mapping[str, str]) -> bool:
        """Whether it has all of these tags."""
        return all(self.tags.get(key) == value for key, value in tags.items())


class Consumer(NamedTuple):
    """Who takes items: one instance of a group. Made by :func:`consumer_of`."""

    group: str
    uid: str


def consumer_of(group: str, uid: str) -> Consumer:
    """The consumer of these two ids; an empty group is the default one. Raises :class:`InvalidRequest`."""
    found = Consumer(group or DEFAULT_GROUP, uid)
    for what, text in zip(("group", "user"), found, strict=True):
        if _ID.match(text) is None:
            raise InvalidRequest(f"The {what} of a consumer must be 1 to 64 of A-Z a-z 0-9 _ . -", field=what)
    return found


def item_of(message: Stored | Delivery) -> Item:
    """The item in a stored message, or in a delivery of it. Tags that cannot be read count as none."""
    headers = message.headers
    request_id = headers.get(Header.REQUEST, "")
    tags = _tags_of(headers.get(Header.TAGS, ""))
    if request_id:
        tags.setdefault(REQUEST_TAG, request_id)
    return Item(
        message.seq,
        tags,
        message.data,
        request_id,
        message.subject.startswith("q.") and queuenames.rank_of(message.subject) == "hi",
        message.time,
        message.times if isinstance(message, Delivery) else 1,
        headers.get(Header.TRACE, ""),
    )


def headers_of(tags: Mapping[str, str], request_id: str, trace: str = "") -> dict[str, str]:
    """Headers of a stored item. Raises :class:`InvalidRequest` where the tags are too large."""
    found: dict[str, str] = {}
    if tags:
        text = _encode(dict(tags))
        if len(text) > MOST_TAG_BYTES:
            raise InvalidRequest(f"The tags of an item may take {MOST_TAG_BYTES} bytes.", limit_bytes=MOST_TAG_BYTES)
        found[Header.TAGS] = text.decode()
    if request_id:
        found[Header.REQUEST] = request_id
    if trace:
        found[Header.TRACE] = trace
    return found


def subject_id(tags: Mapping[str, str], request_id: str) -> str:
    """The id by which an item can be asked for: its tag ``requestId``, else that of its put."""
    return tags.get(REQUEST_TAG) or request_id


def require_tags(tags: Mapping[str, str]) -> None:
    """Raise :class:`InvalidRequest` for tags that a caller may not give, or ask for."""
    if len(tags) > MOST_TAGS:
        raise InvalidRequest(f"An item has at most {MOST_TAGS} tags.", limit=MOST_TAGS)
    for key, value in tags.items():
        if _KEY.match(key) is None:
            raise InvalidRequest(
                "The key of a tag must begin with a letter and have at most 64 of A-Z a-z 0-9 _ . - in it.",
                field=key[:64],
            )
        if len(value.encode()) > TAG_BYTES:
            raise InvalidRequest(f'The tag "{key}" has more than {TAG_BYTES} bytes.', field=key)


def _tags_of(text: str) -> dict[str, str]:
    try:
        return _decode(text) if text else {}
    except msgspec.MsgspecError:  # a newer program's
        return {}
