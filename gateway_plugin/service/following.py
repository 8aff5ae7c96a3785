"""Those who follow a job: what is known of it now, and then each change, pushed and never polled for (ADR 0215).

A change of the record comes as an event of ``STATE``. Place, estimate and phase also follow from what workers, models
and operators' wishes are, so a change of these tables has every follower look again, spread over a second.
"""

import asyncio
import math
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing, asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

import msgspec

from gateway_plugin.admission.keyring import READ, Keyring, require_scope
from gateway_plugin.admission.ownedjobs import OwnedJobs
from gateway_plugin.admission.pool import Pool
from gateway_plugin.service.descriptions import Descriptions
from signalbox.bus.client import Bus, Message
from signalbox.jobs import joblog
from signalbox.jobs.records import Found
from signalbox.program import log, metrics
from signalbox.program.errors import Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Record, State, decode
from signalbox.wire.names import Header

PACE_S: Final = 1.0
"""Time for each change that is shown of one job, so that one which comes late does not delay the next. The end comes at
once."""
HEARTBEAT_S: Final = 15.0
"""Longest silence. The key is looked at again as often, and the job: NATS loses an event where its stream changes its
leader, or between two nodes, and no connection tells of it."""
_SLICES: Final = 20
"""Parts of all followers that look again one after another, so that they do not all do so at once."""
_SHOWN: Final = ("phase", "position", "is_longer_than_usual")
"""Fields of a job that change without its record, and count as a change. So does the estimate where it names another
second, but not where it only counts down.
"""

FOLLOWERS = metrics.gauge("event_streams", "Streams of events that a gateway plugin has open.")


class Change(NamedTuple):
    """A job as it is now. doc: None = nothing changed for a while (a heartbeat)."""

    found: Found
    doc: dict[str, Any] | None = None


class Follower:
    """One stream. found: the job as it was heard of last. is_doubtful: something may have been missed.

    changed: to be looked at again. ended: nothing but the end is still to be shown.
    """

    __slots__ = ("changed", "ended", "found", "is_doubtful")

    def __init__(self, found: Found) -> None:
        self.changed = asyncio.Event()
        self.ended = asyncio.Event()
        self.is_doubtful = False
        self.found = found
        self.learn(found)

    def learn(self, found: Found) -> None:
        """Take in the job, unless more is known."""
        if found.revision >= self.found.revision:
            self.found = found
            if found.record.state.is_terminal:
                self.ended.set()

    def hear(self, message: Message) -> None:
        """Take in an event of the job's record."""
        headers = message.headers
        try:
            self.learn(Found(decode(Record, headers[Header.RECORD]), int(headers[Header.SEQUENCE])))
        except (KeyError, msgspec.MsgspecError):
            log.warning("gateway.event_unreadable", **joblog.ids(self.found.record), subject=message.subject)
            self.is_doubtful = True
        self.changed.set()


class Following:
    """Streams of jobs' changes. most: streams at once, whatever they follow. wall: UTC clock, seconds.

    places: what streams are taken from.
    """

    def __init__(
        self,
        bus: Bus,
        keyring: Keyring,
        owned: OwnedJobs,
        descriptions: Descriptions,
        *,
        most: int,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._keyring = keyring
        self._owned = owned
        self._descriptions = descriptions
        self._wall = wall
        self._loop = asyncio.get_running_loop()
        self._followers: set[Follower] = set()
        self.places = Pool(
            most,
            bound="streams",
            of_all="As many streams of events are open as may be",
            of_account="As many streams of your account's jobs are open as may be now",
            mend="Close some of them, or ask for the job with Prefer: wait=60.",
        )
        self._tables_changed = asyncio.Event()
        self._looking = Background()
        self.is_over = False
        FOLLOWERS.set_function(lambda: self.places.held)

    def start(self) -> None:
        """Follow the tables and the connection."""
        self._bus.on_reconnect(self._doubt)
        self._looking.start(self._look_again(), name="followers")

    async def close(self) -> None:
        """End every stream. Idempotent."""
        self.end()
        self._bus.forget_reconnect(self._doubt)
        await self._looking.cancel()

    def end(self) -> None:
        """End every stream, and each that is begun from now on: this process is being replaced."""
        self.is_over = True
        for one in self._followers:
            one.ended.set()
            one.changed.set()

    def table_changed(self) -> None:
        """Have followers of open jobs look again."""
        self._tables_changed.set()

    @asynccontextmanager
    async def follow(self, key: ApiKey, job_id: str) -> AsyncIterator[tuple[Found, AsyncGenerator[Change, None]]]:
        """A job of the key's account and its changes, in a place of that.

        Raises as :meth:`OwnedJobs.find` and :meth:`Pool.take`, and :class:`Forbidden`. What comes raises
        :class:`Unauthorized` or :class:`Forbidden` once the key has ended or lost its right.
        """
        require_scope(key, READ)
        self.places.take(key.account_id)
        subscription = None
        try:
            one = Follower(await self._owned.find(job_id, key.account_id))
            self._followers.add(one)
            try:
                if not one.ended.is_set():
                    subscription = await self._bus.subscribe(names.event_of_state(job_id), one.hear)
                    one.is_doubtful = True  # what happened between the two is not known
                async with aclosing(self._changes(key, one)) as changes:
                    yield one.found, changes
            finally:
                self._followers.discard(one)
                if subscription is not None:
                    await subscription.close()
        finally:
            self.places.release(key.account_id)

    async def _changes(self, key: ApiKey, one: Follower) -> AsyncGenerator[Change, None]:
        """The job as it is, each change of it to its end, and heartbeats."""
        clock = self._loop.time
        shown: tuple[Any, ...] = ()
        pace_at, look_at = clock(), clock() + HEARTBEAT_S
        while not self.is_over:
            one.changed.clear()
            await self._settle(key, one)
            found = one.found
            doc = await self._descriptions.of(found)
            now = clock()
            wait_s = doc["estimated_wait_s"]
            starts_at = None if wait_s is None else round(self._wall() + wait_s)
            seen = (found.revision, starts_at, *(doc[name] for name in _SHOWN))
            if seen != shown:
                yield Change(found, doc)
                if found.record.state.is_terminal:
                    return
                shown, pace_at = seen, max(pace_at + PACE_S, now + PACE_S / 2)
            elif now >= look_at:
                yield Change(found)
            if now >= look_at:
                require_scope(self._keyring.require_unended(key), READ)
                look_at = now + HEARTBEAT_S
                one.is_doubtful = True
            await _within(one.ended, pace_at - clock())
            await _within(one.changed, min(look_at - clock(), self._left_s(found)))

    def _left_s(self, found: Found) -> float:
        """Seconds until the clock changes a job that waits: its time comes, or its deadline, by which it ends."""
        record, now = found.record, self._wall()
        instants = (record.not_before, record.deadline_at) if record.state is State.QUEUED else ()
        return min((at - now for at in instants if at > now), default=math.inf)

    async def _settle(self, key: ApiKey, one: Follower) -> None:
        """Read the job where that is needed: a message was missed, or it is overdue in its queue, which ends it.

        Raises as :meth:`OwnedJobs.find`, but while NATS does not answer: then it is read with the next heartbeat.
        """
        record = one.found.record
        is_overdue = record.state is State.QUEUED and record.deadline_at <= self._wall()
        if not (one.is_doubtful or is_overdue):
            return
        one.is_doubtful = False
        try:
            one.learn(await self._owned.find(record.id, key.account_id))
        except Unavailable:
            one.is_doubtful = True

    def _doubt(self) -> None:
        """After a reconnect: events may have been missed."""
        for one in self._followers:
            one.is_doubtful = True
        self.table_changed()

    async def _look_again(self) -> None:
        """After a change of a table have all look again, some at a time."""
        while True:
            await self._tables_changed.wait()
            self._tables_changed.clear()
            followers = list(self._followers)
            size = math.ceil(len(followers) / _SLICES) or 1
            for start in range(0, len(followers), size):
                for one in followers[start : start + size]:
                    one.changed.set()
                await asyncio.sleep(PACE_S / _SLICES)


async def _within(event: asyncio.Event, longest_s: float) -> None:
    """Wait for an event, but no longer. longest_s: seconds."""
    if longest_s > 0:
        with suppress(TimeoutError):
            async with asyncio.timeout(longest_s if longest_s < math.inf else None):
                await event.wait()
