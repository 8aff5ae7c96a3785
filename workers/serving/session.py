"""Serves jobs for as long as this worker holds the lease: deliveries in, batches out.

What arrives is queued; one short function starts batches while there are slots; a batch is one task: it is run, then
committed, and what that returns is done with its deliveries. While one batch computes, the next is with the runner and
earlier ones commit. The session ends
when the lease is lost (everything is abandoned), when another worker's turn has come, or on a drain
(both: what runs ends, what waits is nak'ed). While the lease is at risk no job is asked for and none
begins.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Delivery, Message
from signalbox.jobs import joblog
from signalbox.jobs.commits import Commits, persist
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import LeaseLost, RunnerCrashed, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire.messages import Model, Newer
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.queue import prefetch
from workers.queue.intake import JobIntake
from workers.queue.orphans import OrphanedDeliveries
from workers.serving.activity import Activity
from workers.serving.batchrun import BatchRun
from workers.serving.committing import NEWER_DELAY_S, Committer, Disposition, Done
from workers.serving.deliveries import Deliveries
from workers.serving.dispatch import Dispatcher
from workers.serving.execution import Executor
from workers.serving.inflight import InFlightJob
from workers.serving.modelcache import ModelCache
from workers.serving.residency import ResidentVersions
from workers.serving.statistics import Statistics
from workers.settings import WorkerSettings

AGAIN_S: Final = 0.5
"""Until a job is offered again whose runner was lost while the lease was not."""
UNFORESEEN_DELAY_S: Final = 1.0
"""The same after an error that was not foreseen."""
KEEP_S: Final = 1.0
"""Seconds between looks for in-flight jobs that the server must hear of."""
RENEWED: Final = 3
"""Claims are written again so often in the least time that records are kept."""


class Session:
    """Serves the models of this worker for as long as one lease is held."""

    def __init__(
        self,
        *,
        bus: Bus,
        records: Records,
        leased: LeasedDevice,
        lease: LeaseHandle,
        fleet: FleetTables,
        cache: ModelCache,
        statistics: Statistics,
        settings: WorkerSettings,
        worker: str,
        clock: Callable[[], float],
        on_change: Callable[[], None],
    ) -> None:
        """clock: UTC seconds, the same for all programs."""
        self.activity = Activity(statistics, clock, on_change)
        self._bus = bus
        self._records = records
        self._leased = leased
        self._lease = lease
        self._fleet = fleet
        self._statistics = statistics
        self._settings = settings
        self._clock = clock
        self._on_change = on_change
        self._dispatcher = Dispatcher(statistics)
        self._served: Mapping[str, Model] = {}
        """Models whose jobs are taken: assigned to this worker, neither paused nor disabled."""
        self._tasks = Background()
        self._deliveries = Deliveries(bus, leased, self._tasks, ack_wait_s=settings.ack_wait_s)
        self.in_flight = self._deliveries.in_flight
        self._intake = JobIntake(bus, self._receive, self._credits_changed)
        self._commits = Commits(
            bus,
            records,
            worker=worker,
            gpu=lease.gpu,
            token=lease.token,
            inline_limit_bytes=settings.inline_limit_bytes,
            clock=clock,
            slow_job_s=settings.slow_job_s,
            trusted_s=settings.ack_wait_s,
        )
        self._residency = ResidentVersions(
            lease.runner,
            cache,
            fleet.find,
            self.activity,
            on_change,
            is_spare=fleet.is_spare,
            may_load=lambda: not lease.is_shared,
            sizes=statistics.sizes,
            retire_s=settings.retire_s,
        )
        self._executor = Executor(
            bus=bus,
            runner=lease.runner,
            residency=self._residency,
            fleet=fleet,
            statistics=statistics,
            activity=self.activity,
            clock=clock,
            max_result_bytes=settings.max_result_bytes,
        )
        self._committer = Committer(self._commits, fleet, statistics, clock=clock)
        self._short_of_room: set[str] = set()
        """Models of which fewer jobs are asked for than usual, as those in flight are large."""
        self._is_woken = False
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._catalog = asyncio.Event()
        self._orphans = OrphanedDeliveries(
            bus,
            records,
            fleet,
            gpu=lease.gpu,
            token=lease.token,
            is_in_flight=lambda job_id: self.in_flight.get(job_id) is not None,
            spawn=lambda look: self._tasks.start(look, name="look for orphaned deliveries"),
        )
        self._loop = asyncio.get_running_loop()
        lease.on_change = self._lease_changed

    # ------------------------------------------------------------------------------ life

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until the lease is lost, must be yielded, or ``stop`` is set; then end in order."""
        cancels = await persist(lambda: self._bus.subscribe("cancel.*", self._on_cancel))
        self._bus.on_reconnect(self._reconnected)
        background = [
            asyncio.create_task(self._follow(), name="follow catalog"),
            asyncio.create_task(self._keep(), name="keep deliveries"),
        ]
        try:
            await self._until_over(stop, background)
        finally:
            self._bus.forget_reconnect(self._reconnected)
            await cancels.close()
            for task in background:
                task.cancel()
            await asyncio.wait(background)
            await self._end()

    def catalog_changed(self) -> None:
        """Placement or a model's document has changed."""
        self._catalog.set()

    def _lease_changed(self) -> None:
        self._catalog.set()  # what could not be loaded may be loaded now
        self._wake()
        self._on_change()

    def _reconnected(self) -> None:
        """Look for deliveries that were lost with the connection, as for those of a dead holder."""
        self._intake.reconnected()
        self._orphans.forget()
        self._catalog.set()
        for held in self.in_flight:
            if held.record is not None:
                self._tasks.start(self._cancel(held), name="cancel a job")

    async def _until_over(self, stop: asyncio.Event, background: list[asyncio.Task[None]]) -> None:
        over = [
            asyncio.create_task(_happens(event), name=name)
            for name, event in (
                ("lease lost", self._lease.lost),
                ("yield asked", self._lease.yield_asked),
                ("stop", stop),
            )
        ]
        try:
            done, _ = await asyncio.wait([*over, *background], return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in over:
                task.cancel()
        for task in done:
            task.result()  # a background task ends only by an error, which ends the session

    async def _end(self) -> None:
        self._is_closing = True
        self._orphans.forget()
        if self._timer is not None:
            self._timer.cancel()
        if self._lease.lost.is_set():
            await self._abandon()
        else:
            await self._finish()
        await self._deliveries.close(self._settings.request_timeout_s)

    async def _finish(self) -> None:
        """Nak what has not started; let what runs end within its bound."""
        await self._close_intake()
        self._deliveries.retry(self._dispatcher.clear())
        if self._tasks:
            lost = asyncio.create_task(_happens(self._lease.lost), name="lease lost")
            ending = asyncio.create_task(self._tasks.finish(), name="running jobs end")
            await asyncio.wait([lost, ending], timeout=self._settings.drain_s, return_when=asyncio.FIRST_COMPLETED)
            for task in (lost, ending):
                task.cancel()
        if self._tasks:
            await self._cut_short()
        await self._flush()

    async def _cut_short(self) -> None:
        """Put what still runs back to the queue, without a strike: the bound of a drain has passed."""
        await self._tasks.cancel()
        if not self._lease.lost.is_set():
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await self._commits.give_up(self.in_flight)
            except (TimeoutError, SignalboxError):
                log.warning("session.requeue_failed", jobs=len(self.in_flight))  # ack_wait will do it
        await self._abandon()

    async def _abandon(self) -> None:
        """End all work, as the lease is lost or time is up: no job may be started or committed any more."""
        await self._tasks.cancel()
        await self._close_intake()
        if self.in_flight:
            log.warning("session.jobs_abandoned", jobs=len(self.in_flight), token=self._lease.token)
        self._deliveries.retry(self.in_flight)
        await asyncio.wait_for(self._tasks.finish(), self._settings.request_timeout_s * 2)

    async def _close_intake(self) -> None:
        try:
            async with asyncio.timeout(self._settings.request_timeout_s):
                await self._intake.close()
        except (TimeoutError, Unavailable):
            log.warning("intake.close_failed")

    async def _flush(self) -> None:
        try:
            await self._bus.flush()
        except Unavailable:
            log.warning("session.flush_failed")

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
        self._wake()

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
        self._wake()

    def _wake_for(self, models: Iterable[str]) -> None:
        """Ask anew for jobs of these models, whatever was known of them."""
        self._dispatcher.credits_changed(*models)
        self._wake()

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._dispatch)

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
        self._timer = self._loop.call_later(delay_s, self._wake)

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
            self._wake()

    # ------------------------------------------------------------------------------ background

    async def _follow(self) -> None:
        """Pull and load what is assigned to this worker, now and after each change."""
        while True:
            self._catalog.clear()
            assigned = self._fleet.assigned()
            self._served = assigned
            self._deliveries.retry(self._dispatcher.follow(assigned))
            await persist(partial(self._intake.follow, assigned))
            self._wake_for(assigned)
            await self._orphans.follow(assigned)
            for name in self._fleet.published():
                self._residency.forgive(name)
            await self._warm([(m.name, v) for m in assigned.values() for v in self._fleet.targets(m)])
            with suppress(TimeoutError):
                async with asyncio.timeout(self._residency.due_in_s()):
                    await self._catalog.wait()

    async def _warm(self, wanted: list[tuple[str, int]]) -> None:
        try:
            await self._executor.admitted()
            await self._residency.keep_warm(wanted, is_ahead=self._settings.is_warm)
        except LeaseLost as error:
            log.info("residency.load_ahead_failed", why=str(error))
            if not self._lease.runner.entered.is_set():
                self._catalog.set()  # the next try waits for the runner
        except RunnerCrashed as error:
            log.warning("residency.load_ahead_failed", why=str(error))
            await self._executor.recover()
            self._catalog.set()  # the others that died with it
        except SignalboxError as error:  # the next job of that model meets the error and is judged by it
            log.warning("residency.load_ahead_failed", why=str(error))

    async def _keep(self) -> None:
        """Tell the server regularly which jobs are worked on, and renew records of long runs before they may go."""
        while True:
            await asyncio.sleep(KEEP_S)
            for held in self.in_flight.touch(self._loop.time(), self._settings.in_progress_s):
                if held.record is not None:  # a cancel request may have been lost on its way
                    self._tasks.start(self._cancel(held), name="cancel a job")
            for held in self._commits.old_claims(self.in_flight, self._settings.results_kept_s / RENEWED):
                self._tasks.start(self._commits.renew(held), name="renew a claim")
            gauges.IN_FLIGHT.set(len(self.in_flight))
            gauges.LEASE_SLACK.set(self._leased.lease_slack_s)

    def _on_cancel(self, message: Message) -> None:
        held = self.in_flight.get(message.subject.rpartition(".")[2])
        if held is not None and not self._is_closing:
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


async def _happens(event: asyncio.Event) -> None:
    await event.wait()
