"""nats-py's client with its hot path replaced: own parser, own dispatch, one socket write per loop turn.

nats-py keeps what it does well (connecting, authentication, TLS, pings, reconnecting, replaying
subscriptions). What it does per message (two regular expressions, a queue and a task wake-up per subscription,
a future per flush) is replaced, see ADR 0010 for what that saves. Nothing here knows JetStream.
"""

import asyncio
import contextlib
import random
import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final, cast

from nats.aio.client import DEFAULT_BUFFER_SIZE, Client
from nats.errors import Error

from signalbox.bus.transport import encryption
from signalbox.bus.transport.frames import FrameParser
from signalbox.bus.transport.interface import Events, Handler
from signalbox.bus.transport.tcp import TcpSocket
from signalbox.program import nkeys, tasks
from signalbox.program.settings import Wire
from signalbox.wire.roles import inbox

_JOINED_BYTES: Final = 16_384
"""A body above this is written as it is rather than copied into one piece with its line."""
_FLUSH_S: Final = 10.0
_PERMISSIONS: Final = "permissions violation"
_WEB_SOCKETS: Final = frozenset({"ws", "wss"})


class _Replay:
    """What the client reads of a subscription that it replays after a reconnect, and nothing else.

    Its own takes 3 KB: a worker listens to every model.
    """

    __slots__ = ("_subject",)
    _queue = ""
    _max_msgs = _received = 0
    _wait_for_msgs_task = _message_iterator = _pending_next_msgs_calls = None

    def __init__(self, subject: str) -> None:
        self._subject = subject


class Connection(Client):
    """One connection to NATS, a :class:`signalbox.bus.transport.interface.Transport`."""

    def __init__(self, events: Events) -> None:
        super().__init__()
        self.handlers: dict[int, Handler] = {}
        self.on_fault = events.fault
        self._events = events
        self._ps: Any = FrameParser(self)
        self._out: list[bytes] = []
        self._is_write_due = False
        self._needs_tls = False
        self._patience_s = 0.0
        self._reconnecting = asyncio.Lock()
        self._attempts: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()

    async def open(self, settings: Wire, role: str, name: str) -> None:
        """Connect with the inbox of ``role``, and from then on reconnect for ever; returns when first connected."""
        urls = [url.strip() for url in settings.nats_url.split(",") if url.strip()]
        self._needs_tls = encryption.is_asked(settings)
        self._patience_s = settings.request_timeout_s
        await self.connect(
            servers=urls,
            name=f"signalbox-{role}{'-' + name if name else ''}",
            user=settings.nats_user or None,
            password=settings.nats_password or None,
            signature_cb=self._use_key(settings.nats_seed) if settings.nats_seed else None,
            tls=encryption.context(settings.nats_ca_file) if self._needs_tls else None,
            inbox_prefix=inbox(settings.nats_user or role),
            error_cb=self._events.error,
            disconnected_cb=self._events.lost,
            reconnected_cb=self._events.restored,
            connect_timeout=settings.request_timeout_s,  # type: ignore[arg-type]  # a float serves
            max_reconnect_attempts=-1,
            # Jitter, so that a fleet does not come back in one instant.
            reconnect_time_wait=settings.reconnect_wait_s * random.uniform(1, 2),  # type: ignore[arg-type]  # noqa: S311
            ping_interval=settings.ping_interval_s,  # type: ignore[arg-type]  # a float serves
            max_outstanding_pings=2,
            pending_size=0,
        )

    def _use_key(self, seed: str) -> Callable[[str], bytes]:
        """Have CONNECT name the seed's public key, and sign what the server asks to be signed with it."""
        self._public_nkey = nkeys.public(seed)
        return partial(nkeys.sign, seed)

    @property
    def is_open(self) -> bool:
        """Whether a message sent now goes to a server (cheaper than ``is_connected``)."""
        return bool(self._status == Client.CONNECTED)

    @property
    def max_body_bytes(self) -> int:
        """Largest header block and body together that the server takes."""
        return self._max_payload

    @property
    def unsent_bytes(self) -> int:
        """Bytes the socket has not taken yet."""
        writer = getattr(self._transport, "_io_writer", None)
        return 0 if writer is None else int(writer.transport.get_write_buffer_size())

    @property
    def server_version(self) -> str:
        """Version of the connected server, as it reports it."""
        return str(self._server_info.get("version", "0"))

    def send_message(self, subject: str, reply: bytes, fields: bytes, data: bytes) -> None:
        """Put one publish into this loop turn's write. ``fields``: encoded header lines, may be empty."""
        if fields:
            size = len(fields) + 12  # "NATS/1.0\r\n" before them and "\r\n" after
            line = b"HPUB %b %b %d %d\r\nNATS/1.0\r\n%b\r\n" % (subject.encode(), reply, size, size + len(data), fields)
        else:
            line = b"PUB %b %b %d\r\n" % (subject.encode(), reply, len(data))
        if len(data) > _JOINED_BYTES:
            self.send(line, data, b"\r\n")
        else:
            self.send(b"%b%b\r\n" % (line, data))

    def send(self, *parts: bytes) -> None:
        """Send raw protocol bytes with everything else of this loop turn. Lost if the connection is."""
        self._out.extend(parts)
        if not self._is_write_due:
            self._is_write_due = True
            self._loop.call_soon(self.write_out)

    def write_out(self) -> None:
        """Hand what waits to the socket now."""
        self._is_write_due = False
        out, self._out = self._out, []
        if out and self.is_open and self._transport is not None:
            with contextlib.suppress(RuntimeError):  # uvloop's error for a closed socket; the reader sees it too
                self._transport.writelines(out)

    def listen(self, subject: str, handler: Handler) -> int:
        """Subscribe; the subscription survives reconnects. Returns its id for :meth:`unlisten`."""
        self._sid += 1
        sid = self._sid
        self.handlers[sid] = handler
        self._subs[sid] = _Replay(subject)  # type: ignore[assignment]
        if self.is_open:
            self.send(f"SUB {subject} {sid}\r\n".encode())
        return sid

    def unsubscribe(self, sid: int) -> None:
        """Have the server send no more; what is on its way still reaches the handler."""
        self.send(f"UNSUB {sid}\r\n".encode())

    def unlisten(self, sid: int) -> None:
        """End a subscription. Idempotent."""
        if self.handlers.pop(sid, None) is not None:
            self._subs.pop(sid, None)
            self.unsubscribe(sid)

    async def round_trip(self, timeout_s: float) -> None:
        """Return when the server has processed all sent so far. Raises ``TimeoutError`` or nats' errors."""
        self.write_out()
        answered = self._loop.create_future()
        async with asyncio.timeout(timeout_s):
            try:
                await self._send_ping(answered)
            except RuntimeError as error:  # see write_out
                raise ConnectionError(str(error)) from error
            # Never cancelled: nats-py sets its result when the PONG comes after all, and a cancelled future
            # would raise there and end the reader.
            await asyncio.shield(answered)

    async def _connect_to_server(self, s: Any) -> None:
        """nats-py's connecting, after the end of what an attempt that failed has left.

        nats-py would leave its socket open, subscribed at the server until garbage is collected, and its reader
        running, which takes the first bytes of the new connection away from the handshake.
        """
        for left in (self._reading_task, self._ping_interval_task, self._flusher_task):
            if left is not None:
                left.cancel()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
        if s.uri.scheme in _WEB_SOCKETS:
            await super()._connect_to_server(s)
            return
        s.last_attempt = time.monotonic()
        self._transport = TcpSocket()  # type: ignore[no-untyped-call]
        await self._transport.connect(s.uri, DEFAULT_BUFFER_SIZE, self.options["connect_timeout"])

    async def _process_connect_init(self) -> None:
        """nats-py's handshake. That the socket has closed meanwhile is a :class:`RuntimeError` in uvloop's words."""
        try:
            await super()._process_connect_init()
        except RuntimeError as error:
            raise ConnectionError(str(error)) from error

    async def _process_info(self, info: dict[str, Any], initial_connection: bool = False) -> None:
        """nats-py's reading of what a server says of itself, but for the addresses of others.

        The first INFO comes before TLS, so any host may have sent it: nats-py would offer the password to
        the servers that it names. And it would check one server's certificate against the name of another. Servers are
        those of the settings.
        """
        is_socket = self._current_server is not None and self._current_server.uri.scheme != "ws"
        if initial_connection and is_socket and info.get("tls_required") and not self._needs_tls:
            raise Error(f"nats: {encryption.NO_PLAIN}")
        await super()._process_info({**info, "connect_urls": []}, initial_connection)

    def _connect_command(self) -> bytes:
        """nats-py's CONNECT, which holds the password; nats-py would send it in the clear where there is no TLS."""
        if self._needs_tls and not self._is_encrypted:
            raise Error(f"nats: {encryption.NO_TLS}")
        if self._signature_cb is not None and "nonce" not in self._server_info:
            raise Error(f"nats: {nkeys.NO_KEYS}")
        return super()._connect_command()

    @property
    def _is_encrypted(self) -> bool:
        writer = getattr(self._transport, "_io_writer", None)
        if writer is None:  # a WebSocket
            return bool(getattr(self._transport, "_using_tls", False))
        return writer.get_extra_info("ssl_object") is not None

    async def _attempt_reconnect(self) -> None:
        """nats-py's reconnecting, one at a time, and again after an error that it does not expect and would end of.

        nats-py cancels an attempt and starts the next without awaiting its end, which then settles the future of the
        next. That one, cancelled in its turn, failed of this; tried again, it shook hands on one socket with the third.
        """
        attempt = cast("asyncio.Task[None]", asyncio.current_task())
        self._attempts.add(attempt)
        try:
            async with self._reconnecting:
                await self._reconnect()
        finally:
            self._attempts.remove(attempt)

    async def _reconnect(self) -> None:
        while True:
            await self._end_socket()
            try:
                await super()._attempt_reconnect()
            except Exception as error:  # noqa: BLE001  whatever it is, we are not connected
                if self.is_closed or cast("asyncio.Task[None]", asyncio.current_task()).cancelling():
                    return
                await self._events.error(error)
                self._status = Client.RECONNECTING
                await asyncio.sleep(self.options["reconnect_time_wait"])
            else:
                return

    async def _close(self, status: int, do_cbs: bool = True) -> None:
        """nats-py's closing: what is sent already goes out, unless the server does not take it in time."""
        if self._flush_queue is None:  # never opened
            return
        impatience = self._loop.call_later(self._patience_s, self._abort)
        try:
            await self._stop_reconnecting()
            try:
                await super()._close(status, do_cbs)
            except OSError:  # the connection went with its last bytes: nats-py would leave all after them undone
                self._status = Client.DISCONNECTED
                await super()._close(status, do_cbs)
        finally:
            impatience.cancel()

    async def _stop_reconnecting(self) -> None:
        """End the attempts under way. nats-py cancels them once, and one that went on opened the connection again."""
        while others := self._attempts - {asyncio.current_task()}:
            await tasks.end(others)

    async def flush(self, timeout: float = _FLUSH_S) -> None:
        """nats-py's round trip, at the end of a reconnect; it would leave a cancelled future for the PONG to set."""
        await self.round_trip(timeout)

    async def _end_socket(self) -> None:
        """Abort the socket and wait for its end; cancelling that wait would end it for every waiting task."""
        self._abort()
        if self._transport is not None:
            self._transport.close()  # type: ignore[no-untyped-call]
            with contextlib.suppress(Exception):  # which nats-py meets again, and reports
                await asyncio.shield(self._transport.wait_closed())  # type: ignore[no-untyped-call]

    def _abort(self) -> None:
        """End the socket now. nats-py waits for the peer to take what is left and, with TLS, for its close message."""
        writer = getattr(self._transport, "_io_writer", None)
        if writer is not None:
            writer.transport.abort()

    async def _read_loop(self) -> None:
        """Run nats-py's reader; when it ends, for whatever reason, the connection is lost."""
        await super()._read_loop()
        if self._reading_task is asyncio.current_task():
            await self._lose("the reader ended")

    async def _ping_interval(self) -> None:
        """Run nats-py's pings, which end silently when a write fails: a dead server would then go unnoticed."""
        await super()._ping_interval()
        if self._ping_interval_task is asyncio.current_task():
            await self._lose("no pings can be sent")

    async def _lose(self, why: str) -> None:
        """Reconnect, unless that is under way or the client was closed."""
        if self.is_open:
            await self._process_op_err(Error(f"nats: {why}"))

    async def _process_err(self, err_msg: str) -> None:
        """A refused subject is reported; anything else costs the connection, never the client.

        nats-py closes itself for good on any other ``-ERR``; a program that must run for months reconnects.
        """
        text = err_msg.strip("'")
        if _PERMISSIONS in text.lower():
            self._events.refusal(text)
        else:
            await self._process_op_err(Error(f"nats: {text}"))
