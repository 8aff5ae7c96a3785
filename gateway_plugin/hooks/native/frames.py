"""The frames of HTTP/2 (RFC 9113): their kinds, flags, errors and limits, and how one is written."""

import struct
from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME_BYTES: Final = 16_384
"""The protocol's smallest limit, which is what a client may send unless told otherwise, and all it is told."""
LARGEST_WINDOW: Final = 2**31 - 1
DEFAULT_WINDOW: Final = 65_535

DATA, HEADERS, PRIORITY, RESET, SETTINGS, PUSH, PING, GOAWAY, WINDOW, CONTINUATION = range(10)
END_STREAM: Final = 0x1
ACK: Final = 0x1
END_HEADERS: Final = 0x4
PADDED: Final = 0x8
HAS_PRIORITY: Final = 0x20
SETTING_STREAMS, SETTING_WINDOW, SETTING_FRAME, SETTING_HEADERS = 3, 4, 5, 6
NO_ERROR, PROTOCOL_ERROR, FLOW_ERROR, CLOSED, SIZE_ERROR, REFUSED, COMPRESSION_ERROR, CALM_DOWN = (
    0,
    1,
    3,
    5,
    6,
    7,
    9,
    11,
)
_HEAD: Final = struct.Struct(">HBBBI")
HEAD_BYTES: Final = _HEAD.size
read_head: Final = _HEAD.unpack_from
"""Size (its upper 16 bits, its lower 8), kind, flags and stream of the frame that begins at an offset.

Bound here: looked up at every frame it would cost more than it does.
"""
WORD: Final = struct.Struct(">I")
SETTING: Final = struct.Struct(">HI")


class Broken(Exception):
    """The peer does not keep to the protocol: the connection ends. code: HTTP/2 error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """One frame. body: at most the peer's frame limit."""
    size = len(body)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + body


def unpadded(flags: int, body: bytes) -> bytes:
    """What a frame's body holds."""
    if not flags & PADDED:
        return body
    if not body or body[0] >= len(body):
        raise Broken(PROTOCOL_ERROR, "more padding than frame")
    return body[1 : len(body) - body[0]]
