"""A gate before an HTTP server's own protocol: bounds what one connection may send, and times it.

It stands between asyncio's transport and the protocol that a server makes for each connection, and hands on one
request at a time, as :mod:`signalbox.front.framing` reads it. A connection that becomes another protocol's (a
websocket's) is from then on counted, and held to :mod:`signalbox.front.sockets` where its listener has bounds for them.
"""

import asyncio
import math
import socket
from collections.abc import Callable
from contextvars import ContextVar
from http import HTTPStatus
from typing import Any, Final, cast

import msgspec

from signalbox.front.bounds import MOST_HEAD_FIELDS, HttpBounds
from signalbox.front.connections import FULL, share_of
from signalbox.front.framing import AT_END, AT_HEAD, Framing, Refusal
from signalbox.front.sockets import OpenSocket, SocketBounds
from signalbox.front.traffic import Traffic
from signalbox.front.transport import GatedTransport

HEAD_TIME: Final = "deadline_exceeded:head"
BODY_TIME: Final = "deadline_exceeded:body"
ANSWER_TIME: Final = "deadline_exceeded:answer"
_LINGER_S: Final = 2.0
"""Seconds in which what a refused client still sends is read and dropped: closed at once, it would not see why."""
_PROGRESS_BYTES: Final = 16 * 1024
_UNREAD_BYTES: Final = 256 * 1024
"""Bytes read of a body whose answer did not wait for it, so that the connection may be used again."""
_MOST_LINGERING: Final = 64
"""Most connections being turned away at once; more are closed without an answer."""
_INTERIM: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
"""What any client of HTTP/1.1 reads over (RFC 9110, 15.2). The host of one that has gone answers it with a reset."""
_INTERIM_S: Final = 0.2
"""How long a client that sends no more waits before it is asked whether it is there: most have their answer by then."""

_SERVING: Final = "serving"
"""Requests are handed on."""
_TUNNEL: Final = "tunnel"
"""The connection is another protocol's."""
_DISCARDING: Final = "discarding"
"""What comes is thrown away."""
_ENDED: Final = "ended"
"""Nothing comes any more."""

current: Final[ContextVar["Gate | None"]] = ContextVar("signalbox.front.gate", default=None)
"""The gate of the connection whose request a task answers."""

_TOO_EARLY: Final = Refusal(
    400, "invalid_request:http", "Frames came before the websocket was open; wait for the answer to its handshake."
)


class Shared(msgspec.Struct):
    """What the gates of one listener share. gates: those with a connection.

    refused: told the reason of each refusal. enter, leave: count a connection by its address; enter says why there
    is no room for it. traffic: counts bytes. lingering: connections that are being turned away. sockets: bounds of
    websockets, None = they bound themselves.
    """

    bounds: HttpBounds
    refused: Callable[[str], None]
    enter: Callable[[str], str]
    leave: Callable[[str], None]
    traffic: Traffic
    gates: set["Gate"] = msgspec.field(default_factory=set)
    lingering: int = 0
    sockets: SocketBounds | None = None


class Exchange:
    """One request and its answer. is_given_up: its client left, or its time was over. due_at: on the loop's clock.

    ask: has a stream send something that says nothing, which finds out whether its client is there.
    """

    __slots__ = ("_caller", "_time", "ask", "due_at", "is_given_up", "is_started")

    def __init__(self, time: Callable[[], float]) -> None:
        self._time = time
        self._caller: asyncio.Task[Any] | None = None
        self.ask: Callable[[], None] | None = None
        self.due_at = math.inf
        self.is_given_up = self.is_started = False

    def begin(self, longest_s: float) -> None:
        """Make the calling task the one that answers this request.

        It is cancelled when the client waits no more, and within a second after ``longest_s``: then the connection
        is closed without an answer, or the rest of one. Called again it sets a new time.
        """
        self._caller = asyncio.current_task()
        self.due_at = self._time() + longest_s

    def end(self) -> None:
        """End the task's part: it only sends its answer now, and is not cancelled any more."""
        self._caller = None
        self.due_at = math.inf

    def cut(self) -> None:
        """Have the connection closed within a second, and the task cancelled, whatever is not sent yet."""
        self.due_at = -math.inf

    def left(self) -> None:
        """Take in that the client has gone."""
        if self._caller is not None and not self.is_given_up:
            self.is_given_up = True
            self._caller.cancel()


class Gate(asyncio.Protocol):
    """One connection. make: the server's protocol for it. outward: the transport which that writes to."""

    outward: GatedTransport
    _transport: asyncio.Transport
    _address: str

    def __init__(self, shared: Shared, make: Callable[[], asyncio.Protocol]) -> None:
        self._shared = shared
        self._make = make
        self._time = asyncio.get_running_loop().time
        bounds = shared.bounds
        self._framing = Framing(
            most_bytes=bounds.http_head_bytes,
            most_fields=MOST_HEAD_FIELDS,
            may_open=shared.sockets.may_open if shared.sockets else None,
        )
        self._socket: OpenSocket | None = None
        self._mode: str = _SERVING
        self._inner: asyncio.Protocol | None = None
        self._exchange: Exchange | None = None
        self._deadline = math.inf
        self._is_counted = self._is_lingering = False
        self._is_resting = False
        self._is_answered = False
        self._is_half_closed = False
        self._is_paused = self._is_inner_paused = self._is_going_on = self._is_stuck = False
        self._is_opening = False
        self._marked_bytes = -1
        self._unsent = (0, 0.0)

    # ----------------------------------------------------------------------- asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Counts the connection, or turns it away."""
        shared = self._shared
        transport = cast("asyncio.Transport", transport)  # uvloop's is none by its bases
        self._transport = transport
        self._address = share_of(transport.get_extra_info("peername"))
        shared.gates.add(self)
        reason = shared.enter(self._address)
        if reason:
            self._turn_away(reason)
            return
        self._is_counted = True
        self._inner = self._make()
        self.outward = GatedTransport(self, transport)
        self._inner.connection_made(self.outward)
        self._deadline = self._time() + shared.bounds.http_head_s

    def data_received(self, data: bytes) -> None:
        """Hands on what the server may see."""
        self._shared.traffic.received(len(data))
        if self._mode is _SERVING:
            try:
                piece = self._framing.feed(data)
            except Refusal as refusal:
                self._refuse(refusal)
                return
            self._hand_on(piece)
        elif self._mode is _TUNNEL and self._inner is not None:
            if self._socket is not None:
                self._socket.heard(len(data))
            if self._is_opening:
                self._refuse(_TOO_EARLY)
            else:
                self._inner.data_received(data)

    def eof_received(self) -> bool | None:
        """The client sends no more. Requests that are whole are still answered: it may read on."""
        if self._mode is _TUNNEL and self._inner is not None:
            return self._inner.eof_received()
        if self._mode is not _SERVING or not (self._framing.part is AT_END or self._framing.has_more):
            return None
        if not self._is_half_closed:
            self._is_half_closed = True
            asyncio.get_running_loop().call_later(_INTERIM_S, self._ask_whether_there)
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is no more."""
        shared = self._shared
        shared.gates.discard(self)
        if self._is_counted:
            shared.leave(self._address)
        elif self._is_lingering:
            shared.lingering -= 1
        self._mode = _ENDED
        self._end_inner(exc)

    def pause_writing(self) -> None:
        """The client takes its answer more slowly than it is made."""
        self._is_stuck = True
        if self._inner is not None:
            self._inner.pause_writing()

    def resume_writing(self) -> None:
        """The client has taken most of its answer."""
        self._is_stuck = False
        if self._inner is not None:
            self._inner.resume_writing()

    # ---------------------------------------------------------------------- the server's side

    @property
    def is_closing(self) -> bool:
        """Whether the server sends nothing more."""
        mode = self._mode
        return (mode is not _SERVING and mode is not _TUNNEL) or self._transport.is_closing()

    def wrote(self, size_bytes: int) -> None:
        """The server sends. If that tells the client to send its body, the time for that begins anew."""
        self._shared.traffic.sent(size_bytes)
        if self._framing.is_waiting:
            self._framing.is_waiting = False
            self._restart_body()

    def _say(self, data: bytes) -> None:
        """Send what is the gate's own."""
        self._shared.traffic.sent(len(data))
        self._transport.write(data)

    def close(self) -> None:
        """The server has no more to send."""
        if self._mode is _SERVING:
            self._deadline = math.inf
            part = self._framing.part
            if self._is_half_closed or part is AT_HEAD or (part is AT_END and not self._framing.held):
                self._mode = _ENDED
                self._transport.close()
            else:
                self._discard()
        elif self._mode is not _DISCARDING:
            self._transport.close()

    def abort(self) -> None:
        """Closes the connection at once, and cancels the task that answers it."""
        self._mode = _ENDED
        self._transport.abort()
        self._end_inner(None)

    def become(self, protocol: asyncio.BaseProtocol) -> None:
        """The connection is another protocol's from now on."""
        self._inner = cast("asyncio.Protocol", protocol)
        self._mode = _TUNNEL
        # Until the application hears of it: the protocol may have refused the request without an answer.
        if self._shared.sockets is None:
            self._deadline = math.inf
        else:
            self._deadline = self._time() + self._shared.bounds.http_head_s
            self._is_opening = True

    def hold(self, *, is_paused: bool) -> None:
        """Pause reading for the server, or resume it. While it is paused no body counts as late."""
        self._is_inner_paused = is_paused
        self._control_reading()
        if is_paused:
            self._deadline = math.inf
        else:
            self._restart_body()

    # --------------------------------------------------------------------- the application's side

    @property
    def is_last(self) -> bool:
        """Whether the connection ends with this request's answer: its parser reads no further, or none follows."""
        return self._framing.may_upgrade or (self._is_half_closed and not self._framing.held)

    def begin(self) -> Exchange:
        """Begin the answer of a request."""
        self._exchange = Exchange(self._time)
        return self._exchange

    def begin_socket(self, *, is_draining: bool) -> OpenSocket | None:
        """Begin a websocket. None where its listener has no bounds for them."""
        if self._shared.sockets is None:
            return None
        self._deadline = math.inf
        self._socket = OpenSocket(self._shared.sockets, self._time(), is_draining=is_draining)
        return self._socket

    def socket_opened(self) -> None:
        """The answer to a websocket's handshake is sent, and its client may send frames."""
        self._is_opening = False

    def drain(self) -> None:
        """The listener stops: a websocket is asked to end."""
        if self._socket is not None:
            self._socket.drain()

    def answered(self, exchange: Exchange) -> None:
        """Note that the answer of an exchange is whole."""
        if exchange is not self._exchange or self._mode is not _SERVING:
            return
        self._exchange = None
        if self._framing.part is AT_END:
            self._next()
        else:
            self._is_answered = True
            self._marked_bytes = self._framing.body_bytes

    # ------------------------------------------------------------------------------ the clock

    def check(self, now: float) -> None:
        """Called every second: ends what takes too long. now: the loop's time."""
        if self._mode is _TUNNEL:
            self._check_socket(now)
            return
        if self._is_half_closed and self._mode is _SERVING and self._is_gone():
            self.abort()
            return
        size = self._transport.get_write_buffer_size()
        if size and size == self._unsent[0]:
            if now - self._unsent[1] > self._shared.bounds.http_body_s:
                self._shared.refused(ANSWER_TIME)
                self.abort()
                return
        else:
            self._unsent = (size, now)
        if self._exchange is not None and now >= self._exchange.due_at:
            self.abort()
        elif now >= self._deadline:
            self._deadline = math.inf
            self._expire()

    def _check_socket(self, now: float) -> None:
        reason = HEAD_TIME if now >= self._deadline else ""
        if self._socket is not None:
            reason = self._socket.check(now, is_stuck=self._is_stuck, is_unread=self._is_paused)
        if reason:
            self._shared.refused(reason)
            self.abort()

    def _ask_whether_there(self) -> None:
        """A client that has closed and one that has closed its sending half look alike until something is sent.

        One that has gone ends its call. Of HTTP/1.0 nothing tells them apart, and the call goes on to its end.
        """
        exchange = self._exchange
        if self._mode is not _SERVING or exchange is None:
            return
        if exchange.ask is not None:
            exchange.ask()
        elif not exchange.is_started and not self._framing.is_old:
            self._say(_INTERIM)
            asyncio.get_running_loop().call_later(_INTERIM_S, lambda: self.check(self._time()))

    def _is_gone(self) -> bool:
        return bool(self._transport.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))

    def _expire(self) -> None:
        framing, bounds = self._framing, self._shared.bounds
        if self._mode is _ENDED:
            self.abort()
        elif self._mode is _DISCARDING:
            self._mode = _ENDED
            self._transport.close()  # after what is still to be sent; check() cuts a client that takes nothing
        elif self._is_answered or framing.is_idle:
            if framing.is_idle and not self._is_resting:
                self._shared.refused(HEAD_TIME)
            self.close()
        elif framing.part is AT_HEAD:
            self._refuse(
                Refusal(
                    408,
                    HEAD_TIME,
                    f"The head of the request did not come within {bounds.http_head_s:g} seconds; send it at once.",
                )
            )
        else:
            self._refuse(
                Refusal(
                    408,
                    BODY_TIME,
                    f"The body brought less than {_PROGRESS_BYTES} bytes in {bounds.http_body_s:g} seconds;"
                    " send it faster, or in smaller requests.",
                )
            )

    def _restart_body(self) -> None:
        framing = self._framing
        if framing.part is not AT_END and framing.part is not AT_HEAD:
            self._marked_bytes = framing.body_bytes
            if not self._is_inner_paused:
                self._deadline = self._time() + self._shared.bounds.http_body_s

    # ------------------------------------------------------------------------------ the way in

    def _hand_on(self, piece: bytes) -> None:
        """Gives the server a piece of the request, and sets the time for what comes next."""
        if piece:
            inner = self._inner
            assert inner is not None
            token = current.set(self)
            try:
                inner.data_received(piece)
            finally:
                current.reset(token)
            if self._mode is not _SERVING:
                self._after_turn()
                return
        part = self._framing.part
        if part is AT_END:
            if self._is_answered:
                self._next()
                return
            self._deadline = math.inf
            if self._framing.held or self._is_paused:
                self._control_reading()
        elif part is AT_HEAD:
            if self._is_resting and self._framing.held:
                self._is_resting = False
                self._deadline = self._time() + self._shared.bounds.http_head_s
        else:
            if self._is_half_closed and not self._framing.has_more:
                self.abort()  # the rest does not come
                return
            self._note_progress()
            if self._framing.has_more and not self._is_going_on:
                self._is_going_on = True
                self._control_reading()
                asyncio.get_running_loop().call_soon(self._go_on)

    def _go_on(self) -> None:
        """Reads the held bytes further, after other connections had their turn."""
        self._is_going_on = False
        if self._mode is _SERVING:
            self.data_received(b"")
            self._control_reading()

    def _after_turn(self) -> None:
        """The server made the connection another's, or closed it before any application saw the request."""
        if self._mode is _TUNNEL:
            held = bytes(self._framing.held)
            self._framing.has_more = False
            if held and self._inner is not None:
                self._framing.held.clear()
                self.data_received(held)
        else:
            self._shared.refused("invalid_request:http")

    def _note_progress(self) -> None:
        """Restart the time for the body: a part of it has come."""
        seen = self._framing.body_bytes
        if self._is_answered:
            if seen - self._marked_bytes > _UNREAD_BYTES:
                self.close()
        elif self._marked_bytes < 0 or seen - self._marked_bytes >= _PROGRESS_BYTES:
            self._restart_body()

    def _next(self) -> None:
        """The request is answered and whole; the next one may be read."""
        if self.is_last:
            self.close()
            return
        self._is_answered = False
        self._marked_bytes = -1
        try:
            piece = self._framing.next()
        except Refusal as refusal:
            self._refuse(refusal)
            return
        if self._is_half_closed and self._framing.part is AT_HEAD:
            self.close()
            return
        self._control_reading()
        self._is_resting = self._framing.is_idle
        bounds = self._shared.bounds
        self._deadline = self._time() + (bounds.http_idle_s if self._is_resting else bounds.http_head_s)
        if piece:
            self._hand_on(piece)

    def _control_reading(self) -> None:
        """Reads no more than the server takes, and of later requests no more than a head.

        A client whose request is whole is read on, whatever its server takes, to see it leave.
        """
        framing = self._framing
        is_full = framing.has_more or len(framing.held) > self._shared.bounds.http_head_bytes
        is_held = self._is_inner_paused and (self._mode is _TUNNEL or framing.part is not AT_END)
        wanted = self._mode is not _DISCARDING and (is_full or is_held)
        if wanted != self._is_paused and not self._transport.is_closing():
            self._is_paused = wanted
            if wanted:
                self._transport.pause_reading()
            else:
                self._transport.resume_reading()

    # ----------------------------------------------------------------------------- the way out

    def _refuse(self, refusal: Refusal) -> None:
        """Answers in the server's place, unless it has begun to."""
        self._shared.refused(refusal.reason)
        if self._exchange is not None and self._exchange.is_started:
            self.abort()
            return
        if not self._is_answered:
            self._say(_answer(refusal.status, refusal.text))
        self._discard()
        self._end_inner(None)

    def _turn_away(self, reason: str) -> None:
        """Refuses this connection for lack of room."""
        if self._shared.lingering >= _MOST_LINGERING:
            self._mode = _ENDED
            self._transport.abort()
            return
        self._is_lingering = True
        self._shared.lingering += 1
        whose = "the gateway" if reason == FULL else "your address"
        text = f"Too many connections of {whose} are open; use those again, or come back in a moment."
        self._say(_answer(503, text))
        self._discard()

    def _discard(self) -> None:
        """Says that no more will be sent, and throws away what still comes until the client has closed."""
        self._mode = _DISCARDING
        self._framing.held.clear()
        self._control_reading()
        self._deadline = self._time() + _LINGER_S
        if self._transport.can_write_eof() and not self._transport.is_closing():
            self._transport.write_eof()

    def _end_inner(self, exc: Exception | None) -> None:
        inner, self._inner = self._inner, None
        exchange, self._exchange = self._exchange, None
        if inner is not None:
            inner.connection_lost(exc)
        if exchange is not None:
            exchange.left()


def _answer(status: int, text: str) -> bytes:
    body = text.encode() + b"\n"
    later = "Retry-After: 1\r\n" if status == HTTPStatus.SERVICE_UNAVAILABLE else ""
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: text/plain; charset=utf-8\r\n"
        f"{later}Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
