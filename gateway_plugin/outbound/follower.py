"""Follows the records in ``STATE`` and writes the ends that somebody is subscribed to into ``RESULTS``, each once.

A job's end has a subject of its own, and is written only where nothing lies there (expected sequence 0): so it may be
tried again after any failure, and two followers write it once. How far the follower is, is kept about once a second;
what came since is read again by the next one. While nobody is subscribed it reads nothing, and begins with what was
stored from the moment of the first subscription on.

Where traces are exported it reads for them too, and hands them over after the ends. No record waits for that.
"""

import asyncio
import contextlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import msgspec

from gateway_plugin.outbound import gauges
from gateway_plugin.outbound.coverage import Coverage
from gateway_plugin.outbound.ends import end_of, is_inline
from gateway_plugin.outbound.position import KEPT_EVERY_S, Position
from gateway_plugin.outbound.resultsroom import ResultsRoom
from gateway_plugin.outbound.settings import OutboundSettings, headers_of
from signalbox.bus.client import Bus, Delivery, Stored
from signalbox.bus.table import Table
from signalbox.bus.writes import GroupedWrite
from signalbox.jobs import joblog
from signalbox.jobs.cursor import StreamCursor
from signalbox.program import log
from signalbox.program.errors import Misconfigured, QueueFull, SignalboxError, StaleRevision, TooLarge
from signalbox.wire import names, outboundnames
from signalbox.wire.messages import Record, decode, encode
from signalbox.wire.names import Bucket, Header, Stream
from signalbox.wire.outbound import End, Subscription, Webhook
from signalbox.wire.outboundnames import OUTBOUND

if TYPE_CHECKING:
    from gateway_plugin.outbound.traces import TraceExporter

SWEEP: Final = 500
"""Records looked at between two reports of the position."""
PAUSE_S: Final = 0.02
"""From one sweep to the next at least: what ends meanwhile is read at once."""
_GROUP: Final = 250
_GROUP_BYTES: Final = 4 * 1024 * 1024
"""Ends written at once, and bytes of the records read for them."""
_OPEN: Final = ('"state":"running"', '"state":"queued"')
"""Told from the header's text: most records are of jobs that have not ended."""


class _Ended(NamedTuple):
    """A record that is to be sent out. seq: at which it lies."""

    record: Record
    seq: int


async def follow(bus: Bus, settings: OutboundSettings) -> None:
    """The task ``results``: until cancelled. Raises what NATS refuses; it may then be called again."""
    follower = Follower(bus, settings)
    try:
        await follower.start()
        await follower.run()
    finally:
        await follower.close()


class Follower:
    """One follower. :meth:`start`, :meth:`run` until cancelled, :meth:`close`."""

    def __init__(self, bus: Bus, settings: OutboundSettings) -> None:
        self._bus = bus
        self._writer = bus.grouped(Stream.RESULTS)
        self._inline_bytes = settings.inline_bytes
        self._subscriptions = Table(bus, Bucket.SUBSCRIPTIONS, Subscription)
        self._webhooks = Table(bus, Bucket.WEBHOOKS, Webhook)
        self._coverage = Coverage([], [])
        self._position = Position(bus)
        self._room = ResultsRoom(bus, settings.account_bytes, before=self._position.keep)
        self._wake = asyncio.Event()
        self._is_broken = self._is_watched = False
        self._loop = asyncio.get_running_loop()
        self._keep_at = 0.0
        self._traces = _trace_exporter(settings)

    async def start(self) -> None:
        """Learn who is subscribed. Raises as :meth:`Table.start`."""
        self._bus.on_reconnect(self._break)
        self._subscriptions.on_change(self._changed)
        self._webhooks.on_change(self._changed)
        await self._subscriptions.start()
        await self._webhooks.start()

    async def close(self) -> None:
        """Follow nothing any more. Idempotent."""
        gauges.FOLLOWER_LAG.set(0)  # another copy tells of it from now on
        self._bus.forget_reconnect(self._break)
        await self._subscriptions.close()
        await self._webhooks.close()
        if self._traces is not None:
            await asyncio.to_thread(self._traces.close)

    async def run(self) -> None:
        """Until cancelled. Raises what NATS refuses."""
        while True:
            self._is_broken = False
            if self._coverage.is_watched or self._traces is not None:
                await self._session(is_watched=self._coverage.is_watched)
            else:
                await self._rest()

    def _changed(self, _key: str, _doc: object, _revision: int) -> None:
        self._coverage = Coverage(self._subscriptions.items().values(), self._webhooks.items().values())
        self._wake.set()

    def _break(self) -> None:
        """After a reconnect the consumer may be gone, and the streams may be others."""
        self._is_broken = True
        self._wake.set()

    async def _rest(self) -> None:
        """Return when somebody is subscribed. Until then nothing is read, and no record waits."""
        await self._position.read()
        await self._position.rest()
        gauges.FOLLOWER_LAG.set(0)
        log.info("outbound.nobody_subscribed")
        while not self._coverage.is_watched and not self._is_broken:
            self._wake.clear()
            await self._wake.wait()

    # ------------------------------------------------------------------------------ reading

    async def _session(self, *, is_watched: bool) -> None:
        """Read with one consumer; returns when it must be made anew, or when the first is subscribed, or no one any
        more. is_watched: somebody is; else it reads for traces alone, and keeps no position."""
        self._is_watched = is_watched
        cursor = StreamCursor(self._bus, Stream.STATE, OUTBOUND, self._wake.set)
        try:
            await self._room.measure()
            start = await self._begin(cursor)
            gauges.FOLLOWER_LAG.set(await cursor.open(start))
            log.info("outbound.following", start=start)
            while self._is_going_on:
                if cursor.refusal:
                    log.warning("outbound.refused", reason=cursor.refusal)
                    return
                found = await cursor.sweep(SWEEP)
                await self._take(found)
                if len(found) < SWEEP:
                    await asyncio.sleep(PAUSE_S)
                    await self._until_more(cursor)
        finally:
            await cursor.close()
            if not self._is_broken and is_watched:
                with contextlib.suppress(SignalboxError):  # what came since is read again
                    await self._position.keep()

    async def _until_more(self, cursor: StreamCursor) -> None:
        """Return when something waits; keep the position when it is due."""
        while True:
            self._wake.clear()
            cursor.park()
            if len(cursor) or not self._is_going_on or cursor.refusal:
                return
            due = None if self._position.is_kept or not self._is_watched else self._keep_at
            try:
                async with asyncio.timeout_at(due):
                    await self._wake.wait()
            except TimeoutError:
                await self._keep()
            else:
                return

    @property
    def _is_going_on(self) -> bool:
        return not self._is_broken and self._coverage.is_watched == self._is_watched

    async def _begin(self, cursor: StreamCursor) -> int:
        """From where to read: where the last follower was, or where somebody subscribed; for traces alone, from now."""
        if not self._is_watched:
            await self._position.read()
            await self._position.rest()
            return await self._first_since(cursor, datetime.now(UTC).timestamp())
        info = await self._bus.request_json(f"$JS.API.STREAM.INFO.{Stream.STATE}")
        created, last = str(info["created"]), int(info["state"]["last_seq"])
        kept = await self._position.read()
        if not kept.is_watched:
            start = await self._first_since(cursor, await self._subscribed_at())
        elif kept.created != created or kept.state_seq > last + 1:
            log.warning("outbound.other_stream", had=kept.state_seq, last=last)
            start = 1  # a record whose end was written is refused a second time
        else:
            return kept.state_seq
        await self._position.begin(created, start)
        return start

    async def _subscribed_at(self) -> float:
        """When the first of those who are subscribed now were, by NATS's own clock."""
        keys = [
            (bucket, [names.key(bucket, key) for key, doc in table.items().items() if doc.is_enabled])
            for bucket, table in ((Bucket.SUBSCRIPTIONS, self._subscriptions), (Bucket.WEBHOOKS, self._webhooks))
        ]
        found = [await self._bus.list_latest(bucket.stream, wanted) for bucket, wanted in keys if wanted]
        return min((stored.time for each in found for stored in each), default=datetime.now(UTC).timestamp())

    async def _first_since(self, cursor: StreamCursor, at: float) -> int:
        since = datetime.fromtimestamp(at, UTC).isoformat()
        made = await cursor.make({"deliver_policy": "by_start_time", "opt_start_time": since})
        return int(made["delivered"]["stream_seq"]) + 1

    # ------------------------------------------------------------------------------ writing

    async def _take(self, found: Sequence[Delivery]) -> None:
        """Write the ends among these, and note that all of it is done."""
        read = [one for delivery in found if (one := self._ended(delivery)) is not None]
        ended = [one for one in read if self._coverage.takes(one.record)]
        try:
            for group in _groups(ended):
                await self._write(group)
                self._position.reached(group[-1].seq + 1)
                await self._keep()
            if found:
                self._position.reached(found[-1].seq + 1)
                gauges.FOLLOWER_LAG.set(found[-1].left)
                await self._keep()
        finally:  # also when it is asked to stop: what is done is not read again
            if self._traces is not None:
                self._traces.export([one.record for one in read if self._position.is_past(one.seq)])

    def _ended(self, delivery: Delivery) -> _Ended | None:
        """The record, if its job has ended and was not deleted."""
        text = delivery.headers.get(Header.RECORD, "")
        if not text or any(state in text for state in _OPEN):
            return None
        try:
            record = decode(Record, text)
        except msgspec.MsgspecError as error:
            gauges.ENDS_LOST.labels("unreadable").inc()
            about = joblog.only_id(names.job_of(delivery.subject))
            log.warning("outbound.unreadable_record", **about, seq=delivery.seq, reason=str(error))
            return None
        return None if record.deleted_at else _Ended(record, delivery.seq)

    async def _write(self, group: Sequence[_Ended]) -> None:
        bodies = await self._bodies(group)
        made: list[Any] = await asyncio.gather(
            *(
                end_of(self._bus, one.record, bodies.get(one.record.id, b""), self._inline_bytes)
                for one in group
                if not is_inline(one.record) or one.record.id in bodies
            ),
            return_exceptions=True,
        )
        await self._store(_done(made))
        await self._room.keep_shares()

    async def _store(self, ends: Sequence[End]) -> None:
        """Write those that are not there. Raises the first error that is not about one end alone."""
        while ends:
            writes = [
                GroupedWrite(outboundnames.result(end.account, end.model, end.request_id), encode(end), {}, 0)
                for end in ends
            ]
            outcomes = await self._writer.write_all(writes)
            refused: list[End] = []
            failed: SignalboxError | None = None
            for end, write, outcome in zip(ends, writes, outcomes, strict=True):
                if isinstance(outcome, int):
                    self._room.took(write.subject, outcome, len(write.data))
                    gauges.ENDS_WRITTEN.labels(end.model, end.state.value).inc()
                elif isinstance(outcome, QueueFull):
                    refused.append(end)
                elif isinstance(outcome, TooLarge):
                    gauges.ENDS_LOST.labels("too_large").inc()
                    log.error("outbound.end_too_large", **joblog.ids(end), size_bytes=len(write.data))
                elif not isinstance(outcome, StaleRevision):  # which says that it was written before
                    failed = failed or outcome
            if failed is not None:
                raise failed
            if refused and not await self._room.make():
                raise QueueFull("There is no room for ends of jobs in RESULTS.")
            ends = refused

    async def _bodies(self, group: Sequence[_Ended]) -> dict[str, bytes]:
        """What lies in the records of those whose outputs do, several at once; without those that are gone."""
        wanted = {names.state(one.record.id): one for one in group if is_inline(one.record)}
        found: dict[str, bytes] = {}
        if wanted:
            for stored in await self._bus.list_latest(Stream.STATE, list(wanted)):
                if stored.seq >= wanted[stored.subject].seq:  # else the replica that was asked is behind
                    del wanted[stored.subject]
                    _add(found, stored)
        for subject, one in wanted.items():
            again = await self._bus.leader_get(Stream.STATE, subject)
            if again is not None:
                _add(found, again)
            else:
                gauges.ENDS_LOST.labels("gone").inc()
                log.error("outbound.record_gone", **joblog.ids(one.record))
        return found

    async def _keep(self) -> None:
        if self._is_watched and self._loop.time() >= self._keep_at:
            self._keep_at = self._loop.time() + KEPT_EVERY_S
            await self._position.keep()


def _trace_exporter(settings: OutboundSettings) -> "TraceExporter | None":
    """None where none are exported. Raises :class:`Misconfigured` where what exports them is not installed."""
    if not settings.traces_url:
        return None
    try:
        from gateway_plugin.outbound.traces import TraceExporter
    except ModuleNotFoundError as error:
        raise Misconfigured(f"Traces need {error.name}: pip install 'signalbox[traces]'.") from error
    headers = headers_of(settings.traces_headers) or {}
    return TraceExporter(settings.traces_url, slow_s=settings.traces_slow_s, headers=headers)


def _groups(ended: Sequence[_Ended]) -> Iterator[list[_Ended]]:
    group: list[_Ended] = []
    size = 0
    for one in ended:
        held = one.record.size_bytes if is_inline(one.record) else 0
        if group and (len(group) >= _GROUP or size + held > _GROUP_BYTES):
            yield group
            group, size = [], 0
        group.append(one)
        size += held
    if group:
        yield group


def _add(found: dict[str, bytes], stored: Stored) -> None:
    """Unless its owner had the job deleted meanwhile."""
    with contextlib.suppress(KeyError, msgspec.MsgspecError):
        record = decode(Record, stored.headers[Header.RECORD])
        if not record.deleted_at:
            found[record.id] = stored.data


def _done(answers: Sequence[Any]) -> list[Any]:
    """The answers, none of which is an error; else the first error is raised."""
    for answer in answers:
        if isinstance(answer, BaseException):
            raise answer
    return list(answers)
