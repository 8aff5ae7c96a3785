"""Core messages as they arrive, and the subscriptions that take them."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Final

from signalbox.bus.transport.frames import parse_headers
from signalbox.bus.transport.interface import Transport
from signalbox.program import log
from signalbox.program.tasks import Background

_QUEUE: Final = 65_536


class Message:
    """A core message. ``headers`` are parsed when first asked for."""

    __slots__ = ("_head", "_headers", "data", "reply", "subject")

    def __init__(self, subject: str, reply: str, head: bytes, data: bytes) -> None:
        self.subject = subject
        self.reply = reply
        self.data = data
        self._head = head
        self._headers: dict[str, str] | None = None

    @property
    def headers(self) -> Mapping[str, str]:
        """Header names and values; empty if there are none."""
        if self._headers is None:
            self._headers = parse_headers(self._head) if self._head else {}
        return self._headers


OnMessage = Callable[[Message], Awaitable[None] | None]


class Subscription:
    """A core subscription. Asynchronous callbacks run one after another, in order of arrival.

    group: each message goes to one subscriber of a queue group; empty = to every subscriber.

    Messages with another subject are let go: whoever may make a consumer of a stream may have it deliver to each
    subject, without the right to publish there. The messages keep the subject that they are stored under.
    """

    __slots__ = ("_connection", "_on_message", "_prefix", "_queue", "_sid", "_taking", "dropped", "subject")

    def __init__(self, connection: Transport, subject: str, on_message: OnMessage, group: str = "") -> None:
        self.subject = subject
        self._prefix = subject.partition("*")[0].partition(">")[0].encode()
        self.dropped = 0
        self._connection = connection
        self._on_message = on_message
        self._queue: asyncio.Queue[Message] | None = None
        self._taking: Background | None = None
        if asyncio.iscoroutinefunction(on_message):
            self._queue = asyncio.Queue(_QUEUE)
            self._taking = Background()
            self._taking.start(self._run(self._queue), name=f"subscription {subject}")
        # The protocol names the group behind the subject.
        self._sid = connection.listen(f"{subject} {group}" if group else subject, self._receive)

    async def close(self) -> None:
        """No callback runs after this returns. Idempotent."""
        self._connection.unlisten(self._sid)
        if self._taking is not None:
            await self._taking.cancel()

    def _receive(self, subject: bytes, reply: bytes, head: bytes, data: bytes) -> None:
        if not subject.startswith(self._prefix):
            return
        message = Message(subject.decode(), reply.decode(), head, data)
        if self._queue is None:
            self._on_message(message)
            return
        try:
            self._queue.put_nowait(message)
        except asyncio.QueueFull:
            self.dropped += 1
            if self.dropped == 1:
                log.warning("bus.subscription_overflow", subject=self.subject)

    async def _run(self, queue: asyncio.Queue[Message]) -> None:
        while True:
            message = await queue.get()
            try:
                result = self._on_message(message)
                if result is not None:
                    await result
            except Exception:  # noqa: BLE001  the edge of a task: one bad message must not end the rest
                log.exception("bus.callback_failed", subject=message.subject)
