"""What the auth hook changes of a request that goes on to the upstream.

The caller's credential stays as it is: the upstream looks it up again. Tyk takes every header that ``Connection`` names
out of a request after the hooks, so ``Connection`` itself goes; it takes nothing but ``Connection: Upgrade`` for a
websocket, while Firefox also sends ``keep-alive`` in it. A name with an underscore becomes the one with a dash behind
some servers, so those go too.
"""

from collections.abc import Mapping
from typing import Final, NamedTuple

_CONNECTION: Final = "Connection"


class Changes(NamedTuple):
    """Headers by Go's canonical names. put: in place of what came. removed: every one of that name."""

    put: Mapping[str, str]
    removed: list[str]


def changes(headers: Mapping[str, str]) -> Changes:
    """What to change of a request with these headers."""
    removed = [name for name in headers if "_" in name]
    if headers.get("Upgrade", "").lower() == "websocket":
        return Changes({_CONNECTION: "Upgrade"}, removed)
    if _CONNECTION in headers:
        removed.append(_CONNECTION)
    return Changes({}, removed)
