"""A client's request as the hooks see it: from Tyk's message, or from an edge in this process."""

from collections.abc import MutableMapping

import msgspec


class Request(msgspec.Struct):
    """url: path and query. headers: by Go's canonical names. raw_body: bytes as they were sent."""

    method: str
    url: str
    headers: MutableMapping[str, str]
    raw_body: bytes
