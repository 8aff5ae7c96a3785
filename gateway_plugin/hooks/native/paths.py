"""Reads a call's method, the only header field that we need, from its header block; repeated blocks are cached."""

from collections.abc import Iterable
from typing import Final

from hpack import Decoder, HPACKError

from gateway_plugin.hooks.native.frames import COMPRESSION_ERROR, PROTOCOL_ERROR, Broken

MAX_HEADER_BYTES: Final = 65_536
MAX_CACHED_HEADERS: Final = 256
_INDEXED: Final = 0x80
_LONG_INDEX: Final = 0xFF
_PSEUDO: Final = frozenset({b":method", b":scheme", b":authority", b":path"})


class Paths:
    """The ``:path`` of each header block of one connection."""

    def __init__(self) -> None:
        self._decoder = Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._known: dict[bytes, str] = {}

    def of(self, block: bytes) -> str:
        """The block's path; every block must pass here, in its order. Empty where it has none.

        A block that only refers to what is known leaves the table as it is, and says the same whenever it
        comes again until another block changes the table.
        """
        found = self._known.get(block)
        if found is not None:
            return found
        try:
            headers = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            # Not in the decoder's words: some of them hold an address in our memory.
            raise Broken(COMPRESSION_ERROR, "a header block that cannot be read") from error
        path = _path(headers)
        is_plain = all(_INDEXED < byte < _LONG_INDEX for byte in block)
        if not is_plain or len(self._known) >= MAX_CACHED_HEADERS:
            self._known.clear()
        if is_plain:
            self._known[block] = path
        return path


def _path(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The path of a request whose pseudo-headers are in order: each once, known, before all others (RFC 9113, 8.3)."""
    found: dict[bytes, bytes] = {}
    is_over = False
    for name, value in headers:
        if not name.startswith(b":"):
            is_over = True
        elif is_over or name in found or name not in _PSEUDO:
            raise Broken(PROTOCOL_ERROR, "pseudo-headers twice, unknown or out of place")
        else:
            found[name] = value
    return found.get(b":path", b"").decode("latin-1")
