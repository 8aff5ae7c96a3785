"""The server half of HTTP/2 as gRPC clients on this machine use it: unary calls, many on one connection.

Hand-written because it is on every request's path twice: grpc.aio spends a thread switch and ten times the
CPU on a call (docs/adr/0140). It knows nothing of gRPC but that a call is one request body and one answer.
RFC 9113. Here is what comes; what goes is in :mod:`gateway_plugin.hooks.native.answers`.
"""

import asyncio
from collections.abc import Callable
from typing import Final, cast

from gateway_plugin.hooks.native.answers import TRAFFIC, Answers, Stream
from gateway_plugin.hooks.native.bodies import TOO_LARGE, Bodies
from gateway_plugin.hooks.native.buffers import Buffers
from gateway_plugin.hooks.native.frames import (
    ACK,
    CALM_DOWN,
    CLOSED,
    CONTINUATION,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    GOAWAY,
    HAS_PRIORITY,
    HEAD_BYTES,
    HEADERS,
    LARGEST_WINDOW,
    MAX_FRAME_BYTES,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PROTOCOL_ERROR,
    PUSH,
    REFUSED,
    RESET,
    SETTING,
    SETTING_FRAME,
    SETTING_HEADERS,
    SETTING_STREAMS,
    SETTING_WINDOW,
    SETTINGS,
    SIZE_ERROR,
    WINDOW,
    WORD,
    Broken,
    frame,
    read_head,
    unpadded,
)
from gateway_plugin.hooks.native.paths import MAX_HEADER_BYTES, Paths

_REPLENISH_BYTES: Final = 2**24
_UNPROVEN_STREAMS: Final = 1
"""Several large calls at once on a fresh connection would each send a part, and none be whole. So the others wait in
the client until one of them has shown the secret."""

OnCall = Callable[[Stream, bytes], bool]


class Connection(asyncio.Protocol):
    """One client's connection.

    on_call: a whole request has come; must not raise; returns whether it shows that its client may call here.
    on_close: nothing comes from this connection any more. max_body_bytes: a longer request is refused by
    ``too_large`` (the trailers of that answer), and so is one on top of ``max_buffered_bytes`` of unfinished ones, or
    that has no room in ``buffers``. is_proven: no secret is wanted; without it a client has one call at a time, and
    little time for each, until one of them shows that. max_streams: more calls at once than these are reset
    unseen, which clients take as "try again"; the client is told the bound, and resets no more calls of its own than
    these beyond those that it let end. note_refusal: told a reason for each of these, and for a client that
    breaks the protocol.
    """

    def __init__(
        self,
        on_call: OnCall,
        on_close: Callable[["Connection"], None],
        *,
        max_body_bytes: int,
        max_buffered_bytes: int,
        max_streams: int,
        too_large: bytes,
        buffers: Buffers,
        is_proven: bool,
        note_refusal: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._on_call = on_call
        self._on_close = on_close
        self._max_body_bytes = max_body_bytes
        self._max_streams = max_streams
        self._too_large = too_large
        self._bodies = Bodies(
            buffers,
            most_bytes=max_body_bytes,
            most_held_bytes=max_buffered_bytes,
            is_proven=is_proven,
            late=self._cut_late,
        )
        self._note_refusal = note_refusal
        self._rest = b""
        self._has_preface = False
        self._paths = Paths()
        self._block: tuple[int, int, bytearray] | None = None
        self._answers = Answers()
        self._streams = self._answers.streams
        self._last = 0
        self._unended: dict[int, None] = {}
        self._resets = 0
        self._consumed = 0
        self._is_draining = False

    # ------------------------------------------------------------------------------ transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Say what the client may send."""
        # uvloop's transports are not asyncio's by class, so asking would find none.
        self._answers.transport = cast("asyncio.Transport", transport)
        window = min(self._max_body_bytes + MAX_FRAME_BYTES, LARGEST_WINDOW)
        settings = (
            (SETTING_STREAMS, self._most_streams),
            (SETTING_WINDOW, window),
            (SETTING_HEADERS, MAX_HEADER_BYTES),
        )
        packed = b"".join(SETTING.pack(name, value) for name, value in settings)
        # The window of all calls together is no bound.
        more = WORD.pack(LARGEST_WINDOW - DEFAULT_WINDOW)
        self._answers.write(frame(SETTINGS, 0, 0, packed) + frame(WINDOW, 0, 0, more))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell handlers of this client's open calls that they may stop."""
        for stream in self._streams.values():
            self._bodies.end(stream)
        self._bodies.stop()
        self._answers.lost()
        self._on_close(self)

    def data_received(self, data: bytes) -> None:
        """Handle the whole frames in what came; the rest waits."""
        TRAFFIC.received(len(data))
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
            self._note_refusal("invalid_request:http2")
            self._answers.end(self._last, error.code, str(error))

    def _greet(self, data: bytes) -> int:
        if data[: len(PREFACE)] != PREFACE[: len(data)]:
            raise Broken(PROTOCOL_ERROR, "not HTTP/2 with prior knowledge")
        self._has_preface = len(data) >= len(PREFACE)
        return len(PREFACE)

    def _frames(self, data: bytes, at: int) -> int:
        end = len(data)
        while end - at >= HEAD_BYTES:
            high, low, kind, flags, stream = read_head(data, at)
            size = high << 8 | low
            if size > MAX_FRAME_BYTES:
                raise Broken(SIZE_ERROR, f"a frame of {size} bytes")
            start = at + HEAD_BYTES
            if end - start < size:
                break
            at = start + size
            if self._block is not None and kind != CONTINUATION:
                raise Broken(PROTOCOL_ERROR, "a header block was interrupted")
            act = self._acts.get(kind)
            if act is not None:  # unknown kinds are to be ignored; priorities and the client's goodbye change nothing
                act(self, flags, stream & LARGEST_WINDOW, data[start:at])
        return at

    # ------------------------------------------------------------------------------ what comes

    @property
    def _most_streams(self) -> int:
        return self._max_streams if self._bodies.is_proven else _UNPROVEN_STREAMS

    def _on_headers(self, flags: int, id_: int, body: bytes) -> None:
        if id_ % 2 == 0:
            raise Broken(PROTOCOL_ERROR, "a client's streams have odd numbers")
        body = unpadded(flags, body)
        if flags & HAS_PRIORITY:
            body = body[5:]
        if flags & END_HEADERS:
            self._open(id_, flags, bytes(body))
        else:
            self._block = (id_, flags, bytearray(body))

    def _on_continuation(self, flags: int, id_: int, body: bytes) -> None:
        if self._block is None or self._block[0] != id_:
            raise Broken(PROTOCOL_ERROR, "a continuation of nothing")
        _, first, block = self._block
        block += body
        if len(block) > MAX_HEADER_BYTES:
            raise Broken(CALM_DOWN, "a header block without end")
        if flags & END_HEADERS:
            self._block = None
            self._open(id_, first, bytes(block))

    def _open(self, id_: int, flags: int, block: bytes) -> None:
        path = self._paths.of(block)
        known = self._streams.get(id_)
        if known is not None:  # trailers: they can only end the request
            if not flags & END_STREAM or known.is_whole:
                raise Broken(PROTOCOL_ERROR, "headers amid a request")
            self._complete(known)
            return
        if id_ <= self._last:
            self._late(flags, id_)
            return
        self._last = id_
        if len(self._streams) >= self._most_streams:
            self._note_refusal("limit_exceeded:http2")
            self._refused_early(id_, flags)
            self._answers.write(frame(RESET, 0, id_, WORD.pack(REFUSED)))
            return
        self._answers.stay()
        stream = self._streams[id_] = Stream(self._answers, id_, path)
        if flags & END_STREAM:
            self._complete(stream)

    def _on_data(self, flags: int, id_: int, body: bytes) -> None:
        size = len(body)
        self._consumed += size
        if self._consumed >= _REPLENISH_BYTES:
            self._answers.write(frame(WINDOW, 0, 0, WORD.pack(self._consumed)))
            self._consumed = 0
        stream = self._streams.get(id_)
        if stream is None:
            self._late(flags, id_)
            return
        if stream.is_whole:
            raise Broken(CLOSED, "more after the end of a request")
        if flags & PADDED:
            body = unpadded(flags, body)
        if flags & END_STREAM and not stream.body:
            stream.is_whole = True
            if size > self._max_body_bytes:
                self._refuse_large(stream, TOO_LARGE)
            else:
                self._call(stream, body)
        elif why := self._bodies.take(stream, body):
            self._refuse_large(stream, why)
            self._refused_early(id_, flags)
        elif flags & END_STREAM:
            self._complete(stream)

    def _late(self, flags: int, id_: int) -> None:
        """Take headers or data of a call that is not open: allowed only if it was refused before its request ended."""
        if id_ > self._last or not id_:
            raise Broken(PROTOCOL_ERROR, "data for a stream that was never opened")
        if id_ not in self._unended:
            raise Broken(CLOSED, "more of a stream that is closed")
        if flags & END_STREAM:
            del self._unended[id_]

    def _refused_early(self, id_: int, flags: int) -> None:
        """Remember a call refused before its request ended, to ignore its later frames; of many forget the oldest."""
        if not flags & END_STREAM:
            self._unended[id_] = None
            if len(self._unended) > self._max_streams:
                del self._unended[next(iter(self._unended))]

    def _cut_late(self) -> None:
        """End a connection that has not shown the secret in time, so that slow senders do not hold bytes for ever."""
        self._note_refusal("limit_exceeded:proof")
        self.abort()

    def _call(self, stream: Stream, body: bytes) -> None:
        if self._on_call(stream, body) and not self._bodies.is_proven:
            self._bodies.prove()
            self._answers.write(frame(SETTINGS, 0, 0, SETTING.pack(SETTING_STREAMS, self._max_streams)))

    def _complete(self, stream: Stream) -> None:
        stream.is_whole = True
        self._call(stream, bytes(self._bodies.end(stream)))

    def _refuse_large(self, stream: Stream, reason: str) -> None:
        """Answer at once and ask for no more of the request."""
        self._bodies.end(stream)
        self._note_refusal(reason)
        stream.refuse(self._too_large)
        self._answers.write(frame(RESET, 0, stream.id, WORD.pack(NO_ERROR)))

    def _on_reset(self, _flags: int, id_: int, body: bytes) -> None:
        if len(body) != WORD.size or not id_:
            raise Broken(SIZE_ERROR, "a reset of the wrong size")
        if id_ > self._last:
            raise Broken(PROTOCOL_ERROR, "a reset of a stream that was never opened")
        self._unended.pop(id_, None)
        stream = self._streams.pop(id_, None)
        if stream is not None:
            self._bodies.end(stream)
            stream.abandon()
            self._answers.drained()
            self._count_reset()

    def _count_reset(self) -> None:
        """Count a reset, which wastes a call. A client may reset as many calls as it lets end, plus a burst."""
        self._resets += 1
        if self._resets > self._max_streams + self._answers.ended:
            raise Broken(CALM_DOWN, "calls begun only to be reset")

    def _on_settings(self, flags: int, id_: int, body: bytes) -> None:
        if id_ or len(body) % SETTING.size or (flags & ACK and body):
            raise Broken(SIZE_ERROR, "settings of the wrong size")
        if flags & ACK:
            return
        for name, value in SETTING.iter_unpack(body):
            if name == SETTING_WINDOW:
                self._answers.resize(value)
            elif name == SETTING_FRAME:
                if not MAX_FRAME_BYTES <= value < 2**24:
                    raise Broken(PROTOCOL_ERROR, "a frame limit out of bounds")
                self._answers.frame_bytes = value
        self._answers.write_control(frame(SETTINGS, ACK, 0))
        self._answers.pump()

    def _on_ping(self, flags: int, id_: int, body: bytes) -> None:
        if id_ or len(body) != 8:
            raise Broken(SIZE_ERROR, "a ping of the wrong size")
        if not flags & ACK:
            self._answers.write_control(frame(PING, ACK, 0, body))
        elif self._is_draining:
            # The client has seen that it must go: what it sent before that has all come by now.
            self._answers.finish(self._last)

    def _on_window(self, _flags: int, id_: int, body: bytes) -> None:
        if len(body) != WORD.size:
            raise Broken(SIZE_ERROR, "a window update of the wrong size")
        if id_ > self._last:
            raise Broken(PROTOCOL_ERROR, "a window for a stream that was never opened")
        self._answers.grow(id_, WORD.unpack(body)[0] & LARGEST_WINDOW)

    def _on_push(self, _flags: int, _id: int, _body: bytes) -> None:
        raise Broken(PROTOCOL_ERROR, "a client cannot push")

    _acts: Final = {
        DATA: _on_data,
        HEADERS: _on_headers,
        RESET: _on_reset,
        SETTINGS: _on_settings,
        PUSH: _on_push,
        PING: _on_ping,
        WINDOW: _on_window,
        CONTINUATION: _on_continuation,
    }

    # ------------------------------------------------------------------------------ the end

    def drain(self) -> None:
        """Let the client redial: no new calls after a round trip, close when those in flight are answered."""
        if not self._is_draining:
            self._is_draining = True
            goaway = WORD.pack(LARGEST_WINDOW) + WORD.pack(NO_ERROR)
            self._answers.write(frame(GOAWAY, 0, 0, goaway) + frame(PING, 0, 0, bytes(8)))

    def abort(self) -> None:
        """End at once, whatever calls are in flight."""
        if self._answers.transport is not None:
            self._answers.transport.abort()
