"""Our one way to NATS and JetStream: compare-and-set writes, reads, pulls, core messages.

A write that fails says whether it can have been stored: :class:`Unavailable` is a certain no, :class:`Ambiguous` is
a perhaps. The traps this module exists to avoid are in docs/wire.md.
"""

import base64
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, Self

from signalbox.bus.jetstream import Stored, header_fields, stored_of, unix_time
from signalbox.bus.pull import Delivery, Puller
from signalbox.bus.requests import Requests
from signalbox.bus.subscription import Message, OnMessage, Subscription
from signalbox.bus.transport.connection import Connection
from signalbox.bus.transport.frames import parse_headers, status, status_text
from signalbox.bus.transport.interface import Events, Transport
from signalbox.bus.writes import GroupWriter
from signalbox.program.errors import Bug, NotFound, TooLarge
from signalbox.program.settings import Wire
from signalbox.wire.assets import ALLOWS_DIRECT, EXAMINED_TO
from signalbox.wire.names import Stream

__all__ = ["Bus", "ConsumerInfo", "Delivery", "Message", "Puller", "Stored", "Subscription"]

_UNSENT_LIMIT_BYTES: Final = 16 * 1024 * 1024
_BATCH_GET_LIMIT: Final = 1000
"""Subjects in one batched direct get; the server takes 1024."""


class ConsumerInfo(NamedTuple):
    """The state of a consumer.

    num_pending: not yet delivered. num_waiting: requests parked at it. delivered: deliveries since it was made.
    delivered_stream_seq: stream sequence of the last one. examined_to: up to which sequence records are read before
    their jobs run (:mod:`signalbox.jobs.delivery`).
    """

    name: str
    num_pending: int
    num_waiting: int
    delivered: int
    delivered_stream_seq: int
    examined_to: int

    @classmethod
    def of(cls, info: Mapping[str, Any]) -> "ConsumerInfo":
        """The state in the server's words. A field that is zero may be missing."""
        delivered = info.get("delivered", {})
        return cls(
            name=info["name"],
            num_pending=info.get("num_pending", 0),
            num_waiting=info.get("num_waiting", 0),
            delivered=delivered.get("consumer_seq", 0),
            delivered_stream_seq=delivered.get("stream_seq", 0),
            examined_to=int((info["config"].get("metadata") or {}).get(EXAMINED_TO, "0")),
        )


class Bus(Requests):
    """One connection to NATS, reconnecting for ever. Make it with :meth:`connect`; ``async with`` closes it."""

    def __init__(
        self, settings: Wire, role: str, *, transport: Callable[[Events], Transport] = Connection, instance: str = ""
    ) -> None:
        super().__init__(settings, role, transport=transport, instance=instance)
        self._writers: dict[str, GroupWriter] = {}

    @classmethod
    async def connect(cls, settings: Wire, *, role: str, name: str = "") -> "Bus":
        """Connect with the inbox of the user, or of ``role`` where there are no users; then reconnect for ever.

        Raises :class:`Unavailable` if no server answers within ``settings.connect_timeout_s``, and
        :class:`Misconfigured` if the server refuses the user or the password.
        """
        bus = cls(settings, role)
        await bus._connect(name)
        return bus

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    # ------------------------------------------------------------------------------ writing

    async def write(
        self,
        subject: str,
        data: bytes = b"",
        *,
        headers: Mapping[str, str] | None = None,
        expect: int | None = None,
        ttl_s: int | None = None,
        msg_id: str | None = None,
        timeout_s: float | None = None,
    ) -> int:
        """Store one message in the stream that owns ``subject``; returns its sequence.

        expect: the subject's last sequence must be this (0 = nothing there yet). ttl_s: whole seconds, at least 1.
        Raises :class:`StaleRevision`, :class:`QueueFull`, :class:`TooLarge`, :class:`Unavailable` (certainly not
        stored) or :class:`Ambiguous` (it may have been stored, or may yet be).
        """
        fields = header_fields(headers, expect, ttl_s, msg_id)
        return await self.write_raw(subject, fields, data, timeout_s)

    def grouped(self, stream: Stream) -> GroupWriter:
        """The group writer of one stream: the same promise as :meth:`write`, fewer disk syncs under load."""
        writer = self._writers.get(stream.value)
        if writer is None:
            writer = self._writers[stream.value] = GroupWriter(self, stream)
        return writer

    async def publish(
        self, subject: str, data: bytes = b"", *, headers: Mapping[str, str] | None = None, reply: str = ""
    ) -> None:
        """Send a core message, at most once, to the present subscribers. It is dropped silently when disconnected.

        Raises :class:`Unavailable` where NATS takes nothing, and much waits for it already.
        """
        if not self.connection.is_open:
            return
        self.send(subject, reply.encode(), header_fields(headers) if headers else b"", data)
        if self.connection.unsent_bytes > _UNSENT_LIMIT_BYTES:
            await self.flush()

    # ------------------------------------------------------------------------------ reading

    async def leader_get(self, stream: str, subject: str) -> Stored | None:
        """The last message of ``subject`` as the stream's leader knows it: for reads that decisions depend on."""
        return await self._leader_get(stream, {"last_by_subj": subject})

    async def leader_next(self, stream: str, seq: int, subject: str = ">") -> Stored | None:
        """The first message from a sequence on, as the stream's leader knows it. The server counts nothing for it.

        subject: the wildcard it matches. For others than all the server may look through all that it has.
        """
        return await self._leader_get(stream, {"seq": max(1, seq), "next_by_subj": subject})

    async def direct_get(self, stream: str, subject: str) -> Stored | None:
        """The last message of ``subject`` as any replica knows it: fast, and at times one write behind."""
        head, body = await self.request(f"$JS.API.DIRECT.GET.{stream}.{subject}")
        if status(head) == 404:
            return None
        return stored_of(head, body)

    async def direct_batch(self, stream: str, asked: Mapping[str, object]) -> list[Stored]:
        """The messages that a batched direct get finds, in stream order, as any replica knows them.

        Raises :class:`TooLarge` where more subjects match than one batch holds.
        """
        found: list[Stored] = []
        head, _ = await self.collect(
            f"$JS.API.DIRECT.GET.{stream}", asked, lambda head, body: found.append(stored_of(head, body))
        )
        if status(head) == 413:
            raise TooLarge("More subjects match than one batch holds.")
        if status(head) not in {204, 404}:
            raise Bug(f"Batched get: {status(head)} {status_text(head)}")
        return found

    async def list_latest(self, stream: str, subjects: Sequence[str]) -> list[Stored]:
        """The last message of every subject that matches, wildcards allowed, in stream order.

        From any replica where the stream allows direct reads, else from the leader.
        """
        found = [stored async for page in self.list_pages(stream, subjects) for stored in page]
        return sorted(found, key=lambda stored: stored.seq)

    async def list_pages(self, stream: str, subjects: Sequence[str]) -> AsyncIterator[list[Stored]]:
        """Yield messages some at a time and in no order of theirs: for a caller that does not keep what it reads."""
        if stream not in ALLOWS_DIRECT:
            yield await self._list_by_leader(stream, subjects)
            return
        try:
            yield await self._list_batch(stream, subjects)
        except TooLarge:
            names = await self._subjects(stream, subjects)
            for start in range(0, len(names), _BATCH_GET_LIMIT):
                yield await self._list_batch(stream, names[start : start + _BATCH_GET_LIMIT])

    async def consumer_info(self, consumer: str, stream: str = Stream.JOBS) -> ConsumerInfo:
        """The state of a consumer. Raises :class:`NotFound` if there is none of that name."""
        return ConsumerInfo.of(await self.request_json(f"$JS.API.CONSUMER.INFO.{stream}.{consumer}"))

    # ------------------------------------------------------------------------------ listening

    async def subscribe(self, subject: str, on_message: OnMessage, *, group: str = "") -> Subscription:
        """Listen to core messages; returns when the server knows. Survives reconnects (with a gap).

        group: a queue group, of whose subscribers one gets each message.
        A plain function is called as the message is read and must be quick; a coroutine function runs
        one message after the other.
        """
        subscription = Subscription(self.connection, subject, on_message, group)
        try:
            await self.flush()
        except BaseException:
            await subscription.close()
            raise
        return subscription

    def puller(self, consumer: str, on_delivery: Callable[[Delivery], None], *, stream: str = Stream.JOBS) -> Puller:
        """A puller on a consumer, for a caller whose next request tells when the server knows of it."""
        return Puller(self, stream, consumer, on_delivery)

    async def pull(
        self, consumer: str, on_delivery: Callable[[Delivery], None], *, stream: str = Stream.JOBS
    ) -> Puller:
        """A puller on a consumer. Nothing comes before :meth:`Puller.ask`; the server knows of it on return."""
        puller = self.puller(consumer, on_delivery, stream=stream)
        try:
            await self.flush()
        except BaseException:
            await puller.close()
            raise
        return puller

    async def close(self) -> None:
        """Wait for open batches and requests (each has its deadline), then close. Idempotent."""
        if not self._is_closing:
            self._is_closing = True
            for writer in self._writers.values():
                await writer.close()
            await self._end()

    # ------------------------------------------------------------------------------ inside

    async def _leader_get(self, stream: str, asked: Mapping[str, object]) -> Stored | None:
        try:
            answer = await self.request_json(f"$JS.API.STREAM.MSG.GET.{stream}", asked)
        except NotFound:
            return None
        found = answer["message"]
        head = base64.b64decode(found["hdrs"]) if found.get("hdrs") else b""
        return Stored(
            found["subject"],
            found["seq"],
            unix_time(found["time"]),
            parse_headers(head) if head else {},
            base64.b64decode(found["data"]) if found.get("data") else b"",
        )

    async def _list_batch(self, stream: str, subjects: Sequence[str]) -> list[Stored]:
        return await self.direct_batch(stream, {"multi_last": list(subjects), "batch": _BATCH_GET_LIMIT + 24})

    async def _list_by_leader(self, stream: str, subjects: Sequence[str]) -> list[Stored]:
        names = await self._subjects(stream, subjects)
        found = [await self.leader_get(stream, name) for name in names]
        return [stored for stored in found if stored is not None]

    async def _subjects(self, stream: str, patterns: Sequence[str]) -> list[str]:
        """Every stored subject that matches one of the patterns."""
        names: dict[str, None] = {}
        for pattern in patterns:
            if "*" not in pattern and ">" not in pattern:
                names[pattern] = None
                continue
            offset = 0
            while True:
                info = await self.request_json(
                    f"$JS.API.STREAM.INFO.{stream}", {"subjects_filter": pattern, "offset": offset}
                )
                page = info["state"].get("subjects") or {}
                names.update(dict.fromkeys(page))
                offset += len(page)
                if not page or offset >= info.get("total", 0):
                    break
        return list(names)
