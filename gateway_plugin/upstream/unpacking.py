"""Unpacks a gRPC message that came compressed, within the bound of its size.

gRPC unpacks before anybody can say how large the result may be, so it is told not to, and passes the bytes on as they
came. They tell what they are: 0x1f is no first byte of a message, and no request begins with field 15.
"""

import zlib
from typing import Final

from signalbox.program.errors import InvalidRequest, TooLarge

_GZIP: Final = b"\x1f\x8b"
_AUTOMATIC_WINDOW: Final = 47
"""zlib's word for: a header of either format, with the largest window."""


def is_packed(message: bytes) -> bool:
    """Whether a message came compressed."""
    return message[:2] == _GZIP or (message[:1] == b"\x78" and int.from_bytes(message[:2], "big") % 31 == 0)


def unpacked(message: bytes, limit_bytes: int) -> bytes:
    """What a compressed message is. Raises :class:`TooLarge` before more is unpacked, and :class:`InvalidRequest`."""
    inflater = zlib.decompressobj(_AUTOMATIC_WINDOW)
    try:
        data = inflater.decompress(message, limit_bytes + 1)
    except zlib.error as error:
        raise InvalidRequest("The message's compression cannot be read.", bound="encoding") from error
    if len(data) > limit_bytes:
        raise TooLarge(f"The unpacked message has more than {limit_bytes} bytes.", bound="bytes")
    if not inflater.eof or inflater.unused_data:
        raise InvalidRequest("The message's compression cannot be read.", bound="encoding")
    return data
