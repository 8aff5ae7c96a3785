"""The way of jobs through one session: delivered, queued, run in batches, committed, their deliveries answered.

What arrives is queued; one short function starts batches while there are slots; a batch is one task: it is run, then
committed, and what that returns is done with its deliveries. While one batch computes, the next is with the runner and
earlier ones commit. While the lease is at risk no job is asked for and none begins.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Delivery, Message
from signalbox.jobs import joblog
from signalbox.jobs.commits import persist
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import LeaseLost, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire.messages import Model, Newer
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.host import gauges
from workers.queue import prefetch
from workers.queue.intake import JobIntake
from workers.residency.versions import ResidentVersions
from workers.serving.batchrun import BatchRun
from workers.serving.committing import NEWER_DELAY_S, Committer, Disposition, Done
from workers.serving.deliveries import Deliveries
from workers.serving.dispatch import Dispatcher
from workers.serving.execution import Executor
from workers.serving.inflight import InFlightJob
from workers.settings import WorkerSettings
from workers.statistics.worker import Statistics

AGAIN_S: Final = 0.5
"""Until a job is offered again whose runner was lost while the lease was not."""
UNFORESEEN_DELAY_S: Final = 1.0
"""The same after an error that was not foreseen."""


class Pipeline:
    """The jobs of one session. tasks: the session's, which ends them."""

    def __init__(
        self,
        *,
        bus: Bus,
        records: Records,
        leased: LeasedDevice,
        lease: LeaseHandle,
        residency: ResidentVersions,
        executor: Executor,
        committer: Committer,
        statistics: Statistics,
        tasks: Background,
        settings: WorkerSettings,
        clock: Callable[[], float],
    ) -> None:
        """clock: UTC seconds."""
        self._records = records
        self._lease = lease
        self._residency = residency
        self._executor = executor
        self._committer = committer
        self._statistics = statistics
        self._tasks = tasks
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(statistics)
        self._deliveries = Deliveries(leased, tasks, ack_wait_s=settings.ack_wait_s)
        self._intake = JobIntake(bus, self._receive, self._credits_changed)
        self.in_flight = self._deliveries.in_flight
        self._served: Mapping[str, Model] = {}
        """Models whose jobs are taken: assigned to this worker, neither paused nor disabled."""
        self._short_of_room: set[str] = set()
        """Models of which fewer jobs are asked for than usual, as those in flight are large."""
        self._is_woken = False
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None

    async def follow(self, assigned: Mapping[str, Model]) -> None:
        """Take jobs of these models and no others from now on."""
        self._served = assigned
        self._deliveries.retry(self._dispatcher.follow(assigned))
        await persist(partial(self._intake.follow, assigned))
        self._wake_for(assigned)

    def wake(self) -> None:
        """Look soon whether batches may start."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._dispatch)

    def reconnected(self) -> None:
        """Look for what was lost with the connection: pull requests, and requests to cancel."""
        self._intake.reconnected()
        for held in self.in_flight:
            if held.record is not None:
                self.look_for_cancel(held)

    # ------------------------------------------------------------------------------ ending

    def stop_taking(self) -> None:
        """Begin nothing more."""
        self._is_closing = True
        if self._timer is not None:
            self._timer.cancel()

    async def close_intake(self) -> None:
        """Pull no more; what was on its way has been nak'ed when this returns."""
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await self._intake.close()
        except (TimeoutError, Unavailable):
            log.warning("intake.close_failed")

    def nak_waiting(self) -> None:
        """Give back the jobs that wait for a batch."""
        self._deliveries.retry(self._dispatcher.clear())

    def nak_all(self) -> None:
        """Give back every job in flight."""
        self._deliveries.retry(self.in_flight)

    # ------------------------------------------------------------------------------ arriving

    def _receive(self, model: str, delivery: Delivery) -> None:
        now_s = self._loop.time()
        try:
            job = delivery.job
        except Newer:  # a newer worker understands it; this one must not remove it
            gauges.NEWER.labels(model).inc()
            self._tasks.start(delivery.nak(NEWER_DELAY_S), name="nak a newer job")
            return
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            log.error("intake.not_a_job", subject=delivery.subject, why=str(error))
            self._tasks.start(delivery.term("not a job"), name="drop what is no job")
            return
        known = self.in_flight.get(job.id)
        if known is not None:
            known.delivered_again(delivery, now_s)  # one run is enough
            return
        held = InFlightJob(delivery, job, now_s=now_s)
        held.phases["pulled"] = held.ms(self._clock())
        joblog.step("job.pulled", job, delivery=delivery.attempt)
        self._dispatcher.credits_changed(model)
        if self._is_closing or model not in self._served:
            self._tasks.start(delivery.nak(0), name="nak a job")
            return
        self._deliveries.take(held)
        if delivery.attempt > 1:
            gauges.REDELIVERED.labels(model).inc()
            self._tasks.start(self._examine(held), name="examine a redelivered job")
        else:
            self._enqueue(held)

    def _enqueue(self, held: InFlightJob) -> None:
        model = self._served.get(held.job.model)
        if model is None:  # since it was looked at
            self._deliveries.retry([held])
            return
        self._dispatcher.add(held, model.batching)
        self.wake()

    async def _examine(self, held: InFlightJob) -> None:
        """Run a redelivered job, or do with it what became of its earlier attempts."""
        try:
            disposition = await self._committer.examine(held)
        except Exception:
            # Without this it stays in flight and never runs. The edge of the task logs and counts the error.
            self._deliveries.retry([held], UNFORESEEN_DELAY_S)
            raise
        if disposition is not None:
            self._deliveries.apply([disposition])
        elif self._is_closing:
            self._deliveries.retry([held])
        else:
            self._enqueue(held)

    # ------------------------------------------------------------------------------ leaving

    def _credits_changed(self, model: str) -> None:
        self._dispatcher.credits_changed(model)
        self.wake()

    def _wake_for(self, models: Iterable[str]) -> None:
        """Ask anew for jobs of these models, whatever was known of them."""
        self._dispatcher.credits_changed(*models)
        self.wake()

    def _dispatch(self) -> None:
        """Start the batches that may start, and ask for more jobs."""
        self._is_woken = False
        if self._is_closing or self._lease.is_at_risk:
            return
        if self._short_of_room:
            self._dispatcher.credits_changed(*self._short_of_room)
            self._short_of_room.clear()
        now_s = self._loop.time()
        while (batch_run := self._dispatcher.next(now_s)) is not None:
            self._tasks.start(self._run_batch(batch_run), name="run a batch")
        due_in_s = self._dispatcher.due_in_s(now_s)
        if due_in_s is not None:
            self._arm(due_in_s)
        for model in self._dispatcher.changed():
            self._ask(model)

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self.wake)

    def _ask(self, model: str) -> None:
        found = self._served.get(model)
        if found is None or not self._residency.may_serve(found):
            return
        room_bytes = max(1, self._settings.in_hand_bytes - self.in_flight.bytes)
        mean_bytes = self._statistics.mean_bytes(model)
        wanted = prefetch.depth(
            found.batching.max_size,
            self._statistics.run_s(model),
            is_running=self._dispatcher.is_running(model),
            mean_bytes=mean_bytes,
            room_bytes=room_bytes,
        )
        if (wanted + 1) * mean_bytes > room_bytes:
            self._short_of_room.add(model)
        self._intake.ask(model, wanted, self._dispatcher.waiting(model))

    async def _run_batch(self, batch_run: BatchRun) -> None:
        """Run one batch from its start to its acknowledgements. The edge of a task: no error escapes."""
        try:
            if expired := await self._committer.expire(batch_run):
                self._deliveries.apply(expired)
            if batch_run.jobs:
                self._deliveries.apply(await self._run_and_commit(batch_run))
        except LeaseLost:
            delay_s = 0.0 if self._lease.lost.is_set() or self._is_closing else AGAIN_S
            self._deliveries.retry(batch_run.jobs, delay_s)
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("session.batch_failed", model=batch_run.model)
            self._deliveries.retry(batch_run.jobs, UNFORESEEN_DELAY_S)
        finally:
            self._end_run(batch_run)

    async def _run_and_commit(self, batch_run: BatchRun) -> list[Disposition]:
        claims = self._committer.claim(batch_run)
        try:
            outcomes = await self._executor.run(batch_run)
            self._end_run(batch_run)
            return await self._committer.commit(batch_run, outcomes, claims)
        finally:
            await claims.close()

    def _end_run(self, batch_run: BatchRun) -> None:
        if self._dispatcher.end(batch_run):
            self.wake()

    # ------------------------------------------------------------------------------ cancelling

    def on_cancel(self, message: Message) -> None:
        """A caller asks for the end of a job."""
        held = self.in_flight.get(message.subject.rpartition(".")[2])
        if held is not None and not self._is_closing:
            self.look_for_cancel(held)

    def look_for_cancel(self, held: InFlightJob) -> None:
        """Stop a job if its record asks for that."""
        self._tasks.start(self._cancel(held), name="cancel a job")

    async def _cancel(self, held: InFlightJob) -> None:
        """Read the record, and stop the job if its owner has asked for that. Idempotent."""
        if held.is_cancelled:
            return
        found = await self._records.read(held.job.id)
        if found is None or self.in_flight.get(held.job.id) is not held:
            return
        record, revision, _ = found
        if revision < held.revision or not (record.state.is_terminal or record.cancel_requested):
            return  # read before this worker's last write, or no cancel is requested
        held.cancelled_s = self._loop.time()
        if not self._dispatcher.remove(held):
            held.is_cancelled = True
            if held.record is not None:  # else the claim is in flight and its commit finds out
                held.record, held.revision = record, revision
            batch_run = self._dispatcher.run_of(held)
            if batch_run is not None:
                await self._executor.stop(batch_run, held, grace_s=self._settings.cancel_grace_s)
            return
        held.record, held.revision = record, revision
        if record.state.is_terminal:
            self._deliveries.apply([Done(held)])
        else:  # it waits for another attempt: no run has to be stopped
            held.is_cancelled = True
            self._deliveries.apply([await self._committer.cancel(held)])
