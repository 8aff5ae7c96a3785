"""Finds jobs that no worker was given, and asks whoever serves their models to read the queue anew.

A delivery is lost with the worker or the connection that it was made to, and others look then
(:mod:`workers.queue.intake`). What makes no noise is left: a hint that the server did not send, as its stream's leader
changed, or a worker that forgot a job. So the oldest jobs of ``JOBS`` are read now and then: of each class the first
one that no record knows of.

That may also be the message of a job that has ended: one that a gateway wrote again when the first was gone already,
after :mod:`workers.recovery.removal` had looked at its slot. No worker runs it, and it is removed here.
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from signalbox.bus.client import Bus, ConsumerInfo, Delivery, Stored
from signalbox.jobs import joblog
from signalbox.jobs.delivery import generation_of
from signalbox.jobs.message import remove
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import NewerVersion, NotFound
from signalbox.wire import jobids, names
from signalbox.wire.messages import Job
from signalbox.wire.workerdocs import Worker
from workers.host import gauges
from workers.host.presence import MOST_COUNTED
from workers.recovery.queued import is_deep, walk_jobs

MAX_READ: Final = 1_000
"""Messages read in one turn."""
MAX_READ_DEEP: Final = 2_000
"""Where very many wait, as turns are further apart."""
WAITED_S: Final = 2.0
"""A job of a model of which no worker has any is looked for after so long, if the next turn finds it so again.

Presence, which tells what workers have, may be two seconds old.
"""
WAITED_BUSY_S: Final = 30.0
"""One of a model that workers are busy with, after so long and so often: they may well have it."""
MAX_ASKED: Final = 200
"""Consumers asked in one turn."""
MAX_PENDING: Final = 20
"""Models looked for in one turn though their jobs wait at a consumer: nobody may pull from it, or a worker with very
many models, whose turn has not come."""


_Oldest = dict[tuple[str, str], tuple[int, float, Job]]
"""By model and priority, sequence, time and content of a job."""


class UndeliveredJobs:
    """The first jobs of the queue. workers: presence. clock: UTC seconds."""

    def __init__(
        self, bus: Bus, records: Records, workers: Callable[[], Iterable[Worker]], *, clock: Callable[[], float]
    ) -> None:
        self._bus = bus
        self._records = records
        self._workers = workers
        self._clock = clock
        self._from = 1
        """Sequence of the first message that may be of a job that no record knows of."""
        self._asked_at: dict[str, float] = {}
        self._suspected: set[str] = set()

    def begin(self) -> None:
        """Look from the first message on: the records that are known, or the stream, are others now."""
        self._from = 1

    async def turn(self, jobs: Mapping[str, Any], is_known: Callable[[str], bool]) -> None:
        """Look at the first jobs. Raises :class:`Unavailable`.

        jobs: ``JOBS`` as the server has told of it. is_known: whether a record of a job was read.
        """
        now = self._clock()
        busy = {model for worker in self._workers() for model in _busy(worker)}
        self._asked_at = {m: at for m, at in self._asked_at.items() if at > now - WAITED_BUSY_S}
        late = [
            (seq, job)
            for seq, at, job in (await self._oldest(jobs, is_known)).values()
            if at <= now - (WAITED_BUSY_S if job.model in busy else WAITED_S)
        ]
        suspected, self._suspected = self._suspected, {job.id for _, job in late}
        again = [(seq, job) for seq, job in late if job.id in suspected and job.model not in self._asked_at]
        lost: set[str] = set()
        pending = 0
        for seq, job in again[:MAX_ASKED]:
            if await self._has_ended(job):
                await remove(self._bus, seq)
                gauges.JOBS_REMOVED.inc()
                log.info("reconciler.late_message_removed", **joblog.ids(job), model=job.model)
                continue
            consumer = await self._consumer(job)
            if consumer is not None and seq > consumer.delivered_stream_seq:
                if job.model in busy or consumer.num_waiting or pending >= MAX_PENDING:
                    continue
                pending += 1
                self._asked_at[job.model] = now
            elif job.model in busy:
                self._asked_at[job.model] = now
            lost.add(job.model)
        for model in sorted(lost):
            await self.ask_redelivery(model)

    async def ask_redelivery(self, model: str) -> None:
        """Ask for a model's queue to be read anew."""
        gauges.REDELIVERIES_ASKED.labels(model).inc()
        log.info("reconciler.redelivery_asked", model=model)
        await self._bus.publish(names.redeliver(model))

    async def _oldest(self, jobs: Mapping[str, Any], is_known: Callable[[str], bool]) -> _Oldest:
        """Of each class the first job that no record knows of."""
        found: _Oldest = {}
        first = 0

        def visit(message: Delivery | Stored) -> bool:
            nonlocal first
            try:
                job = message.job
            except (KeyError, ValueError, msgspec.MsgspecError):
                return True
            if jobids.JOB_ID.match(job.id) and not is_known(job.id):
                first = first or message.seq
                found.setdefault((job.model, job.priority), (message.seq, message.time, job))
            return True

        most = MAX_READ_DEEP if is_deep(jobs) else MAX_READ
        read_to = await walk_jobs(self._bus, jobs, self._from, most, visit)
        self._from = first or read_to
        return found

    async def _has_ended(self, job: Job) -> bool:
        try:
            found = await self._records.read(job.id)
        except NewerVersion:
            return False
        return found is not None and found[0].state.is_terminal

    async def _consumer(self, job: Job) -> ConsumerInfo | None:
        """The state of the consumer of a job's class, None where there is none."""
        name = names.consumer(job.model, job.priority, generation_of(self._workers()))
        try:
            return await self._bus.consumer_info(name)
        except NotFound:
            return None


def _busy(worker: Worker) -> set[str]:
    """The models of which a worker has jobs. One that has jobs of very many tells of some: then of any that it has."""
    if len(worker.in_flight) < MOST_COUNTED:
        return set(worker.in_flight)
    return {*worker.in_flight, *(resident.model for resident in worker.models if resident.state == "ready")}
