"""Requests to cancel jobs: of those in flight, learned of or found in their records, and of those that may come yet."""

import asyncio
from collections import OrderedDict
from collections.abc import Callable
from typing import Final

from signalbox.bus.client import Message
from signalbox.jobs.records import Records
from signalbox.program.tasks import Background
from signalbox.wire.messages import Job
from workers.serving.committing import Committer, Done
from workers.serving.deliveries import Deliveries
from workers.serving.dispatch import Dispatcher
from workers.serving.execution import Executor
from workers.serving.inflight import InFlightJob

MOST_HEARD: Final = 10_000
"""Requests remembered of jobs that are not in flight here, for the seconds until their messages are removed."""
MISSED_S: Final = 5.0
"""For so long after it began to listen a worker reads the records of jobs that were accepted before: until a turn of
the reconciler is over, which removes the messages of those that were cancelled."""


class Cancellations:
    """Ends jobs of one session as their owners ask.

    tasks: the session's. clock: UTC seconds. grace_s: a run may go on so long.
    """

    def __init__(
        self,
        *,
        records: Records,
        deliveries: Deliveries,
        dispatcher: Dispatcher,
        executor: Executor,
        committer: Committer,
        tasks: Background,
        clock: Callable[[], float],
        grace_s: float,
    ) -> None:
        self._records = records
        self._deliveries = deliveries
        self._dispatcher = dispatcher
        self._executor = executor
        self._committer = committer
        self._tasks = tasks
        self._grace_s = grace_s
        self._heard: OrderedDict[str, None] = OrderedDict()
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self.missed()

    def missed(self) -> None:
        """No request was received until now: the session begins, or the connection is back."""
        self._missed_before = self._clock()
        self._missed_until_s = self._loop.time() + MISSED_S

    def receive(self, message: Message) -> None:
        """A caller asks for the end of a job."""
        job_id = message.subject.rpartition(".")[2]
        held = self._deliveries.in_flight.get(job_id)
        if held is not None:
            self.check(held)
            return
        self._heard[job_id] = None
        if len(self._heard) > MOST_HEARD:
            self._heard.popitem(last=False)

    def may_concern(self, job: Job) -> bool:
        """Whether the end of a job that was not in flight here was asked for, or may have been and was missed."""
        is_missed = job.created_at < self._missed_before and self._loop.time() < self._missed_until_s
        return is_missed or job.id in self._heard

    def check(self, held: InFlightJob) -> None:
        """Stop a job if its record asks for that."""
        self._tasks.start(self._check(held), name="cancel a job")

    async def _check(self, held: InFlightJob) -> None:
        """Read the record, and stop the job if its owner has asked for that. Idempotent."""
        if held.is_cancelled:
            return
        found = await self._records.read(held.job.id)
        if found is None or self._deliveries.in_flight.get(held.job.id) is not held:
            return
        record, revision, _ = found
        if revision < held.revision or not (record.state.is_terminal or record.cancel_requested):
            return  # read before this worker's last write, or no cancel is requested
        held.cancelled_s = now_s = self._loop.time()
        if not (self._dispatcher.remove(held, now_s) or self._deliveries.undelay(held)):
            held.is_cancelled = True
            if held.record is not None:  # else the claim is in flight and its commit finds out
                held.record, held.revision = record, revision
            batch_run = self._dispatcher.run_of(held)
            if batch_run is not None:
                await self._executor.stop(batch_run, held, grace_s=self._grace_s)
            return
        held.record, held.revision = record, revision
        if record.state.is_terminal:
            self._deliveries.apply([Done(held)])
        else:  # it waits for another attempt: no run has to be stopped
            held.is_cancelled = True
            self._deliveries.apply([await self._committer.cancel(held)])
