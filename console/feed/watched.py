"""Follows the jobs whose pages are open: each has a topic of its own, ``job:<id>``, as long as somebody looks at it.

A change of the record comes as an event. How a job that waits stands also follows from workers, models, operators'
wishes and other jobs of its model: after a change of these it is looked at again, at most once a second.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from console.board import standings
from console.board.protocol import Topic
from console.board.rows import WatchedJob
from console.board.standings import Facts
from console.board.view import LiveView
from signalbox.bus.client import Bus
from signalbox.jobs import joblog
from signalbox.jobs.queues import Queues
from signalbox.jobs.reasons import UNPLACED, Fleet, QueuedJob, QueuePosition, locate
from signalbox.jobs.records import Found, Records
from signalbox.program import log
from signalbox.program.errors import SignalboxError
from signalbox.wire.jobids import JOB_ID
from signalbox.wire.messages import Record, State

PREFIX: Final = "job:"
PACE_S: Final = 1.0
DOUBT_S: Final = 15.0
"""So often the records are read in any case: NATS loses an event where its stream changes its leader, or between two
nodes, and no connection tells of it."""
LOCATE_S: Final = 0.5
"""Longest time in which a page waits for a place: what is not known then is shown as unknown."""


def job_of(topic: str) -> str:
    """The job that a topic is of; empty where it is of none."""
    job_id = topic.removeprefix(PREFIX) if topic.startswith(PREFIX) else ""
    return job_id if JOB_ID.match(job_id) else ""


class WatchedJobs:
    """The topics of jobs. fleet: what the jobs of a model wait for, None where NATS is away."""

    def __init__(self, view: LiveView, fleet: Callable[[str], Fleet | None], clock: Callable[[], float]) -> None:
        self._view = view
        self._fleet = fleet
        self._clock = clock
        self._found: dict[str, Found | None] = {}
        self._due = asyncio.Event()
        self._queues: Queues | None = None
        self._records: Records | None = None

    def connect(self, bus: Bus) -> None:
        """From now on NATS can be asked."""
        self._queues = Queues(bus, self._view.queues.workers)
        self._records = Records(bus)

    def open(self, topic: str) -> None:
        """Somebody looks at a job. Idempotent."""
        job_id = job_of(topic)
        if job_id and topic not in self._view.topics.topics:
            self._view.topics.topics[topic] = Topic(topic)
            self._found[job_id] = None
            self._due.set()

    def close(self, topic: str) -> None:
        """Nobody looks at it any more. Idempotent."""
        if self._found.pop(job_of(topic), self) is not self:
            del self._view.topics.topics[topic]

    def record(self, record: Record, revision: int) -> None:
        """A record was written: its job's page shows it at once, and others of its model may have moved up."""
        if record.id in self._found:
            before = self._found[record.id]
            if before is None or before.revision < revision:
                self._found[record.id] = Found(record, revision, seq=before.seq if before is not None else None)
                self._show(record.id, UNPLACED)
        self.look_again(record.model)

    def look_again(self, model: str = "") -> None:
        """How jobs of a model, or all, stand may have changed."""
        if any(not model or (found is not None and found.record.model == model) for found in self._found.values()):
            self._due.set()

    def doubt(self) -> None:
        """Something may have been missed: the records are read anew."""
        self._found = dict.fromkeys(self._found)
        self._due.set()

    async def keep(self) -> None:
        """Looks at jobs whenever something has changed, or may have."""
        clock = asyncio.get_running_loop().time
        doubt_at = clock() + DOUBT_S
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(doubt_at):
                    await self._due.wait()
            if clock() >= doubt_at:
                doubt_at = clock() + DOUBT_S
                self.doubt()
            self._due.clear()
            for job_id in list(self._found):
                await self._look(job_id)
            await asyncio.sleep(PACE_S)

    async def locate(self, job_id: str, job: QueuedJob, seq: int | None = None) -> QueuePosition:
        """Where a queued job stands, as far as NATS tells it soon. Raises nothing."""
        fleet = self._fleet(job.model)
        if fleet is None or self._queues is None or self._records is None:
            return UNPLACED
        try:
            async with asyncio.timeout(LOCATE_S):
                if seq is None and fleet.is_served(self._clock()):
                    queued = await self._records.queued(job_id)
                    seq = queued.seq if queued is not None else None
                return await locate(self._queues, job, seq, fleet, self._clock())
        except (SignalboxError, TimeoutError) as error:
            log.info("live.place_unknown", **self._ids(job_id), reason=str(error))
            return UNPLACED

    async def _look(self, job_id: str) -> None:
        found = self._found.get(job_id) or await self._read(job_id)
        if found is None or job_id not in self._found:
            return
        self._found[job_id] = self._found[job_id] or found
        record = found.record
        is_queued = record.state is State.QUEUED
        place = await self.locate(job_id, Facts.of(record).queued, found.seq) if is_queued else UNPLACED
        now_found = self._found.get(job_id)
        if now_found is not None and now_found.revision == found.revision:
            self._show(job_id, place)

    async def _read(self, job_id: str) -> Found | None:
        try:
            return await self._records.find(job_id) if self._records is not None else None
        except SignalboxError as error:
            log.warning("live.job_not_read", **self._ids(job_id), reason=error.public_message)
            return None

    def _ids(self, job_id: str) -> dict[str, str]:
        found = self._found.get(job_id)
        return joblog.ids(found.record) if found is not None else joblog.only_id(job_id)

    def _show(self, job_id: str, position: QueuePosition) -> None:
        found, topic = self._found.get(job_id), self._view.topics.topics.get(PREFIX + job_id)
        if found is None or topic is None:
            return
        how = standings.of(Facts.of(found.record), self._fleet(found.record.model), self._clock(), position)
        topic.set(job_id, WatchedJob(found.revision, how.state, how.words, how.why, how.starts, how.tone))
