"""Requests and their answers over one connection to NATS: one inbox for all answers, deadlines, outages.

Everything that is answered (writes, reads, acknowledgements) shares one inbox subscription. Nothing here knows streams;
:class:`signalbox.bus.client.Bus` does.
"""

import asyncio
import contextlib
import re
import secrets
import ssl
from collections.abc import Callable
from typing import Any, Final

import msgspec

from signalbox.bus.jetstream import ApiError, Reply, api_refused, decode_puback, unanswered, write_refused
from signalbox.bus.stalls import BOUND, TELL_S, WHY, Stalls
from signalbox.bus.transport import encryption
from signalbox.bus.transport.connection import Connection
from signalbox.bus.transport.frames import status
from signalbox.bus.transport.interface import Events, Transport
from signalbox.program import health, log, tasks
from signalbox.program.errors import Ambiguous, Misconfigured, TooLarge, Unavailable
from signalbox.program.settings import Wire
from signalbox.wire.names import NATS_STALLED
from signalbox.wire.roles import inbox

_AWAY: Final = "NATS cannot be reached."
_SWEEP_S: Final = 0.1
"""How often overdue requests are looked for, while there are any."""
_REFUSED_SUBJECT: Final = re.compile(r'(?i)publish to "([^"]+)"')
_decode_json: Final = msgspec.json.Decoder(dict[str, Any]).decode
_encode_json: Final = msgspec.json.Encoder().encode


class Requests:
    """One connection to NATS, reconnecting for ever, and what is asked over it.

    instance: short random id of this connection, also part of its inbox. transport: what carries it; tests put
    a model of a connection there.
    """

    def __init__(
        self, settings: Wire, role: str, *, transport: Callable[[Events], Transport] = Connection, instance: str = ""
    ) -> None:
        self.settings = settings
        self.role = role
        self.instance = instance or secrets.token_hex(6)
        self.connection: Transport = transport(
            Events(self._on_fault, self._on_refusal, self._error, self._disconnected, self._reconnected)
        )
        self.send = self.connection.send_message
        """``(subject, reply, encoded header lines, body)``: one publish, with all others of this loop turn."""
        self._timeout_s = settings.request_timeout_s
        self._inbox = f"{inbox(settings.nats_user or role)}.{self.instance}.".encode()
        self._inbox_size = len(self._inbox)
        self._count = 0
        self._waiting: dict[bytes, tuple[asyncio.Future[Reply], float, str]] = {}
        self._collecting: dict[bytes, tuple[Callable[[bytes, bytes], None], asyncio.Future[Reply], str]] = {}
        self._sweeper: asyncio.TimerHandle | None = None
        self._teller: asyncio.TimerHandle | None = None
        self._loop = asyncio.get_running_loop()
        self.stalls = Stalls(self._loop.time)
        """What NATS does not store, as this connection has seen it."""
        self._on_reconnect: list[Callable[[], None]] = []
        self._on_disconnect: list[Callable[[], None]] = []
        self._last_error = ""
        self._unauthorised = asyncio.Event()
        self._is_closing = False

    @property
    def is_connected(self) -> bool:
        """Whether a message sent now reaches a server."""
        return self.connection.is_open

    @property
    def server_version(self) -> str:
        """Version of the connected server, as it reports it."""
        return self.connection.server_version

    async def request(
        self,
        subject: str,
        data: bytes = b"",
        *,
        fields: bytes = b"",
        timeout_s: float | None = None,
        is_write: bool = False,
    ) -> Reply:
        """Send and wait for the one answer: ``(header block, body)``.

        Raises :class:`Unavailable` when disconnected or when the subject has no listener, :class:`TooLarge` above the
        server's payload limit, and on a lost answer :class:`Ambiguous` for writes, :class:`Unavailable` for reads.
        """
        if not self.connection.is_open:
            raise Unavailable("NATS cannot be reached; nothing was sent.", retry_after_s=1.0)
        if len(data) + len(fields) + 12 > self.connection.max_body_bytes:
            raise TooLarge("The message is larger than NATS takes.", limit=self.connection.max_body_bytes)
        self._count += 1
        token = b"%x" % self._count
        answer: asyncio.Future[Reply] = self._loop.create_future()
        deadline = self._loop.time() + (timeout_s or self._timeout_s)
        self._waiting[token] = (answer, deadline, subject)
        if self._sweeper is None:
            self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep)
        self.send(subject, self._inbox + token, fields, data)
        try:
            head, body = await answer
        except TimeoutError as error:
            if is_write and self.connection.is_open:
                self.stalls.lost(subject)
                if self.stalls.is_stalled(subject):
                    if self._teller is None:
                        self._tell()
                    raise Ambiguous(WHY, retry_after_s=5.0, bound=BOUND, subject=subject) from None
            raise unanswered(subject, str(error), is_write=is_write) from None
        finally:
            self._waiting.pop(token, None)
        if is_write and self.stalls:
            self.stalls.answered(subject)
        if head[8:9] == b" " and status(head) == 503:
            raise Unavailable("JetStream does not answer for this subject now.", subject=subject)
        return head, body

    async def write_raw(self, subject: str, fields: bytes, data: bytes, timeout_s: float | None = None) -> int:
        """Store one message whose header lines are encoded already (:func:`signalbox.bus.jetstream.header_fields`).

        Returns its sequence. Raises what :meth:`signalbox.bus.client.Bus.write` raises.
        """
        _, body = await self.request(subject, data, fields=fields, timeout_s=timeout_s, is_write=True)
        ack = decode_puback(body)
        if ack.error is not None:
            raise write_refused(ack.error)
        return ack.seq

    async def request_json(
        self, subject: str, doc: object | None = None, *, timeout_s: float | None = None
    ) -> dict[str, Any]:
        """A JetStream API request.

        Raises :class:`NotFound` (no such stream, consumer or message), :class:`Unavailable`, or
        :class:`Misconfigured` with the server's words when it refuses the request.
        """
        _, body = await self.request(subject, b"" if doc is None else _encode_json(doc), timeout_s=timeout_s)
        answer = _decode_json(body)
        error = answer.get("error")
        if error:
            raise api_refused(msgspec.convert(error, ApiError), subject)
        return answer

    async def listed(self, subject: str, field: str) -> list[Any]:
        """All that a JetStream API request lists under ``field``, page by page. Raises as :meth:`request_json`."""
        found: list[Any] = []
        seen = 0
        while True:
            page = await self.request_json(subject, {"offset": seen})
            more = page.get(field) or []
            found += more
            seen += len(more) + len(page.get("missing") or ())  # consumers without a leader are named there alone
            if not more or seen >= page["total"]:
                return found

    async def collect(
        self, subject: str, doc: object, on_message: Callable[[bytes, bytes], None], *, timeout_s: float | None = None
    ) -> Reply:
        """A request with many answers: ``on_message`` gets each, the closing status message is returned.

        The wait is bounded by ``timeout_s`` between two messages. Raises as :meth:`request`.
        """
        if not self.connection.is_open:
            raise Unavailable("NATS cannot be reached; nothing was sent.", retry_after_s=1.0)
        limit_s = timeout_s or self._timeout_s
        self._count += 1
        token = b"m%x" % self._count
        end: asyncio.Future[Reply] = self._loop.create_future()
        last_seen = self._loop.time()

        def feed(head: bytes, body: bytes) -> None:
            nonlocal last_seen
            last_seen = self._loop.time()
            if end.done():
                return
            if status(head):
                end.set_result((head, body))
            else:
                try:
                    on_message(head, body)
                except Exception as error:  # noqa: BLE001  handed to the one who asked
                    end.set_exception(error)

        self._collecting[token] = (feed, end, subject)
        try:
            self.send(subject, self._inbox + token, b"", _encode_json(doc))
            while True:
                quiet_at = last_seen + limit_s
                done, _ = await asyncio.wait([end], timeout=quiet_at - self._loop.time())
                if done:
                    break
                if self._loop.time() >= last_seen + limit_s:
                    raise unanswered(subject, f"no answer within {limit_s} s", is_write=False)
            head, body = end.result()
        finally:
            del self._collecting[token]
            end.cancel()
        if status(head) == 503:
            raise Unavailable("JetStream does not answer for this subject now.", subject=subject)
        return head, body

    def on_reconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` after each reconnect, when all subscriptions are back."""
        self._on_reconnect.append(callback)

    def on_disconnect(self, callback: Callable[[], None]) -> None:
        """Call ``callback`` each time the connection is lost, when open requests have failed."""
        self._on_disconnect.append(callback)

    def forget_reconnect(self, callback: Callable[[], None]) -> None:
        """Undo :meth:`on_reconnect`. Idempotent."""
        with contextlib.suppress(ValueError):
            self._on_reconnect.remove(callback)

    def new_inbox(self) -> bytes:
        """A fresh subject, without the final token, for a :class:`Puller`.

        Beside this connection's inbox, not below it: that one's wildcard would get every delivery a second time,
        and keep the server delivering to a puller that is closed.
        """
        self._count += 1
        return b"%bp%x." % (self._inbox[:-1] + b"-", self._count)

    async def flush(self) -> None:
        """Return when the server has processed everything sent so far. Raises :class:`Unavailable`."""
        if not self.connection.is_open:
            raise Unavailable("NATS cannot be reached.", retry_after_s=1.0)
        try:
            await self.connection.round_trip(self._timeout_s)
        except (TimeoutError, OSError) as error:
            raise Unavailable("NATS does not answer.", retry_after_s=1.0) from error

    def faults(self) -> list[str]:
        """Why this connection cannot do its work now, see :mod:`signalbox.program.health`."""
        return self.stalls.faults() if self.connection.is_open else [_AWAY]

    async def _end(self) -> None:
        """Wait for open requests (each has its deadline), then end the connection."""
        health.READY.remove(self)
        open_requests = [answer for answer, _, _ in self._waiting.values()]
        if open_requests and self.connection.is_open:
            await asyncio.wait(open_requests, timeout=self._timeout_s)
        if self.connection.is_open:
            self.connection.write_out()
        await self._disconnected()
        for timer in (self._sweeper, self._teller):
            if timer is not None:
                timer.cancel()
        await self.connection.close()

    async def _connect(self, name: str) -> None:
        settings = self.settings
        open_to = encryption.readable(settings.nats_url, settings.nats_ca_file)
        if open_to:
            log.warning("bus.unencrypted", role=self.role, servers=open_to)
        connecting = asyncio.create_task(self.connection.open(settings, self.role, name), name="nats connect")
        refused = asyncio.create_task(self._unauthorised.wait(), name="nats refused")
        try:
            await asyncio.wait(
                [connecting, refused], timeout=settings.connect_timeout_s, return_when=asyncio.FIRST_COMPLETED
            )
            if self._unauthorised.is_set():
                raise Misconfigured(
                    f"NATS refuses user {settings.nats_user!r}: check SIGNALBOX_NATS_USER and "
                    "SIGNALBOX_NATS_PASSWORD or _SEED."
                )
            if not connecting.done():
                reason = self._last_error or "no answer"
                raise Unavailable(f"NATS cannot be reached at {settings.nats_url}: {reason}.")
            connecting.result()
            self.connection.listen((self._inbox + b">").decode(), self._answer)
            await self.flush()
            health.READY.add(self)
        except BaseException:
            self._is_closing = True
            await tasks.end([connecting])
            await self.connection.close()
            raise
        finally:
            refused.cancel()

    def _answer(self, subject: bytes, reply: bytes, head: bytes, body: bytes) -> None:
        token = subject[self._inbox_size :]
        waiting = self._waiting.pop(token, None)
        if waiting is not None:
            if not waiting[0].done():
                waiting[0].set_result((head, body))
            return
        feed, *_ = self._collecting.get(token, (None,))
        if feed is not None:
            feed(head, body)

    def _sweep(self) -> None:
        """Fail overdue requests. One timer for all, and none while nothing is asked."""
        now = self._loop.time()
        for answer, deadline, _ in list(self._waiting.values()):
            if deadline <= now and not answer.done():
                answer.set_exception(TimeoutError("no answer in time"))
        self._sweeper = self._loop.call_later(_SWEEP_S, self._sweep) if self._waiting else None

    def _tell(self) -> None:
        """Report to the board that NATS stores nothing, for as long as that is known. The report needs no disk."""
        self._teller = None
        if self.connection.is_open and self.stalls.faults():
            self.send(NATS_STALLED, b"", b"", b"")
            self._teller = self._loop.call_later(TELL_S, self._tell)

    async def _disconnected(self) -> None:
        """Fail what was sent on the lost connection: it will not be answered any more."""
        self.stalls.clear()
        for answer, _, _ in list(self._waiting.values()):
            if not answer.done():
                answer.set_exception(TimeoutError("the connection was lost"))
        if not self._is_closing:
            log.warning("bus.disconnected", role=self.role)
            self._call_all(self._on_disconnect)

    async def _reconnected(self) -> None:
        log.info("bus.reconnected", role=self.role)
        self._call_all(self._on_reconnect)

    def _call_all(self, callbacks: list[Callable[[], None]]) -> None:
        for callback in list(callbacks):
            try:
                callback()
            except Exception:  # noqa: BLE001  the others must still learn of it
                log.exception("bus.connection_callback_failed")

    async def _error(self, error: Exception) -> None:
        self._last_error = encryption.explained(error)
        if isinstance(error, ssl.SSLCertVerificationError):
            log.error("bus.certificate_refused", role=self.role, reason=self._last_error)
        if "authorization" in self._last_error.lower():
            self._unauthorised.set()

    def _on_refusal(self, text: str) -> None:
        log.error("bus.permission_denied", role=self.role, reason=text)
        named = _REFUSED_SUBJECT.search(text)
        if named is None:
            return
        open_ones = [(answer, subject) for answer, _, subject in self._waiting.values()]
        open_ones += [(end, subject) for _, end, subject in self._collecting.values()]
        for answer, subject in open_ones:
            if subject == named.group(1) and not answer.done():
                answer.set_exception(Misconfigured(f"NATS user of role {self.role} may not publish to {subject}."))

    def _on_fault(self, error: Exception) -> None:
        log.exception("bus.handler_failed", error=error, role=self.role)
