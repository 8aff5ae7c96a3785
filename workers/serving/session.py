"""Serves jobs for as long as this worker holds the lease: deliveries in, batches out.

Callbacks queue what arrives; one short function starts batches while there are slots; a batch is one
task. While one batch computes, the next is with the runner and earlier ones commit. The session ends
when the lease is lost (everything is abandoned), when another worker's turn has come, or on a drain
(both: what runs ends, what waits is nak'ed). While the lease is at risk no job is asked for and none
begins.
"""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

from signalbox.bus.client import Bus, Delivery, Message
from signalbox.jobs import joblog
from signalbox.jobs.changes import WriteOutcome
from signalbox.jobs.commits import Commits, persist
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import LeaseLost, NewerVersion, RunnerCrashed, SignalboxError, Unavailable
from signalbox.wire.messages import Model, Newer, State
from signalbox.wire.names import PRIORITIES
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.queue import prefetch
from workers.queue.intake import JobIntake
from workers.queue.orphans import OrphanedDeliveries
from workers.queue.sweep import Sweep
from workers.serving.activity import Activity
from workers.serving.batches import BatchQueue
from workers.serving.execution import BatchRun, Execution
from workers.serving.inflight import InFlightJob, InFlightJobs
from workers.serving.modelcache import ModelCache
from workers.serving.residency import ResidentVersions
from workers.serving.statistics import Statistics
from workers.settings import WorkerSettings

NEWER_DELAY_S: Final = 2.0
"""Until a job that only a newer worker understands is offered again."""
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
        self.in_flight = InFlightJobs()
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
        self._queues: dict[str, BatchQueue[InFlightJob]] = {}
        self._served: frozenset[str] = frozenset()
        """Models whose jobs are taken: assigned to this worker, neither paused nor disabled."""
        self._tasks: set[asyncio.Task[None]] = set()
        self._intake = JobIntake(bus, self._receive, self._wake)
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
        self._execution = Execution(
            bus=bus,
            runner=lease.runner,
            residency=self._residency,
            commits=self._commits,
            fleet=fleet,
            statistics=statistics,
            activity=self.activity,
            ack=self._ack,
            drop=self._drop,
            nak=self._nak,
            free=self._wake,
            clock=clock,
            max_result_bytes=settings.max_result_bytes,
        )
        self._sweep = Sweep(bus)
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
            spawn=self._spawn,
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
                self._spawn(self._cancel(held))

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
        await self._sweep.close(self._settings.request_timeout_s)

    async def _finish(self) -> None:
        """Nak what has not started; let what runs end within its bound."""
        await self._close_intake()
        for queue in self._queues.values():
            for held in queue.clear():
                self._nak(held)
        if self._tasks:
            lost = asyncio.create_task(_happens(self._lease.lost), name="lease lost")
            ending = asyncio.create_task(self._tasks_end(), name="running jobs end")
            await asyncio.wait([lost, ending], timeout=self._settings.drain_s, return_when=asyncio.FIRST_COMPLETED)
            for task in (lost, ending):
                task.cancel()
        if self._tasks:
            await self._cut_short()
        await self._flush()

    async def _cut_short(self) -> None:
        """Put what still runs back to the queue, without a strike: the bound of a drain has passed."""
        await self._end_tasks()
        if not self._lease.lost.is_set():
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await self._commits.give_up(self.in_flight)
            except (TimeoutError, SignalboxError):
                log.warning("session.requeue_failed", jobs=len(self.in_flight))  # ack_wait will do it
        await self._abandon()

    async def _tasks_end(self) -> None:
        while self._tasks:
            await asyncio.wait(list(self._tasks))

    async def _abandon(self) -> None:
        """End all work, as the lease is lost or time is up: no job may be started or committed any more."""
        await self._end_tasks()
        await self._close_intake()
        if self.in_flight:
            log.warning("session.jobs_abandoned", jobs=len(self.in_flight), token=self._lease.token)
        for held in self.in_flight:
            self._nak(held)
        await asyncio.wait_for(self._tasks_end(), self._settings.request_timeout_s * 2)

    async def _end_tasks(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        await self._tasks_end()

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
            self._spawn(delivery.nak(NEWER_DELAY_S))
            return
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            log.error("intake.not_a_job", subject=delivery.subject, why=str(error))
            self._spawn(delivery.term("not a job"))
            return
        known = self.in_flight.get(job.id)
        if known is not None:
            known.delivered_again(delivery, now_s)  # one run is enough
            return
        held = InFlightJob(delivery, job, now_s=now_s)
        held.phases["pulled"] = held.ms(self._clock())
        joblog.step("job.pulled", job, delivery=delivery.attempt)
        if self._is_closing or model not in self._served:
            self._spawn(delivery.nak(0))
            return
        if not self.in_flight:
            self._leased.busy()
        self.in_flight.take(held)
        if delivery.attempt > 1:
            gauges.REDELIVERED.labels(model).inc()
            self._spawn(self._examine(held))
        else:
            self._enqueue(model, held)

    def _enqueue(self, model: str, held: InFlightJob) -> None:
        if model not in self._served:  # since it was looked at
            self._nak(held)
            return
        queue = self._queues.get(model)
        if queue is None:
            found = self._fleet.find(model)
            queue = self._queues[model] = BatchQueue(
                found.batching if found else Model(name=model).batching,
                row_limit=lambda job: self._statistics.batch_limits.rows((model, job.version, job.batch_key)),
            )
        queue.add(held)
        self._wake()

    async def _examine(self, held: InFlightJob) -> None:
        """Decide about a redelivered job by what became of its earlier attempts."""
        try:
            if not await self._commits.refresh(held):
                self._drop(held)
                return
            if held.record is not None and held.record.state is State.RUNNING:
                gauges.VANISHED.labels(held.job.model).inc()
            if held.is_cancelled:
                change = self._commits.cancellation(held)
                await self._commits.apply([change])
                if change.outcome is WriteOutcome.LOST:
                    self._drop(held)
                    return
        except NewerVersion:
            gauges.NEWER.labels(held.job.model).inc()
            self._nak(held, NEWER_DELAY_S)
            return
        except SignalboxError as error:
            log.warning("session.redelivery_check_failed", job=held.job.id, why=str(error))
            self._nak(held, 1.0)
            return
        except Exception:
            # Without this it stays in flight and never runs. The edge of the task logs and counts the error.
            self._nak(held, 1.0)
            raise
        if held.record is not None and held.record.state.is_terminal:
            gauges.SKIPPED.labels(held.job.model).inc()
            self._ack(held)
        elif self._is_closing:
            self._nak(held)
        else:
            self._enqueue(held.job.model, held)

    # ------------------------------------------------------------------------------ leaving

    def _wake(self) -> None:
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._dispatch)

    def _dispatch(self) -> None:
        """Start the batches that may start, and ask for more jobs."""
        self._is_woken = False
        if self._is_closing or self._lease.is_at_risk:
            return
        now_s = self._loop.time()
        while self._execution.has_slot and (queue := self._next_queue(now_s)) is not None:
            batch = queue.take(now_s)
            batch_run = self._execution.begin(batch)
            self._spawn(self._run_batch(batch_run))
        for model in self._intake.models:
            self._ask(model)

    def _next_queue(self, now_s: float) -> BatchQueue[InFlightJob] | None:
        """The queue whose batch leaves next: most important head first, then the oldest."""
        best: BatchQueue[InFlightJob] | None = None
        best_rank = (len(PRIORITIES), 0.0)
        soonest: float | None = None
        for queue in self._queues.values():
            due_s = queue.due_s(now_s)
            if due_s is None:
                continue
            if due_s > 0:
                soonest = due_s if soonest is None else min(soonest, due_s)
                continue
            head = queue.head
            if head is not None:
                rank = (PRIORITIES.index(head.job.priority), head.arrived_s)
                if rank < best_rank:
                    best, best_rank = queue, rank
        if best is None and soonest is not None:
            self._arm(soonest)
        return best

    def _arm(self, delay_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_later(delay_s, self._wake)

    def _ask(self, model: str) -> None:
        found = self._fleet.find(model)
        if found is None or not self._residency.may_serve(found):
            return
        queue = self._queues.get(model)
        waiting = {p: queue.count(p) if queue is not None else 0 for p in PRIORITIES}
        wanted = prefetch.depth(
            found.batching.max_size,
            self._statistics.run_s(model),
            is_running=self._execution.is_running(model),
            mean_bytes=self._statistics.mean_bytes(model),
            room_bytes=max(1, self._settings.in_hand_bytes - self.in_flight.bytes),
        )
        self._intake.ask(model, wanted, waiting)

    async def _run_batch(self, batch_run: BatchRun) -> None:
        """Run one batch from its start to its acknowledgements. The edge of a task: no error escapes."""
        try:
            await self._execution.run_batch(batch_run)
        except LeaseLost:
            delay_s = 0.0 if self._lease.lost.is_set() or self._is_closing else 0.5
            for held in batch_run.jobs:
                self._nak(held, delay_s)
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("session.batch_failed", model=batch_run.model)
            for held in batch_run.jobs:
                self._nak(held, 1.0)
        finally:
            self._execution.end(batch_run)

    def _ack(self, held: InFlightJob) -> None:
        """Acknowledge a job whose durable end is known, off the critical path; never without one (S8)."""
        if self.in_flight.get(held.job.id) is held:
            self._remove(held)
            if held.record is None or not held.record.state.is_terminal:
                gauges.UNENDED.inc()
                log.error("session.ack_without_end", job=held.job.id)
                return
            if held.cancelled_s:
                gauges.CANCEL_SECONDS.observe(self._loop.time() - held.cancelled_s)
            held.delivery.ack_soon()
            joblog.step("job.acked", held.job)
            self._sweep.note(held.job, held.delivery)

    def _drop(self, held: InFlightJob) -> None:
        """Forget a job that another attempt has: its delivery is that one's to acknowledge."""
        if self.in_flight.get(held.job.id) is held:
            self._remove(held)

    def _nak(self, held: InFlightJob, delay_s: float = 0.0) -> None:
        """Give a job back, so that another worker, or this one later, takes it.

        Not after so long that the queue may have given it to another worker already.
        """
        if self.in_flight.get(held.job.id) is not held:
            return
        self._remove(held)
        joblog.step("job.nak", held.job, delay_s=delay_s)
        if self._loop.time() - held.touched_s < self._settings.ack_wait_s / 2:
            self._spawn(held.delivery.nak(delay_s))

    def _remove(self, held: InFlightJob) -> None:
        self.in_flight.drop(held)
        if not self.in_flight:
            self._leased.idle()

    # ------------------------------------------------------------------------------ background

    async def _follow(self) -> None:
        """Pull and load what is assigned to this worker, now and after each change."""
        while True:
            self._catalog.clear()
            assigned = self._fleet.assigned()
            self._served = frozenset(assigned)
            for name, queue in self._queues.items():
                if name in assigned:
                    queue.batching = assigned[name].batching
                else:
                    for held in queue.clear():
                        self._nak(held)
            for name in self._queues.keys() - assigned.keys():
                del self._queues[name]
            await persist(partial(self._intake.follow, assigned))
            self._wake()
            await self._orphans.follow(assigned)
            for name in self._fleet.published():
                self._residency.forgive(name)
            await self._warm([(m.name, v) for m in assigned.values() for v in self._fleet.targets(m)])
            with suppress(TimeoutError):
                async with asyncio.timeout(self._residency.due_in_s()):
                    await self._catalog.wait()

    async def _warm(self, wanted: list[tuple[str, int]]) -> None:
        try:
            await self._execution.admitted()
            await self._residency.keep_warm(wanted, is_ahead=self._settings.is_warm)
        except LeaseLost as error:
            log.info("residency.load_ahead_failed", why=str(error))
            if not self._lease.runner.entered.is_set():
                self._catalog.set()  # the next try waits for the runner
        except RunnerCrashed as error:
            log.warning("residency.load_ahead_failed", why=str(error))
            await self._execution.recover()
            self._catalog.set()  # the others that died with it
        except SignalboxError as error:  # the next job of that model meets the error and is judged by it
            log.warning("residency.load_ahead_failed", why=str(error))

    async def _keep(self) -> None:
        """Tell the server regularly which jobs are worked on, and renew records of long runs before they may go."""
        while True:
            await asyncio.sleep(KEEP_S)
            for held in self.in_flight.touch(self._loop.time(), self._settings.in_progress_s):
                if held.record is not None:  # a cancel request may have been lost on its way
                    self._spawn(self._cancel(held))
            for held in self._commits.old_claims(self.in_flight, self._settings.results_kept_s / RENEWED):
                self._spawn(self._commits.renew(held))
            gauges.IN_FLIGHT.set(len(self.in_flight))
            gauges.LEASE_SLACK.set(self._leased.lease_slack_s)

    def _on_cancel(self, message: Message) -> None:
        held = self.in_flight.get(message.subject.rpartition(".")[2])
        if held is not None and not self._is_closing:
            self._spawn(self._cancel(held))

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
        queue = self._queues.get(held.job.model)
        if queue is None or queue.remove(held.job.id) is None:
            await self._execution.cancel(held, record, revision, grace_s=self._settings.cancel_grace_s)
        elif record.state.is_terminal:
            held.record, held.revision = record, revision
            self._ack(held)
        else:  # it waits for another attempt: no run has to be stopped
            held.record, held.revision, held.is_cancelled = record, revision, True
            change = self._commits.cancellation(held)
            await self._commits.apply([change])
            self._drop(held) if change.outcome is WriteOutcome.LOST else self._ack(held)

    # ------------------------------------------------------------------------------ tasks

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run work in a task that is waited for when the session ends."""
        task = asyncio.create_task(self._guarded(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _guarded(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except SignalboxError as error:
            log.warning("session.work_failed", why=str(error), code=error.code)
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("session.work_failed")


async def _happens(event: asyncio.Event) -> None:
    await event.wait()
