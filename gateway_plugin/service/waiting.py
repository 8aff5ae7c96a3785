"""Callers that wait for a job's end: one subscription for all of them, a future for each.

A reply is a core message and may be lost, so the record decides: it is read when a wait runs out,
after every reconnect, and for a caller that has waited unusually long.
"""

import asyncio
import contextlib
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.jobs import joblog
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.messages import Record, decode
from signalbox.wire.names import Header

_ID_SIZE: Final = 36


class End(msgspec.Struct, frozen=True):
    """How a job ended: its terminal record and the body stored with it."""

    record: Record
    body: bytes


class Waiters:
    """Futures of the jobs this plugin waits for. recheck_s: how long until a reply is thought lost."""

    def __init__(self, bus: Bus, records: Records, *, recheck_s: float) -> None:
        self._bus = bus
        self._records = records
        self._recheck_s = recheck_s
        self._waiting: dict[str, tuple[asyncio.Future[End | None], float]] = {}
        self._following: dict[asyncio.Event, str] = {}
        self._is_abandoned = False
        self._loop = asyncio.get_running_loop()
        self._some = asyncio.Event()
        self._reconnected = asyncio.Event()
        self._subscription: Subscription | None = None
        self._checking = Background()

    async def start(self) -> None:
        """Listen for ends. Raises :class:`Unavailable`."""
        subject = names.reply(self._bus.instance, "*")
        self._subscription = await self._bus.subscribe(subject, self._on_reply)
        self._bus.on_reconnect(self._reconnected.set)
        self._checking.start(self._check_for_lost(), name="waiters")

    async def close(self) -> None:
        """Stop listening; see :meth:`abandon`. Idempotent."""
        self.abandon()
        self._bus.forget_reconnect(self._reconnected.set)
        subscription, self._subscription = self._subscription, None
        if subscription is not None:
            await subscription.close()
        await self._checking.cancel()

    def abandon(self) -> None:
        """Fail every open wait with :class:`Unavailable` and the job's id; the jobs go on."""
        self._is_abandoned = True
        for job_id, (future, _) in self._waiting.items():
            if not future.done():
                future.set_exception(_abandoned(job_id))
        for changed in self._following:
            changed.set()

    def expect(self, job_id: str) -> asyncio.Future[End | None]:
        """A future for the job's end; end with :meth:`forget`."""
        future: asyncio.Future[End | None] = self._loop.create_future()
        self._waiting[job_id] = (future, self._loop.time())
        if len(self._waiting) == 1:
            self._some.set()
        return future

    def forget(self, job_id: str) -> None:
        """Stop waiting for a job. Idempotent."""
        self._waiting.pop(job_id, None)
        if not self._waiting:
            self._some.clear()

    async def wait(self, job_id: str, future: asyncio.Future[End | None], timeout_s: float) -> End | None:
        """The job's end, or None if it has not ended within ``timeout_s``."""
        timer = self._loop.call_later(timeout_s, _time_out, future)
        try:
            end = await future
        finally:
            timer.cancel()
        return await self.look_up(job_id) if end is None else end

    async def follow(self, job_id: str, timeout_s: float) -> End | None:
        """The end of a job that another call submitted, or None if it has not ended within ``timeout_s``.

        Its reply goes to the call that submitted it, so its record's changes are listened to instead. Raises
        :class:`Unavailable` when this process is being replaced.
        """
        changed = asyncio.Event()
        self._following[changed] = job_id
        subscription: Subscription | None = None
        try:
            subscription = await self._bus.subscribe(names.event_of_state(job_id), lambda _: changed.set())
            async with asyncio.timeout(timeout_s):
                while (end := await self.look_up(job_id)) is None:
                    with contextlib.suppress(TimeoutError):
                        async with asyncio.timeout(self._recheck_s):
                            await changed.wait()
                    if self._is_abandoned:
                        raise _abandoned(job_id)
                    changed.clear()
            return end
        except TimeoutError:
            return None
        finally:
            del self._following[changed]
            if subscription is not None:
                await subscription.close()

    async def look_up(self, job_id: str) -> End | None:
        """The job's end from its record, or None if it has not ended or cannot be read now."""
        try:
            found = await self._records.read(job_id)
        except SignalboxError:
            return None
        if found is None or not found[0].state.is_terminal:
            return None
        return End(found[0], found[2])

    def _on_reply(self, message: Message) -> None:
        waiting = self._waiting.get(message.subject[-_ID_SIZE:])
        if waiting is None or waiting[0].done():
            return
        try:
            record = decode(Record, message.headers[Header.RECORD])
        except (KeyError, msgspec.MsgspecError):
            log.warning("gateway.reply_unreadable", **joblog.only_id(names.job_of(message.subject)))
            return
        if record.state.is_terminal:
            waiting[0].set_result(End(record, message.data))

    async def _check_for_lost(self) -> None:
        while True:
            await self._some.wait()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._recheck_s):
                    await self._reconnected.wait()
            is_after_gap = self._reconnected.is_set()
            self._reconnected.clear()
            since = self._loop.time() - (0 if is_after_gap else self._recheck_s)
            overdue = [i for i, (_, at) in self._waiting.items() if at <= since]
            for job_id in overdue:
                await self._resolve(job_id)

    async def _resolve(self, job_id: str) -> None:
        waiting = self._waiting.get(job_id)
        if waiting is None or waiting[0].done():
            return
        end = await self.look_up(job_id)
        if end is not None and not waiting[0].done():
            log.info("gateway.lost_reply_found", **joblog.ids(end.record))
            waiting[0].set_result(end)


def _abandoned(job_id: str) -> Unavailable:
    return Unavailable(
        "The gateway plugin is being replaced; ask for the job by its id.", retry_after_s=1.0, job_id=job_id
    )


def _time_out(future: asyncio.Future[End | None]) -> None:
    if not future.done():
        future.set_result(None)
