"""The way of jobs through one session: delivered, examined, queued, run in batches, committed.

What arrives is queued, after its record was read where it may have been delivered before; one short function starts
batches while there are slots, and beside them the load of a version that jobs wait for; a batch is one task: it is run,
then committed, and what that returns is done with its deliveries. While one batch computes, the next is with the runner
and earlier ones commit. While the lease is at risk no job is asked for and none begins.
"""

import asyncio
import math
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Final

import msgspec

from signalbox.bus.client import Bus, Delivery
from signalbox.jobs import joblog
from signalbox.jobs.commits import persist
from signalbox.jobs.deadletters import keep_unreadable
from signalbox.jobs.message import remove_below
from signalbox.jobs.records import Records
from signalbox.jobs.times import BATCH, FETCH, LEASE, QUEUE, Span, split_stages
from signalbox.program import log
from signalbox.program.errors import LeaseLost, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.messages import Newer
from signalbox.wire.modeldocs import Model
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.diskcache.place import LocalFiles
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.queue.intake import JobIntake
from workers.residency.cache import Key
from workers.residency.versions import ResidentVersions
from workers.serving.batchrun import BatchRun
from workers.serving.cancellations import Cancellations
from workers.serving.committing import NEWER_DELAY_S, Committer, Disposition, Retry
from workers.serving.deliveries import Deliveries
from workers.serving.dispatch import Dispatcher
from workers.serving.execution import Executor
from workers.serving.inflight import InFlightJob
from workers.serving.supply import Supply
from workers.serving.unexamined import UnexaminedJobs
from workers.settings import WorkerSettings
from workers.statistics.worker import Statistics

MAX_EXAMINED: Final = 1_000
"""Records read at once."""
AGAIN_S: Final = 0.5
"""Until a job is tried again whose runner was lost while the lease was not."""
UNFORESEEN_DELAY_S: Final = 1.0
"""The same after an error that was not foreseen."""
FETCH_AGAIN_S: Final = 2.0
"""Until a job is taken up whose version is being fetched, unless its files come before."""


class Pipeline:
    """The jobs of one session. tasks: the session's, which ends them."""

    def __init__(
        self,
        *,
        bus: Bus,
        records: Records,
        leased: LeasedDevice,
        lease: LeaseHandle,
        fleet: FleetTables,
        residency: ResidentVersions,
        files: LocalFiles,
        executor: Executor,
        committer: Committer,
        statistics: Statistics,
        tasks: Background,
        settings: WorkerSettings,
        clock: Callable[[], float],
        wanted_at: float,
    ) -> None:
        """clock: UTC seconds. wanted_at: when this worker began to wait for the lease, on that clock."""
        self._bus = bus
        self._lease = lease
        self._residency = residency
        self._files = files
        self._executor = executor
        self._committer = committer
        self._tasks = tasks
        self._loads = Background()
        self._clock = clock
        self._fleet = fleet
        self._wanted_at, self._held_since = wanted_at, clock()
        """Between them a job that is placed on no other device that is held has waited for the lease."""
        self._loop = asyncio.get_running_loop()
        self._dispatcher = Dispatcher(statistics, is_ready=residency.is_ready, has_room=residency.has_room)
        residency.is_waited = lambda key: self._dispatcher.is_due(key[0])
        residency.on_change = self._version_changed
        self._deliveries = Deliveries(leased, delayed_bytes=settings.in_flight_bytes)
        self.intake = JobIntake(bus, fleet, self._receive, self._credits_changed)
        self.supply = Supply(self.intake, residency, self._deliveries, statistics, settings=settings)
        self.cancellations = Cancellations(
            records=records,
            deliveries=self._deliveries,
            dispatcher=self._dispatcher,
            executor=executor,
            committer=committer,
            tasks=tasks,
            clock=clock,
            grace_s=settings.cancel_grace_s,
        )
        self._unexamined = UnexaminedJobs()
        self.in_flight = self._deliveries.in_flight
        self._served: Mapping[str, Model] = {}
        """Models whose jobs are taken: assigned to this worker, neither paused nor disabled."""
        self._is_woken = False
        self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None

    async def follow(self, assigned: Mapping[str, Model]) -> None:
        """Take jobs of these models and no others from now on."""
        self._served = assigned
        self._deliveries.let_go(self._dispatcher.follow(assigned))
        await persist(partial(self.intake.follow, assigned))
        self._dispatcher.credits_changed(*self.intake.asking())
        self.wake()

    def wake(self) -> None:
        """Look soon whether batches may start."""
        if not self._is_woken:
            self._is_woken = True
            self._loop.call_soon(self._dispatch)

    def files_changed(self, model: str) -> None:
        """Files of a model have come, or cannot come: its jobs may be asked for, and begin."""
        self._deliveries.hasten(model)
        self._credits_changed(model)

    def reconnected(self) -> None:
        """Look for what was lost with the connection: deliveries, and requests to cancel."""
        self.cancellations.missed()
        self.intake.reconnected()
        for held in self.in_flight.values():
            if held.record is not None:
                self.cancellations.check(held)

    # ------------------------------------------------------------------------------ ending

    def stop_taking(self) -> None:
        """Begin nothing more."""
        self._is_closing = True
        self.supply.stop()
        if self._timer is not None:
            self._timer.cancel()

    async def let_go_waiting(self) -> None:
        """Leave the jobs that wait, for a batch or for another attempt, to the other workers."""
        await self._let_go([*self._dispatcher.clear(), *self._unexamined.clear(), *self._deliveries.delayed()])

    async def let_go_all(self) -> None:
        """Leave every job in flight to the other workers."""
        await self._let_go(self.in_flight.values())

    async def _let_go(self, jobs: Iterable[InFlightJob]) -> None:
        self._deliveries.let_go(jobs)
        await self._loads.cancel()  # nobody waits for them any more
        await self.supply.give_back(self._deliveries.unread(math.inf))

    # ------------------------------------------------------------------------------ arriving

    def _receive(self, model: str, delivery: Delivery, is_known: bool) -> None:
        """Take a delivery. is_known: the job may have been delivered before."""
        now_s = self._loop.time()
        self._dispatcher.credits_changed(model)
        try:
            job = delivery.job
        except Newer:  # a newer worker understands it; this one must not remove it
            gauges.NEWER.labels(model).inc()
            job_id = names.job_of(delivery.subject)
            log.warning("intake.newer", **joblog.only_id(job_id), model=model, again_in_s=NEWER_DELAY_S)
            self._deliveries.read_anew(model, NEWER_DELAY_S)
            self.wake()
            return
        except (KeyError, ValueError, msgspec.MsgspecError) as error:
            keep = partial(keep_unreadable, self._bus, delivery, str(error))
            self._tasks.start(persist(keep), name="keep what is no job")
            return
        if self.in_flight.get(job.id) is not None:
            return  # one run is enough
        served = self._served.get(model)
        if self._is_closing or served is None:
            self._deliveries.read_anew(model)
            return
        held = InFlightJob(delivery, job, now_s=now_s)
        if job.created_at < self._held_since and self._fleet.is_alone(model):
            held.stages += (LEASE, max(job.created_at, self._wanted_at)), (QUEUE, self._held_since)
        if job.created_at < self._files.fetched_until:
            self._note_fetch(held)
        held.stages.append((BATCH, self._clock()))
        if log.is_debug:
            joblog.step("job.pulled", job, is_known=is_known)
        self._deliveries.take(held)
        if is_known:
            gauges.REDELIVERED.labels(model).inc()
        if job.is_raised:  # what is below would be new to its class, also after the end
            self._tasks.start(remove_below(self._bus, job, delivery.seq), name="remove what a job was raised from")
        may_have_record = job.not_before or job.is_raised or self.cancellations.may_concern(job)
        if is_known or may_have_record:
            self._examine_soon([held])
        else:
            self._dispatcher.add(held, served)
            self.wake()

    def _note_fetch(self, held: InFlightJob) -> None:
        """Write down how long a job that is pulled now has waited for the files of its version."""
        job = held.job
        if fetched := self._files.fetched((job.model, job.version)):
            stages = ((QUEUE, job.created_at), *held.stages)
            held.stages = split_stages(stages, {QUEUE, LEASE}, [Span(FETCH, *fetched)], self._clock())

    def _enqueue(self, held: InFlightJob) -> None:
        model = self._served.get(held.job.model)
        if model is None or self._is_closing:  # since it was looked at
            self._deliveries.let_go([held])
            return
        self._dispatcher.add(held, model)
        self.wake()

    def _examine_soon(self, jobs: Iterable[InFlightJob]) -> None:
        is_first = not self._unexamined
        self._unexamined.add(jobs)
        if is_first and self._unexamined:
            self._tasks.start(self._examine(), name="examine jobs")

    async def _examine(self) -> None:
        """Queue jobs that may run, and do with the others what became of their earlier attempts."""
        await asyncio.sleep(0)  # what else is read from the connection now is examined with it
        while jobs := self._unexamined.first(MAX_EXAMINED):
            try:
                examined = await self._committer.examine(jobs)
            except Exception:  # noqa: BLE001  without this they stay in flight and never run
                log.exception("session.examination_failed", jobs=len(jobs))
                examined = [Retry(held, UNFORESEEN_DELAY_S) for held in jobs]
            self._unexamined.drop(len(jobs))
            for held, disposition in zip(jobs, examined, strict=True):
                if disposition is not None:
                    self._apply([disposition])
                elif self.in_flight.get(held.job.id) is held:
                    self._enqueue(held)
            self.wake()

    # ------------------------------------------------------------------------------ leaving

    def _credits_changed(self, model: str) -> None:
        self._dispatcher.credits_changed(model)
        self.wake()

    def _version_changed(self, model: str) -> None:
        self._dispatcher.version_changed(model)
        self.wake()

    def _dispatch(self) -> None:
        """Start the batches and the load that may start, and ask for more jobs."""
        self._is_woken = False
        if self._is_closing:
            return
        now_s = self._loop.time()
        if not self._lease.may_begin:
            self._dispatcher.put_off(now_s)
            return
        if self.supply.short_of_room:
            self._dispatcher.credits_changed(*self.supply.take_short())
        if self._deliveries.next_s <= now_s:
            self._take_up(now_s)
        if self._residency.may_run:
            for batch_run in self._dispatcher.begin(now_s):
                self._tasks.start(self._run_batch(batch_run), name="run a batch")
            shadows = self._executor.shadows
            if shadows.waiting is not None and shadows.may_begin and self._dispatcher.is_idle:
                self._tasks.start(self._run_shadow(), name="run in shadow")
        if (key := self._dispatcher.load(now_s)) is not None:
            self._loads.start(self._load(key), name="load a version")
        due_s = min(self._dispatcher.due_s(), self._deliveries.next_s)
        if due_s < math.inf:
            self._arm(due_s)
        for model in self._dispatcher.changed():
            served = self._served.get(model)
            if served is None:
                self.supply.forget(model)
                continue
            is_running = self._dispatcher.is_running(model)
            self.supply.ask(served, self._dispatcher.waiting(model), self._unexamined, is_running=is_running)

    async def _run_shadow(self) -> None:
        await self._executor.shadows.run()
        self.wake()

    def _take_up(self, now_s: float) -> None:
        """Try again what is due, and read the queues anew of which jobs were let go."""
        again = self._deliveries.due(now_s)
        for held in again:
            self._note_fetch(held)
            held.stages.append((BATCH, self._clock()))
        self._examine_soon(again)
        for model in self._deliveries.unread(now_s):
            self.intake.redeliver(model)

    def _arm(self, at_s: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_at(at_s, self.wake)

    async def _load(self, key: Key) -> None:
        """Load a version that jobs wait for; where that fails, one batch of them ends so. The edge of a task."""
        failure: Exception | None = None
        try:
            if self._residency.is_at_hand(key):
                await self._executor.load(key, lambda: self._dispatcher.load_begins(self._loop.time()))
            else:
                failure = Unavailable("The files of the version are on their way.")
        except SignalboxError as error:
            failure = error
        except Exception as error:  # noqa: BLE001  the edge of a task
            log.exception("session.load_failed", model=key[0])
            failure = error
        spans = self._residency.load_spans(key)
        batch_run = self._dispatcher.loaded(self._loop.time(), self._clock(), spans, failure)
        self.wake()
        if batch_run is not None:
            self._tasks.start(self._run_batch(batch_run), name="end a batch")

    async def _run_batch(self, batch_run: BatchRun) -> None:
        """Run one batch from its start to its durable ends. The edge of a task: no error escapes."""
        long = self.supply.begin(batch_run)
        try:
            if expired := await self._committer.expire(batch_run):
                self._apply(expired)
            if not self._residency.is_at_hand(batch_run.key):
                self._try_again(batch_run.jobs, FETCH_AGAIN_S)  # unclaimed: a fetch may take long
            elif batch_run.jobs:
                self._apply(await self._run_and_commit(batch_run))
                if batch_run.sample is not None:
                    self._executor.shadows.waiting = batch_run.sample
                    self.wake()
        except LeaseLost:
            self._try_again(batch_run.jobs, AGAIN_S)
        except Exception:  # noqa: BLE001  the edge of a task
            log.exception("session.batch_failed", model=batch_run.model)
            self._try_again(batch_run.jobs, UNFORESEEN_DELAY_S)
        finally:
            long.cancel()
            if not batch_run.over.is_set():
                self._end_run(batch_run)

    async def _run_and_commit(self, batch_run: BatchRun) -> list[Disposition]:
        claims = self._committer.claim(batch_run)
        try:
            outcomes = await self._executor.run(batch_run)
            self._end_run(batch_run)
            return await self._committer.commit(batch_run, outcomes, claims)
        finally:
            await claims.close()

    def _try_again(self, jobs: Iterable[InFlightJob], delay_s: float) -> None:
        self._apply([Retry(held, delay_s) for held in jobs])

    def _apply(self, dispositions: Iterable[Disposition]) -> None:
        if self._deliveries.apply(dispositions):
            self.wake()

    def _end_run(self, batch_run: BatchRun) -> None:
        if self._dispatcher.end(batch_run, self._loop.time()):
            self.wake()
        self.supply.end(batch_run)
