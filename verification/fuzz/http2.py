"""Bytes of an HTTP/2 connection, as a gateway or any other client of the socket sends them.

Whatever comes, the connection goes on or says goodbye; it holds no more than it said it would, calls its owner once
per stream at most, forgets everything in the end, and does the same however the bytes were cut into pieces.
"""

import asyncio
import atexit
import struct
from collections.abc import Hashable
from pathlib import Path
from typing import Final

from gateway_plugin.hooks.native.answers import Stream
from gateway_plugin.hooks.native.buffers import Buffers
from gateway_plugin.hooks.native.connection import Connection
from gateway_plugin.hooks.native.frames import MAX_FRAME_BYTES, PREFACE
from gateway_plugin.hooks.native.paths import MAX_HEADER_BYTES

SEEDS: Final = Path(__file__).parent / "corpus" / "http2"
SHARE: Final = 30_000
MAX_BODY: Final = 40_000
MAX_BUFFERED: Final = 60_000
MAX_STREAMS: Final = 4
TOKENS: Final = tuple(
    struct.pack(">HBBBI", 0, size, kind, flags, stream) + bytes(size)
    for kind in range(11)
    for flags, stream, size in ((0, 0, 0), (0, 1, 4), (1, 1, 0), (5, 3, 0), (4, 5, 1), (0x2D, 7, 6), (1, 0, 8))
)
_NO_PREFACE: Final = 0xFF
_PIECES: Final = (1, 7, 9, 50)


class Wire:
    """The transport: keeps what was written; one that is closed takes nothing more."""

    def __init__(self) -> None:
        self.sent = bytearray()
        self.is_closed = False

    def write(self, data: bytes) -> None:
        assert not self.is_closed, "written after the goodbye"
        self.sent += data

    def get_write_buffer_size(self) -> int:
        return len(self.sent) % 5_000_000

    def close(self) -> None:
        self.is_closed = True

    def abort(self) -> None:
        self.is_closed = True


class Served:
    """One connection and what came of it. Every second call is answered at once, the others when all has come."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.calls: list[tuple[int, str, int]] = []
        self.held: list[Stream] = []
        self.cancelled = 0
        self.ends = 0
        self.connection = Connection(
            self._call,
            self._closed,
            max_body_bytes=MAX_BODY,
            max_buffered_bytes=MAX_BUFFERED,
            max_streams=MAX_STREAMS,
            too_large=b"\x88",
            is_proven=True,
            buffers=Buffers(MAX_BUFFERED, 0),
        )
        self.connection.connection_made(self.wire)  # type: ignore[arg-type]  # as far as it is used

    def _call(self, stream: Stream, body: bytes) -> bool:
        assert len(body) <= MAX_BODY, len(body)
        self.calls.append((stream.id, stream.path, len(body)))
        if len(self.calls) % 2:
            stream.answer(b"\x88", body[:1000] * 3, b"\x88")
        else:
            stream.cancelled = self._cancel
            self.held.append(stream)
        return True

    def _cancel(self) -> None:
        self.cancelled += 1

    def _closed(self, connection: Connection) -> None:
        self.ends += 1

    async def feed(self, data: bytes) -> None:
        """One piece, and what must hold after it."""
        if self.wire.is_closed:
            return
        self.connection.data_received(data)
        await asyncio.sleep(0)  # what one turn of the loop sends is written at its end
        held = self.connection
        assert held._bodies.held_bytes == sum(len(s.body) for s in held._streams.values())
        assert held._bodies.held_bytes <= MAX_BUFFERED
        assert len(held._streams) <= MAX_STREAMS
        assert len(held._unended) <= MAX_STREAMS
        is_closed: bool = self.wire.is_closed
        assert is_closed or len(held._rest) < MAX_FRAME_BYTES + 9
        assert held._block is None or len(held._block[2]) <= MAX_HEADER_BYTES

    def finish(self) -> None:
        """Answer what is held, then lose the connection: nothing is left."""
        if not self.wire.is_closed:
            for stream in self.held:
                stream.answer(b"\x88", b"late", b"\x88")
        self.connection.connection_lost(None)
        for stream in self.held:
            stream.answer(b"\x88", b"too late", b"\x88")
        assert not self.connection._streams
        assert self.ends == 1
        ids = [call[0] for call in self.calls]
        assert len(ids) == len(set(ids)), f"one call was reported twice: {ids}"
        assert self.cancelled <= len(self.held)


_loop: Final = asyncio.new_event_loop()
atexit.register(_loop.close)


def one(data: bytes) -> Hashable:
    """Raises AssertionError where a promise is broken, or what the connection raised."""
    return _loop.run_until_complete(_one(data))


async def _one(data: bytes) -> Hashable:
    sent = data[1:] if data[:1] == bytes([_NO_PREFACE]) else PREFACE + data
    whole = Served()
    await whole.feed(sent)
    size = _PIECES[len(data) % len(_PIECES)]
    pieces = Served()
    for at in range(0, min(len(sent), 600), size):
        await pieces.feed(sent[at : at + size])
    if len(sent) > 600:
        await pieces.feed(sent[-(-600 // size) * size :])
    await asyncio.sleep(0)
    assert pieces.wire.sent == whole.wire.sent
    assert pieces.calls == whole.calls
    assert pieces.wire.is_closed == whole.wire.is_closed
    for served in (whole, pieces):
        served.finish()
    goodbye = bytes(whole.wire.sent[-16:]) if whole.wire.is_closed else b""
    return min(len(whole.calls), 8), goodbye.translate(None, b"0123456789")
