"""Pulling deliveries from a consumer, whether or not it takes acknowledgements (:mod:`signalbox.bus.acknowledgement`).

A puller has an inbox subscription of its own, so closing it cancels what it asked for. How many deliveries the server
still owes is counted here and re-credited when a request expires, is refused, or is lost with the connection.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from signalbox.bus.requests import Requests
from signalbox.bus.transport.frames import parse_headers, status, status_text
from signalbox.wire.messages import Job, decode
from signalbox.wire.names import Header

_GRACE_S: Final = 1.0
"""Seconds after a request's expiry within which the server's status message for it must come."""
_FIRST_PAUSE_S: Final = 0.01
_LONGEST_PAUSE_S: Final = 2.0
_ANSWERED_S: Final = 5.0
"""A request that shall not wait, or for the first job only, gets what is there within this time: the server may have to
look for it for long."""
_encode_json: Final = msgspec.json.Encoder().encode
_JOB: Final = f"\r\n{Header.JOB}: ".encode()
_NORMAL: Final = frozenset({404, 408})
"""No messages, request expired: the ordinary ends of an idle request."""


class Delivery:
    """One delivery of a stored message.

    seq: its stream sequence. number: of this delivery among its consumer's, whose only reader gets 1, 2, 3 without a
    gap. time: UTC unix seconds at which it was stored. left: messages that its consumer had left to deliver then.
    reply: where its acknowledgement goes, for a consumer that takes one.
    """

    __slots__ = ("_head", "_headers", "_job", "data", "left", "number", "reply", "seq", "subject", "time")

    def __init__(self, subject: str, reply: bytes, head: bytes, data: bytes) -> None:
        parts = reply.split(b".")
        base = 5 if len(parts) == 9 else 7  # a domain and an account hash come before, or not
        self._head = head
        self._headers: dict[str, str] | None = None
        self._job: Job | None = None
        self.subject = subject
        self.data = data
        self.reply = reply
        self.seq = int(parts[base])
        self.number = int(parts[base + 1])
        self.time = int(parts[base + 2]) / 1e9
        self.left = int(parts[base + 3])

    @property
    def times(self) -> int:
        """How many times its consumer has delivered this message, this time included."""
        parts = self.reply.split(b".")
        return int(parts[4 if len(parts) == 9 else 6])

    @property
    def headers(self) -> dict[str, str]:
        """Header names and values, parsed when first asked for."""
        if self._headers is None:
            self._headers = parse_headers(self._head) if self._head else {}
        return self._headers

    @property
    def job(self) -> Job:
        """The job in header ``Sb-Job``. Raises ``KeyError`` or :class:`msgspec.MsgspecError` if there is none."""
        if self._job is None:
            head = self._head
            start = head.rfind(_JOB) + len(_JOB)
            known = head[start : head.find(b"\r\n", start)] if start >= len(_JOB) else self.headers[Header.JOB]
            self._job = decode(Job, known)
        return self._job


class _PullRequest:
    __slots__ = ("remaining", "timer")

    def __init__(self, remaining: int, timer: asyncio.TimerHandle) -> None:
        self.remaining = remaining
        self.timer = timer


class Puller:
    """Asks one consumer for deliveries. Made by :meth:`Bus.pull`.

    on_delivery: called as each is read; must be quick. on_idle: set it to learn that the server owes less than before
    for another reason than a delivery (expiry, refusal, reconnect), so that it may be time to ask again; after a
    refusal it is called with a growing pause, so asking in it does not spin. last_refusal: why, for people; empty
    since the last delivery or ordinary end. is_unanswered: the last request that is over got neither a delivery nor a
    word.
    """

    def __init__(self, bus: Requests, stream: str, consumer: str, on_delivery: Callable[[Delivery], None]) -> None:
        self.consumer = consumer
        self.on_idle: Callable[[], None] | None = None
        self.last_refusal = ""
        self.is_unanswered = False
        self._bus = bus
        self._on_delivery = on_delivery
        self._next = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
        self._loop = asyncio.get_running_loop()
        self._inbox = bus.new_inbox()
        self._asked: dict[int, _PullRequest] = {}
        self.outstanding = 0
        """Deliveries asked for that the server still owes."""
        self._given_up: set[int] = set()
        self._count = 0
        self._pause_s = _FIRST_PAUSE_S
        self._pause: asyncio.TimerHandle | None = None
        self._is_closed = False
        self._sid = bus.connection.listen((self._inbox + b"*").decode(), self._receive)
        bus.on_reconnect(self._reconnected)

    def ask(self, n: int, *, expires_s: float = 5.0, is_one_shot: bool = False) -> None:
        """Ask for up to ``n`` more, waiting on the server at most ``expires_s``; 0 = only for what is there already.

        is_one_shot: wait only until some are there, however many that are.
        Does nothing while disconnected or closed: ``on_idle`` comes with the reconnect.
        """
        if n <= 0 or self._is_closed or not self._bus.is_connected:
            return
        self._count += 1
        number = self._count
        does_not_wait = is_one_shot or not expires_s
        answered_s = max(expires_s, _ANSWERED_S) if does_not_wait else expires_s
        timer = self._loop.call_later(answered_s + _GRACE_S, self._expire, number)
        self._asked[number] = _PullRequest(n, timer)
        self.outstanding += n
        doc: dict[str, int | bool] = {"batch": n}
        if expires_s:
            doc["expires"] = int(expires_s * 1e9)
        if does_not_wait:
            doc["no_wait"] = True
        self._bus.send(self._next, b"%b%d" % (self._inbox, number), b"", _encode_json(doc))

    async def drain(self) -> None:
        """Cancel what is parked on the server; deliveries on their way have been handed over on return.

        Then :meth:`close`. Raises :class:`Unavailable` while disconnected, when nothing is parked anyway.
        """
        if not self._is_closed:
            self._bus.connection.unsubscribe(self._sid)
            await self._bus.flush()

    async def close(self) -> None:
        """No delivery comes after this; requests parked on the server are cancelled. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self._bus.forget_reconnect(self._reconnected)
        self._bus.connection.unlisten(self._sid)
        self._forget()
        if self._pause is not None:
            self._pause.cancel()

    def _receive(self, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        code = status(head)
        self.is_unanswered = False
        if code == 0:
            for number, asked in self._asked.items():
                asked.remaining -= 1
                self.outstanding -= 1
                if not asked.remaining:
                    self._close_request(number)
                break
            self._pause_s, self.last_refusal = _FIRST_PAUSE_S, ""
            self._on_delivery(Delivery(subject.decode(), reply, head, data))
        elif code != 100:
            self._ended(int(subject[len(self._inbox) :]), code, head)

    def _charge(self, n: int) -> None:
        """Count ``n`` deliveries against the oldest request, whichever request they answered."""
        for number, asked in list(self._asked.items()):
            taken = min(n, asked.remaining)
            asked.remaining -= taken
            self.outstanding -= taken
            n -= taken
            if asked.remaining == 0:
                self._close_request(number)
            if n == 0:
                return

    def _ended(self, number: int, code: int, head: bytes) -> None:
        """Take in that the server closed a request, and how many deliveries of it were left."""
        if number in self._given_up:
            self._given_up.discard(number)
            return
        asked = self._close_request(number)
        counted = asked.remaining if asked is not None else 0
        said = parse_headers(head).get("Nats-Pending-Messages")
        left = int(said) if said is not None else counted
        if left > counted:
            self._charge(left - counted)
        elif left < counted and self._asked:
            # Deliveries charged to other requests were this one's: those are still owed.
            next(iter(self._asked.values())).remaining += counted - left
            self.outstanding += counted - left
        if code in _NORMAL:
            self.last_refusal = ""
            self._tell_idle()
        else:
            self.last_refusal = f"{code} {status_text(head)}"
            self._tell_idle_later()

    def _expire(self, number: int) -> None:
        if self._close_request(number) is not None:
            self._given_up.add(number)
            self.is_unanswered = True
            self._tell_idle()

    def _close_request(self, number: int) -> _PullRequest | None:
        asked = self._asked.pop(number, None)
        if asked is not None:
            asked.timer.cancel()
            self.outstanding -= asked.remaining
        return asked

    def _forget(self) -> None:
        for number in list(self._asked):
            self._close_request(number)
        self._given_up.clear()

    def _reconnected(self) -> None:
        self._forget()
        self.is_unanswered = False
        self._tell_idle()

    def _tell_idle(self) -> None:
        if self.on_idle is not None and not self._is_closed:
            self.on_idle()

    def _tell_idle_later(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
        self._pause = self._loop.call_later(self._pause_s, self._tell_idle)
        self._pause_s = min(self._pause_s * 2, _LONGEST_PAUSE_S)
