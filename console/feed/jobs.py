"""Follows the events of jobs while a browser watches, and a minute longer."""

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Final

from console.board.view import LiveView
from console.feed import history
from console.feed.hub import Hub
from console.feed.queues import WatchedQueues
from console.feed.retry import until_done
from console.feed.watched import WatchedJobs
from signalbox.bus.client import Bus, Message, Subscription
from signalbox.bus.jetstream import unix_time
from signalbox.program.errors import SignalboxError
from signalbox.wire.messages import Job, Record, decode
from signalbox.wire.names import Header, event_of_jobs, event_of_state

POLL_S: Final = 0.1
LINGER_S: Final = 60.0
"""How long job events are followed after the last viewer has gone."""


class JobEvents:
    """The subscriptions to what happens to jobs. Each event marks its model's queue."""

    def __init__(self, view: LiveView, queues: WatchedQueues, watched: WatchedJobs, clock: Callable[[], float]) -> None:
        self._view = view
        self._queues = queues
        self._watched = watched
        self._clock = clock
        self._subscriptions: list[Subscription] = []
        self._wanted_until = 0.0

    @property
    def are_followed(self) -> bool:
        """Whether events arrive."""
        return bool(self._subscriptions)

    async def keep(self, bus: Bus, hub: Hub) -> None:
        """Follows while ``hub`` has subscribers."""
        while True:
            now = self._clock()
            if len(hub):
                self._wanted_until = now + LINGER_S
            is_wanted = now < self._wanted_until
            if is_wanted and not self.are_followed:
                await until_done(partial(self.follow, bus))
            elif not is_wanted and self.are_followed:
                await self.leave()
            await asyncio.sleep(POLL_S)

    async def follow(self, bus: Bus) -> None:
        """Listens first and reads then, so that nothing falls between what happened before and what happens."""
        jobs = await bus.subscribe(event_of_jobs(), self._on_job)
        try:
            records = await bus.subscribe(event_of_state(), self._on_record)
        except SignalboxError:
            await jobs.close()
            raise
        self._view.queues.count(self._clock())
        try:
            self._view.earlier(await history.transitions(bus))
        except SignalboxError:
            self._view.queues.is_counting = False
            await jobs.close()
            await records.close()
            raise
        self._subscriptions = [jobs, records]
        self._queues.mark_all()
        self._watched.doubt()

    async def leave(self) -> None:
        """No more events. Idempotent."""
        subscriptions, self._subscriptions = self._subscriptions, []
        self._view.queues.is_counting = False
        for subscription in subscriptions:
            await subscription.close()

    def _on_job(self, message: Message) -> None:
        headers = message.headers
        if Header.JOB not in headers:
            return
        job = decode(Job, headers[Header.JOB])
        self._queues.mark(job.model)
        self._view.accepted(job, unix_time(headers[Header.TIME_STAMP]), self._clock())

    def _on_record(self, message: Message) -> None:
        headers = message.headers
        if Header.RECORD not in headers:
            return
        record = decode(Record, headers[Header.RECORD])
        if record.deleted_at:
            return  # it had ended before
        self._queues.mark(record.model)
        self._watched.record(record, int(headers.get(Header.SEQUENCE, 0)))
        self._view.record(record, unix_time(headers[Header.TIME_STAMP]), self._clock())
