"""A client's request as the hooks see it: from Tyk's message, or from a listener in this process."""

from collections.abc import Iterable, MutableMapping
from typing import Final

import msgspec

_FORWARDED: Final = "X-Forwarded-For"
_REMEMBERED_NAMES: Final = 4096
_LONGEST_REMEMBERED: Final = 64

_canonical_names: dict[bytes, str] = {}


class Request(msgspec.Struct):
    """url: path and query. headers: by Go's canonical names. raw_body: bytes as they were sent."""

    method: str
    url: str
    headers: MutableMapping[str, str]
    raw_body: bytes


def canonical(name: bytes) -> str:
    """Go's canonical form of a header name, remembered for the names seen first that are not long."""
    known = _canonical_names.get(name)
    if known is None:
        known = "-".join(part[:1].upper() + part[1:].lower() for part in name.decode().split("-"))
        if len(name) <= _LONGEST_REMEMBERED and len(_canonical_names) < _REMEMBERED_NAMES:
            _canonical_names[name] = known
    return known


def headers_of(lines: Iterable[tuple[bytes, bytes]]) -> dict[str, str]:
    """Headers by canonical name, first value only. One that is not UTF-8 is Latin-1, as HTTP once had it: whoever reads
    a header judges it, and most are nobody's.

    Only the lines of X-Forwarded-For are joined: the trusted proxy wrote the last of them. Tyk shows the first alone.
    """
    found: dict[str, str] = {}
    for name, value in lines:
        shown = _canonical_names.get(name) or canonical(name)
        if shown not in found:
            found[shown] = _text(value)
        elif shown == _FORWARDED:
            found[shown] += ", " + _text(value)
    return found


def _text(value: bytes) -> str:
    try:
        return value.decode().rstrip(" \t")
    except UnicodeDecodeError:
        return value.decode("latin-1").rstrip(" \t")
