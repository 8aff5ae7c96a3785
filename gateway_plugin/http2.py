"""The server half of HTTP/2 as gRPC clients on this machine use it: unary calls, many on one connection.

Hand-written because it is on every request's path twice: grpc.aio spends a thread switch and ten times the
CPU on a call (docs/adr/0140). It knows nothing of gRPC but that a call is one request body and one answer.
RFC 9113; header compression is the ``hpack`` library's.
"""

import asyncio
import struct
from collections import deque
from collections.abc import Callable
from typing import Final, cast

from hpack import Decoder, HPACKError

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
MAX_FRAME_BYTES: Final = 16_384
"""The protocol's smallest limit, which is what a client may send unless told otherwise, and all it is told."""
MAX_HEADER_BYTES: Final = 65_536
MAX_CACHED_HEADERS: Final = 256
_LARGEST_WINDOW: Final = 2**31 - 1
_DEFAULT_WINDOW: Final = 65_535
_REPLENISH_BYTES: Final = 2**24
_FAREWELL_S: Final = 1.0
"""What a client sends while we close would make the kernel drop answers that it has not read (TCP reset)."""
_MAX_UNREAD: Final = 10_000
"""Answers to pings and settings that a client leaves unread."""

(
    _DATA,
    _HEADERS,
    _PRIORITY,
    _RST_STREAM,
    _SETTINGS,
    _PUSH,
    _PING,
    _GOAWAY,
    _WINDOW,
    _CONTINUATION,
) = range(10)
_END_STREAM: Final = 0x1
_ACK: Final = 0x1
_END_HEADERS: Final = 0x4
_PADDED: Final = 0x8
_HAS_PRIORITY: Final = 0x20
_SETTING_STREAMS, _SETTING_WINDOW, _SETTING_FRAME, _SETTING_HEADERS = 3, 4, 5, 6
_NO_ERROR, _PROTOCOL_ERROR, _FLOW_ERROR, _SIZE_ERROR, _REFUSED, _COMPRESSION_ERROR, _CALM_DOWN = (
    0, 1, 3, 6, 7, 9, 11,
)  # fmt: skip
_HEAD: Final = struct.Struct(">HBBBI")
_WORD: Final = struct.Struct(">I")
_SETTING: Final = struct.Struct(">HI")
_INDEXED: Final = 0x80
_LONG_INDEX: Final = 0xFF


class Broken(Exception):
    """The peer does not keep to the protocol: the connection ends. code: HTTP/2 error code."""

    def __init__(self, code: int, why: str) -> None:
        super().__init__(why)
        self.code = code


def frame(kind: int, flags: int, stream: int, body: bytes = b"") -> bytes:
    """One frame. body: at most the peer's frame limit."""
    size = len(body)
    return _HEAD.pack(size >> 8, size & 0xFF, kind, flags, stream) + body


class Stream:
    """One call. path: its ``:path``. body: what has come of it. Answer it once, from the same loop.

    cancelled: called when the caller has gone or has cancelled, unless answered before.
    """

    __slots__ = ("_connection", "body", "cancelled", "id", "is_whole", "path", "unsent", "window")

    def __init__(self, connection: "Connection", id_: int, path: str, window: int) -> None:
        self._connection = connection
        self.id = id_
        self.path = path
        self.window = window
        self.body = bytearray()
        self.is_whole = False
        self.unsent: tuple[bytes, bytes] | None = None
        self.cancelled: Callable[[], object] | None = None

    def answer(self, headers: bytes, body: bytes, trailers: bytes) -> None:
        """Send the whole answer; header blocks are already encoded. Nothing happens once the caller has gone."""
        self.cancelled = None
        self._connection.send_answer(self, headers, body, trailers)

    def refuse(self, trailers: bytes) -> None:
        """Answer with nothing but headers that end the call."""
        self.cancelled = None
        self._connection.send_refusal(self, trailers)


OnCall = Callable[[Stream, bytes], None]


class Connection(asyncio.Protocol):
    """One client's connection.

    on_call: a whole request has come; must not raise. on_close: nothing comes from this connection any more.
    max_body_bytes: a longer request is refused by ``too_large`` (the trailers of that answer), and
    so is one on top of ``max_buffered_bytes`` of unfinished ones. max_streams: more calls at once than these
    are reset unseen, which clients take as "try again".
    """

    def __init__(
        self, on_call: OnCall, on_close: Callable[["Connection"], None], *,
        max_body_bytes: int, max_buffered_bytes: int, max_streams: int, too_large: bytes,
    ) -> None:  # fmt: skip
        self._on_call = on_call
        self._on_close = on_close
        self._max_body_bytes = max_body_bytes
        self._max_buffered_bytes = max_buffered_bytes
        self._max_streams = max_streams
        self._too_large = too_large
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self._has_preface = False
        self._decoder = Decoder(max_header_list_size=MAX_HEADER_BYTES)
        self._paths: dict[bytes, str] = {}
        self._block: tuple[int, int, bytearray] | None = None
        self._streams: dict[int, Stream] = {}
        self._last = 0
        self._buffered = 0
        self._consumed = 0
        self._window = _DEFAULT_WINDOW
        self._peer_window = _DEFAULT_WINDOW
        self._peer_frame = MAX_FRAME_BYTES
        self._blocked: deque[Stream] = deque()
        self._unread = 0
        self._is_draining = False
        self._is_final = False
        self._farewell: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------ transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what the client may send: bodies up to their limit need no further permission."""
        self._transport = transport = cast(
            "asyncio.Transport", transport
        )  # uvloop's is none by class
        window = min(_LARGEST_WINDOW, self._max_body_bytes + MAX_FRAME_BYTES)
        settings = _SETTING.pack(_SETTING_WINDOW, window) + _SETTING.pack(
            _SETTING_HEADERS, MAX_HEADER_BYTES
        )
        more = _WORD.pack(_LARGEST_WINDOW - _DEFAULT_WINDOW)
        transport.write(frame(_SETTINGS, 0, 0, settings) + frame(_WINDOW, 0, 0, more))

    def connection_lost(self, exc: Exception | None) -> None:
        """Whoever still works for this client may stop."""
        self._transport = None
        self._stay()
        streams = list(self._streams.values())
        self._streams.clear()
        self._blocked.clear()
        for stream in streams:
            _abandon(stream)
        self._on_close(self)

    def data_received(self, data: bytes) -> None:
        """Whatever came; whole frames are handled, the rest waits."""
        if self._rest:
            data = self._rest + data
            self._rest = b""
        try:
            at = 0
            if not self._has_preface:
                at = self._greet(data)
                if not self._has_preface:
                    self._rest = data
                    return
            at = self._frames(data, at)
            self._rest = data[at:] if at < len(data) else b""
        except Broken as error:
            self._end(error.code, str(error))

    def _greet(self, data: bytes) -> int:
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise Broken(_PROTOCOL_ERROR, "not HTTP/2 with prior knowledge")
        self._has_preface = len(data) >= len(PREFACE)
        return len(PREFACE)

    def _frames(self, data: bytes, at: int) -> int:
        end = len(data)
        while end - at >= _HEAD.size:
            high, low, kind, flags, stream = _HEAD.unpack_from(data, at)
            size = high << 8 | low
            if size > MAX_FRAME_BYTES:
                raise Broken(_SIZE_ERROR, f"a frame of {size} bytes")
            start = at + _HEAD.size
            if end - start < size:
                break
            at = start + size
            if self._block is not None and kind != _CONTINUATION:
                raise Broken(_PROTOCOL_ERROR, "a header block was interrupted")
            act = self._acts.get(kind)
            if act is not None:  # unknown kinds are to be ignored
                act(self, flags, stream & _LARGEST_WINDOW, data[start:at])
        return at

    # ------------------------------------------------------------------------------ what comes

    def _on_headers(self, flags: int, id_: int, body: bytes) -> None:
        if id_ % 2 == 0:
            raise Broken(_PROTOCOL_ERROR, "a client's streams have odd numbers")
        body = _unpadded(flags, body)
        if flags & _HAS_PRIORITY:
            body = body[5:]
        if flags & _END_HEADERS:
            self._open(id_, flags, bytes(body))
        else:
            self._block = (id_, flags, bytearray(body))

    def _on_continuation(self, flags: int, id_: int, body: bytes) -> None:
        if self._block is None or self._block[0] != id_:
            raise Broken(_PROTOCOL_ERROR, "a continuation of nothing")
        _, first, block = self._block
        block += body
        if len(block) > MAX_HEADER_BYTES:
            raise Broken(_CALM_DOWN, "a header block without end")
        if flags & _END_HEADERS:
            self._block = None
            self._open(id_, first, bytes(block))

    def _open(self, id_: int, flags: int, block: bytes) -> None:
        path = self._path(block)
        known = self._streams.get(id_)
        if known is not None:  # trailers: they can only end the request
            if not flags & _END_STREAM or known.is_whole:
                raise Broken(_PROTOCOL_ERROR, "headers amid a request")
            self._complete(known)
            return
        if id_ <= self._last:
            return  # of a call that was answered before its request had ended
        self._last = id_
        if len(self._streams) >= self._max_streams:
            self._write(frame(_RST_STREAM, 0, id_, _WORD.pack(_REFUSED)))
            return
        self._stay()
        stream = self._streams[id_] = Stream(self, id_, path, self._peer_window)
        if flags & _END_STREAM:
            self._complete(stream)

    def _path(self, block: bytes) -> str:
        """The block's ``:path``.

        A block that only refers to what is known leaves the table as it is, and says the same whenever it
        comes again until another block changes the table.
        """
        found = self._paths.get(block)
        if found is not None:
            return found
        try:
            headers = self._decoder.decode(block, raw=True)
        except HPACKError as error:
            raise Broken(_COMPRESSION_ERROR, str(error)) from error
        path = next((value for name, value in headers if name == b":path"), b"").decode("latin-1")
        is_plain = all(_INDEXED < byte < _LONG_INDEX for byte in block)
        if not is_plain or len(self._paths) >= MAX_CACHED_HEADERS:
            self._paths.clear()
        if is_plain:
            self._paths[block] = path
        return path

    def _on_data(self, flags: int, id_: int, body: bytes) -> None:
        size = len(body)
        self._consumed += size
        if self._consumed >= _REPLENISH_BYTES:
            self._write(frame(_WINDOW, 0, 0, _WORD.pack(self._consumed)))
            self._consumed = 0
        stream = self._streams.get(id_)
        if stream is None:
            if id_ > self._last or not id_:
                raise Broken(_PROTOCOL_ERROR, "data for a stream that was never opened")
            return
        if stream.is_whole:
            raise Broken(_PROTOCOL_ERROR, "more after the end of a request")
        if flags & _PADDED:
            body = _unpadded(flags, body)
        if flags & _END_STREAM and not stream.body:
            stream.is_whole = True
            if size > self._max_body_bytes:
                self._refuse_large(stream)
            else:
                self._on_call(stream, body)
            return
        stream.body += body
        self._buffered += len(body)
        if len(stream.body) > self._max_body_bytes or self._buffered > self._max_buffered_bytes:
            self._refuse_large(stream)
        elif flags & _END_STREAM:
            self._complete(stream)

    def _complete(self, stream: Stream) -> None:
        stream.is_whole = True
        body = bytes(stream.body)
        self._let_go_of_body(stream)
        self._on_call(stream, body)

    def _let_go_of_body(self, stream: Stream) -> None:
        self._buffered -= len(stream.body)
        stream.body = bytearray()

    def _refuse_large(self, stream: Stream) -> None:
        """Answer at once and ask for no more of the request."""
        self._let_go_of_body(stream)
        stream.refuse(self._too_large)
        self._write(frame(_RST_STREAM, 0, stream.id, _WORD.pack(_NO_ERROR)))

    def _on_reset(self, _flags: int, id_: int, body: bytes) -> None:
        if len(body) != _WORD.size or not id_:
            raise Broken(_SIZE_ERROR, "a reset of the wrong size")
        stream = self._streams.pop(id_, None)
        if stream is not None:
            self._let_go_of_body(stream)
            stream.unsent = None
            _abandon(stream)
            self._drained()

    def _on_settings(self, flags: int, id_: int, body: bytes) -> None:
        if id_ or len(body) % _SETTING.size or (flags & _ACK and body):
            raise Broken(_SIZE_ERROR, "settings of the wrong size")
        if flags & _ACK:
            return
        for name, value in _SETTING.iter_unpack(body):
            if name == _SETTING_WINDOW:
                if value > _LARGEST_WINDOW:
                    raise Broken(_FLOW_ERROR, "a window beyond the largest")
                for stream in self._streams.values():
                    stream.window += value - self._peer_window
                self._peer_window = value
            elif name == _SETTING_FRAME:
                if not MAX_FRAME_BYTES <= value < 2**24:
                    raise Broken(_PROTOCOL_ERROR, "a frame limit out of bounds")
                self._peer_frame = value
        self._write_control(frame(_SETTINGS, _ACK, 0))
        self._pump()

    def _on_ping(self, flags: int, id_: int, body: bytes) -> None:
        if id_ or len(body) != 8:
            raise Broken(_SIZE_ERROR, "a ping of the wrong size")
        if not flags & _ACK:
            self._write_control(frame(_PING, _ACK, 0, body))
        elif self._is_draining:
            # The client has seen that it must go: what it sent before that has all come by now.
            self._is_final = True
            self._write(frame(_GOAWAY, 0, 0, _WORD.pack(self._last) + _WORD.pack(_NO_ERROR)))
            self._drained()

    def _on_window(self, _flags: int, id_: int, body: bytes) -> None:
        if len(body) != _WORD.size:
            raise Broken(_SIZE_ERROR, "a window update of the wrong size")
        more = _WORD.unpack(body)[0] & _LARGEST_WINDOW
        if not id_:
            self._window += more
            if not more or self._window > _LARGEST_WINDOW:
                raise Broken(_FLOW_ERROR, "a window beyond the largest")
        elif (stream := self._streams.get(id_)) is not None:
            stream.window += more
        self._pump()

    def _on_nothing(self, _flags: int, _id: int, _body: bytes) -> None:
        """Priorities and the client's farewell change nothing here."""

    def _on_push(self, _flags: int, _id: int, _body: bytes) -> None:
        raise Broken(_PROTOCOL_ERROR, "a client cannot push")

    _acts: Final = {
        _DATA: _on_data,
        _HEADERS: _on_headers,
        _PRIORITY: _on_nothing,
        _RST_STREAM: _on_reset,
        _SETTINGS: _on_settings,
        _PUSH: _on_push,
        _PING: _on_ping,
        _GOAWAY: _on_nothing,
        _WINDOW: _on_window,
        _CONTINUATION: _on_continuation,
    }

    # ------------------------------------------------------------------------------ what goes

    def send_answer(self, stream: Stream, headers: bytes, body: bytes, trailers: bytes) -> None:
        """Headers, body and trailers, as far as the client's windows let the body go now."""
        if self._streams.get(stream.id) is not stream:
            return
        head = frame(_HEADERS, _END_HEADERS, stream.id, headers)
        size = len(body)
        if size <= self._window and size <= stream.window and size <= self._peer_frame:
            self._window -= size
            tail = frame(_HEADERS, _END_HEADERS | _END_STREAM, stream.id, trailers)
            self._write(head + frame(_DATA, 0, stream.id, body) + tail)
            self._close(stream)
            return
        self._write(head)
        stream.unsent = (body, trailers)
        self._blocked.append(stream)
        self._pump()

    def send_refusal(self, stream: Stream, trailers: bytes) -> None:
        """Headers that are the whole answer."""
        if self._streams.get(stream.id) is stream:
            self._write(frame(_HEADERS, _END_HEADERS | _END_STREAM, stream.id, trailers))
            self._close(stream)

    def _pump(self) -> None:
        """Send what the windows have room for, in turn."""
        for _ in range(len(self._blocked)):
            stream = self._blocked.popleft()
            if stream.unsent is None:
                continue  # its caller has gone
            body, trailers = stream.unsent
            at = 0
            while at < len(body):
                room = min(self._window, stream.window, self._peer_frame, len(body) - at)
                if room <= 0:
                    break
                self._write(frame(_DATA, 0, stream.id, body[at : at + room]))
                self._window -= room
                stream.window -= room
                at += room
            if at < len(body):
                stream.unsent = (body[at:], trailers)
                self._blocked.append(stream)
            else:
                stream.unsent = None
                self._write(frame(_HEADERS, _END_HEADERS | _END_STREAM, stream.id, trailers))
                self._close(stream)

    def _close(self, stream: Stream) -> None:
        del self._streams[stream.id]
        if self._is_final:
            self._drained()

    def _write(self, data: bytes) -> None:
        if self._transport is not None:
            self._transport.write(data)

    def _write_control(self, data: bytes) -> None:
        """An answer the client can provoke at will: one that never reads its answers is let go.

        Counted, because bytes alone do not tell: a large answer waits there too, as far as the client's own
        windows let it.
        """
        if self._transport is not None:
            is_read = self._transport.get_write_buffer_size() == 0
            self._unread = 0 if is_read else self._unread + 1
            if self._unread > _MAX_UNREAD:
                raise Broken(_CALM_DOWN, "answers pile up unread")
            self._transport.write(data)

    # ------------------------------------------------------------------------------ the end

    def drain(self) -> None:
        """Let the client redial: no new calls after a round trip, close when those in hand are answered."""
        if not self._is_draining:
            self._is_draining = True
            goaway = _WORD.pack(_LARGEST_WINDOW) + _WORD.pack(_NO_ERROR)
            self._write(frame(_GOAWAY, 0, 0, goaway) + frame(_PING, 0, 0, bytes(8)))

    def _drained(self) -> None:
        """Nothing is in hand: the client closes now, or else we do, but not while it may still be reading."""
        if self._is_final and not self._streams and self._transport is not None:
            self._stay()
            loop = asyncio.get_running_loop()
            self._farewell = loop.call_later(_FAREWELL_S, self._transport.close)

    def _stay(self) -> None:
        if self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None

    def abort(self) -> None:
        """End at once, whatever is in hand."""
        if self._transport is not None:
            self._transport.abort()

    def _end(self, code: int, why: str) -> None:
        if self._transport is None:
            return
        if self._unread > _MAX_UNREAD:
            self._transport.abort()  # it would not read our reason either
            return
        body = _WORD.pack(self._last) + _WORD.pack(code) + why.encode()
        self._transport.write(frame(_GOAWAY, 0, 0, body))
        self._transport.close()


def _abandon(stream: Stream) -> None:
    cancelled, stream.cancelled = stream.cancelled, None
    if cancelled is not None:
        cancelled()


def _unpadded(flags: int, body: bytes) -> bytes:
    if not flags & _PADDED:
        return body
    if not body or body[0] >= len(body):
        raise Broken(_PROTOCOL_ERROR, "more padding than frame")
    return body[1 : len(body) - body[0]]
