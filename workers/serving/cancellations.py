"""Requests to cancel jobs in flight: learned of, or found in their records."""

import asyncio

from signalbox.bus.client import Message
from signalbox.jobs.records import Records
from signalbox.program.tasks import Background
from workers.serving.committing import Committer, Done
from workers.serving.deliveries import Deliveries
from workers.serving.dispatch import Dispatcher
from workers.serving.execution import Executor
from workers.serving.inflight import InFlightJob


class Cancellations:
    """Ends jobs of one session as their owners ask. tasks: the session's. grace_s: a run may go on so long."""

    def __init__(
        self,
        *,
        records: Records,
        deliveries: Deliveries,
        dispatcher: Dispatcher,
        executor: Executor,
        committer: Committer,
        tasks: Background,
        grace_s: float,
    ) -> None:
        self._records = records
        self._deliveries = deliveries
        self._dispatcher = dispatcher
        self._executor = executor
        self._committer = committer
        self._tasks = tasks
        self._grace_s = grace_s
        self._loop = asyncio.get_running_loop()

    def receive(self, message: Message) -> None:
        """A caller asks for the end of a job."""
        held = self._deliveries.in_flight.get(message.subject.rpartition(".")[2])
        if held is not None:
            self.check(held)

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
