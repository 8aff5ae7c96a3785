"""How much of its calls an HTTP/2 client may send at once: the receiving windows of one connection (RFC 9113, 5.2)."""

from collections.abc import Iterable
from typing import Final

from gateway_plugin.hooks.native.frames import (
    DEFAULT_WINDOW,
    LARGEST_WINDOW,
    MAX_FRAME_BYTES,
    SETTING,
    SETTING_HEADERS,
    SETTING_STREAMS,
    SETTING_WINDOW,
    SETTINGS,
    WINDOW,
    WORD,
    frame,
)
from gateway_plugin.hooks.native.paths import MAX_HEADER_BYTES

_REPLENISH_BYTES: Final = 2**24
_FIRST_BYTES: Final = MAX_FRAME_BYTES


class Windows:
    """Computes the frames that open the client's windows; empty where there is nothing to send.

    A client that has shown the secret (is_proven) may send all of each call, ``most`` bytes, without asking. Before
    that it may have no more than one call's bytes unfinished. Several large calls at once on a fresh connection would
    each send a part and none be whole. So one at a time is let past its first 16 KiB, and the others wait in the
    client until one of them has shown the secret.
    """

    def __init__(self, most: int, *, is_proven: bool) -> None:
        self._most = min(most, LARGEST_WINDOW // 2)
        self._is_proven = is_proven
        self._turn = 0
        self._consumed = 0

    def hello(self, max_streams: int) -> bytes:
        """The server's settings, and a window for all calls together that is no bound."""
        window = self._most if self._is_proven else min(_FIRST_BYTES, self._most)
        settings = SETTING.pack(SETTING_STREAMS, max_streams) + SETTING.pack(SETTING_WINDOW, window)
        settings += SETTING.pack(SETTING_HEADERS, MAX_HEADER_BYTES)
        more = WORD.pack(LARGEST_WINDOW - DEFAULT_WINDOW)
        return frame(SETTINGS, 0, 0, settings) + frame(WINDOW, 0, 0, more)

    def received(self, size: int) -> bytes:
        """Count ``size`` bytes that have come, of any call."""
        self._consumed += size
        if self._consumed < _REPLENISH_BYTES:
            return b""
        consumed, self._consumed = self._consumed, 0
        return frame(WINDOW, 0, 0, WORD.pack(consumed))

    def begun(self, call: int) -> bytes:
        """A part of a call has come, and more is to come."""
        if self._is_proven or self._turn or self._most <= _FIRST_BYTES:
            return b""
        self._turn = call
        return frame(WINDOW, 0, call, WORD.pack(self._most - _FIRST_BYTES))

    def ended(self, call: int, begun: Iterable[int]) -> bytes:
        """A call is whole, or nothing more of it is wanted. begun: the others that have come in part."""
        if call != self._turn or self._is_proven:
            return b""
        self._turn = 0
        following = next(iter(begun), 0)
        return self.begun(following) if following else b""

    def proven(self) -> bytes:
        """The client has shown the secret."""
        self._is_proven = True
        return frame(SETTINGS, 0, 0, SETTING.pack(SETTING_WINDOW, self._most))
