"""The request target as Tyk shows it: cleaned or redirected path, url, query parameters."""

import re
from typing import Final, NamedTuple
from urllib.parse import parse_qsl, quote, unquote_to_bytes

# A path that Go's router neither redirects nor rewrites: no empty segment, no dot segment, no escape.
_PLAIN: Final = re.compile(rb"/|(?:/(?!\.{1,2}(?:/|\Z))[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]]+)+/?", re.ASCII)
_BAD_ESCAPE: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")
_KEPT: Final = re.compile(rb"[A-Za-z0-9\-._~!$&'()*+,;=:@\[\]/%]*")
_GO_SAFE: Final = "/$&+,:;=@-_.~"


class RequestTarget(NamedTuple):
    """url: path as Go re-encodes it, plus the raw query. uri: the target as it was sent."""

    url: str
    uri: str


class Redirect(NamedTuple):
    """The path was not clean; ``location`` is the cleaned one with the query."""

    location: str


def read(path: bytes, query: bytes) -> RequestTarget | Redirect | None:
    """Target of a request; None when Go's server would refuse it, or when it is not UTF-8."""
    try:
        return _read(path, query)
    except UnicodeDecodeError:
        return None


def _read(path: bytes, query: bytes) -> RequestTarget | Redirect | None:
    if _PLAIN.fullmatch(path):
        text = (path + b"?" + query if query else path).decode()
        return RequestTarget(text, text)
    if _BAD_ESCAPE.search(path) or not path.startswith(b"/"):
        return None
    decoded = unquote_to_bytes(path)
    cleaned = _clean(decoded)
    tail = b"?" + query if query else b""
    if cleaned != decoded:
        return Redirect(quote(cleaned, safe=_GO_SAFE) + tail.decode("latin-1"))
    shown = path if _KEPT.fullmatch(path) else quote(decoded, safe=_GO_SAFE).encode()
    return RequestTarget((shown + tail).decode(), (path + tail).decode())


def _clean(path: bytes) -> bytes:
    kept: list[bytes] = []
    for part in path.split(b"/"):
        if part == b"..":
            del kept[-1:]
        elif part not in {b"", b"."}:
            kept.append(part)
    ends_open = path.endswith(b"/") and kept
    return b"/" + b"/".join(kept) + (b"/" if ends_open else b"")


def parameters(query: str) -> dict[str, str]:
    """First value of each query parameter; parts with a semicolon or a bad escape are left out.

    Bytes that are not UTF-8 once unescaped are shown as U+FFFD.
    """
    taken = "&".join(part for part in query.split("&") if ";" not in part and not _BAD_ESCAPE.search(part.encode()))
    found: dict[str, str] = {}
    for name, value in parse_qsl(taken, keep_blank_values=True, errors="replace"):
        found.setdefault(name, value)
    return found
