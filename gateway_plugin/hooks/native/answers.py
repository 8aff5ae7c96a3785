"""What an HTTP/2 connection sends: the answers of its calls, as far as the client's windows let them go."""

import asyncio
from collections import deque
from collections.abc import Callable
from typing import Final

from gateway_plugin.hooks.native.frames import (
    CALM_DOWN,
    DATA,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    FLOW_ERROR,
    GOAWAY,
    HEADERS,
    LARGEST_WINDOW,
    MAX_FRAME_BYTES,
    NO_ERROR,
    WORD,
    Broken,
    frame,
)
from signalbox.front.traffic import HOOKS, Traffic

TRAFFIC: Final = Traffic(HOOKS)
"""Counts the bytes of all connections."""
_FAREWELL_S: Final = 1.0
"""Seconds between our last answer and our close: bytes that come in after a close make the kernel drop unread
answers (TCP reset)."""
_MAX_UNREAD: Final = 10_000
"""Most answers to pings and settings that a client may leave unread."""


class Stream:
    """One call. path: its ``:path``. body: what has come of it. Answer it once, from the same loop.

    cancelled: called when the caller has gone or has cancelled, unless answered before.
    """

    __slots__ = ("_answers", "body", "cancelled", "id", "is_whole", "path", "unsent", "window")

    def __init__(self, answers: "Answers", id_: int, path: str) -> None:
        self._answers = answers
        self.id = id_
        self.path = path
        self.window = answers.stream_window
        self.body = bytearray()
        self.is_whole = False
        self.unsent: tuple[bytes, bytes] | None = None
        self.cancelled: Callable[[], object] | None = None

    def answer(self, headers: bytes, body: bytes, trailers: bytes) -> None:
        """Send the whole answer; header blocks are already encoded. Nothing happens once the caller has gone."""
        self.cancelled = None
        self._answers.send(self, headers, body, trailers)

    def refuse(self, trailers: bytes) -> None:
        """Answer with nothing but headers that end the call."""
        self.cancelled = None
        self._answers.refuse(self, trailers)

    def abandon(self) -> None:
        """The caller has gone: tell the handler of the call, and send nothing more."""
        self.unsent = None
        cancelled, self.cancelled = self.cancelled, None
        if cancelled is not None:
            cancelled()


class Answers:
    """The sending side of one connection.

    streams: calls that are not answered yet, by id. transport: None before the connection is made and once it is
    lost. ended: calls that were answered, and not refused. stream_window: of a call that begins now. frame_bytes: the
    client's limit.
    """

    def __init__(self) -> None:
        self.streams: dict[int, Stream] = {}
        self.transport: asyncio.Transport | None = None
        self.ended = 0
        self.stream_window = DEFAULT_WINDOW
        self.frame_bytes = MAX_FRAME_BYTES
        self._window = DEFAULT_WINDOW
        self._blocked: deque[Stream] = deque()
        self._unread = 0
        self._unwritten: list[bytes] = []
        self._is_final = False
        self._farewell: asyncio.TimerHandle | None = None

    # ------------------------------------------------------------------------------ answers

    def send(self, stream: Stream, headers: bytes, body: bytes, trailers: bytes) -> None:
        """Send headers, body and trailers, as far as the client's windows have room for the body now."""
        if self.streams.get(stream.id) is not stream:
            return
        self.ended += 1
        head = frame(HEADERS, END_HEADERS, stream.id, headers)
        size = len(body)
        if size <= self._window and size <= stream.window and size <= self.frame_bytes:
            self._window -= size
            tail = frame(HEADERS, END_HEADERS | END_STREAM, stream.id, trailers)
            self.write(head + frame(DATA, 0, stream.id, body) + tail)
            self._close(stream)
            return
        self.write(head)
        stream.unsent = (body, trailers)
        self._blocked.append(stream)
        self.pump()

    def refuse(self, stream: Stream, trailers: bytes) -> None:
        """Send headers that are the whole answer."""
        if self.streams.get(stream.id) is stream:
            self.write(frame(HEADERS, END_HEADERS | END_STREAM, stream.id, trailers))
            self._close(stream)

    def _close(self, stream: Stream) -> None:
        del self.streams[stream.id]
        if self._is_final:
            self.drained()

    # ------------------------------------------------------------------------------ windows

    def resize(self, window: int) -> None:
        """The client's setting for the windows of all its calls."""
        if window > LARGEST_WINDOW:
            raise Broken(FLOW_ERROR, "a window beyond the largest")
        for stream in self.streams.values():
            stream.window += window - self.stream_window
        self.stream_window = window

    def grow(self, id_: int, more: int) -> None:
        """The client has room again, of one call or (0) of all together."""
        if not id_:
            self._window += more
            if not more or self._window > LARGEST_WINDOW:
                raise Broken(FLOW_ERROR, "a window beyond the largest")
        elif (stream := self.streams.get(id_)) is not None:
            stream.window += more
        self.pump()

    def pump(self) -> None:
        """Send what the windows have room for, in turn."""
        for _ in range(len(self._blocked)):
            stream = self._blocked.popleft()
            if stream.unsent is None:
                continue  # its caller has gone
            body, trailers = stream.unsent
            at = 0
            while at < len(body):
                room = min(self._window, stream.window, self.frame_bytes, len(body) - at)
                if room <= 0:
                    break
                self.write(frame(DATA, 0, stream.id, body[at : at + room]))
                self._window -= room
                stream.window -= room
                at += room
            if at < len(body):
                stream.unsent = (body[at:], trailers)
                self._blocked.append(stream)
            else:
                stream.unsent = None
                self.write(frame(HEADERS, END_HEADERS | END_STREAM, stream.id, trailers))
                self._close(stream)

    # ------------------------------------------------------------------------------ frames

    def write(self, data: bytes) -> None:
        """Send frames that wait for no window, in one piece with all that this turn of the loop sends."""
        if self.transport is None:
            return
        if not self._unwritten:
            asyncio.get_running_loop().call_soon(self._flush)
        self._unwritten.append(data)

    def _flush(self) -> None:
        """Hand over to the kernel what :meth:`write` took."""
        unwritten, self._unwritten = self._unwritten, []
        if self.transport is not None and unwritten:
            if self.transport.get_write_buffer_size() == 0:
                self._unread = 0
            data = b"".join(unwritten)
            TRAFFIC.sent(len(data))
            self.transport.write(data)

    def write_control(self, data: bytes) -> None:
        """Write an answer that the client can provoke at will; end a client that never reads its answers.

        Counted, because bytes alone do not tell: a large answer waits there too, as far as the client's own
        windows let it.
        """
        self.write(data)
        self._unread += 1
        if self._unread > _MAX_UNREAD:
            self._flush()  # they may all have come in one read
            if self._unread > _MAX_UNREAD:
                raise Broken(CALM_DOWN, "answers pile up unread")

    # ------------------------------------------------------------------------------ the end

    def finish(self, last: int) -> None:
        """Take nothing after the call ``last``, and close when those in flight are answered."""
        self._is_final = True
        self.write(frame(GOAWAY, 0, 0, WORD.pack(last) + WORD.pack(NO_ERROR)))
        self.drained()

    def drained(self) -> None:
        """Close after the last call, once none is in flight: the client closes first, or we do a moment later."""
        if self._is_final and not self.streams and self.transport is not None:
            self.stay()
            loop = asyncio.get_running_loop()
            self._farewell = loop.call_later(_FAREWELL_S, self._leave)

    def _leave(self) -> None:
        self._flush()
        if self.transport is not None:
            self.transport.close()

    def stay(self) -> None:
        """A call has come after all."""
        if self._farewell is not None:
            self._farewell.cancel()
            self._farewell = None

    def lost(self) -> None:
        """The connection is gone: tell handlers of this client's open calls that they may stop."""
        self.transport = None
        self.stay()
        streams = list(self.streams.values())
        self.streams.clear()
        self._blocked.clear()
        for stream in streams:
            stream.abandon()

    def end(self, last: int, code: int, why: str) -> None:
        """Say why, and close. last: the newest call that was seen."""
        if self.transport is None:
            return
        if self._unread > _MAX_UNREAD:
            self.transport.abort()  # it would not read our reason either
            return
        self.write(frame(GOAWAY, 0, 0, WORD.pack(last) + WORD.pack(code) + why.encode()))
        self._leave()
