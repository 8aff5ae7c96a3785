"""Serves jobs for as long as this worker holds the lease; :mod:`workers.serving.pipeline` is their way through it.

The hold ends when the lease is lost (everything is abandoned), when another worker's turn has come, or on a drain
(both: what runs ends, what waits is let go).
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from msgspec import MsgspecError

from signalbox.bus.client import Bus, Message
from signalbox.jobs.commits import Commits, persist
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.program.errors import LeaseLost, RunnerCrashed, SignalboxError, Unavailable
from signalbox.program.tasks import Background
from signalbox.wire.messages import decode
from signalbox.wire.names import ask_evict
from signalbox.wire.steering import Evict
from signalbox.wire.workerdocs import Worker
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.diskcache.place import LocalFiles
from workers.host import gauges
from workers.host.fleet import FleetTables
from workers.residency.activity import SOON_S, Activity
from workers.residency.cache import ModelCache
from workers.residency.versions import ResidentVersions
from workers.serving.committing import Committer
from workers.serving.execution import Executor
from workers.serving.pipeline import Pipeline
from workers.settings import WorkerSettings
from workers.statistics.worker import Statistics

KEEP_S: Final = 1.0
"""Seconds between checks of what has been in flight, or asleep, for long."""
CANCEL_CHECK_S: Final = 5.0
"""A job in flight is looked up so often: a cancel request may have been lost on its way."""
RENEWED: Final = 3
"""Claims are written again so often in the least time that records are kept."""


class Hold:
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
        files: LocalFiles,
        statistics: Statistics,
        settings: WorkerSettings,
        worker: str,
        clock: Callable[[], float],
        changed: asyncio.Event,
        wanted_at: float,
    ) -> None:
        """clock: UTC seconds, the same for all programs. changed: see :class:`Presence`. wanted_at: see
        :class:`Pipeline`."""
        self.activity = Activity(statistics, clock, changed)
        self._bus = bus
        self._leased = leased
        self._lease = lease
        self._fleet = fleet
        self._settings = settings
        self._changed = changed
        self._worker = worker
        self._catalog = asyncio.Event()
        """Set when there may be something to pull or to load."""
        self._tasks = Background()
        self._commits = Commits(
            bus,
            records,
            worker=worker,
            gpu=lease.gpu,
            token=lease.token,
            clock=clock,
            slow_job_s=settings.slow_job_s,
            trusted_s=settings.trusted_s,
        )
        self._residency = ResidentVersions(
            lease.runner,
            cache,
            fleet.find,
            self.activity,
            changed,
            is_spare=fleet.is_spare,
            may_load=lease.may_load,
            due=self._catalog,
            statistics=statistics,
            retire_s=settings.retire_s,
            load_s=settings.load_s,
            files=files,
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
        self._pipeline = Pipeline(
            bus=bus,
            records=records,
            leased=leased,
            lease=lease,
            fleet=fleet,
            residency=self._residency,
            files=files,
            executor=self._executor,
            committer=Committer(records, self._commits, fleet, statistics, clock=clock),
            statistics=statistics,
            tasks=self._tasks,
            settings=settings,
            clock=clock,
            wanted_at=wanted_at,
        )
        self.in_flight = self._pipeline.in_flight
        self._loop = asyncio.get_running_loop()
        lease.on_change = self._lease_changed

    # ------------------------------------------------------------------------------ life

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve until the lease is lost, must be yielded, or ``stop`` is set; then end in order."""
        cancels = await persist(lambda: self._bus.subscribe("cancel.*", self._pipeline.cancellations.receive))
        evicts = await persist(lambda: self._bus.subscribe(ask_evict(self._worker), self._on_evict))
        self._bus.on_reconnect(self._reconnected)
        background = [
            asyncio.create_task(self._follow(), name="follow catalog"),
            asyncio.create_task(self._keep(), name="keep jobs"),
            asyncio.create_task(self._tell_waiting(), name="tell waiting jobs"),
        ]
        try:
            await self._until_over(stop, background)
        finally:
            self._bus.forget_reconnect(self._reconnected)
            await cancels.close()
            await evicts.close()
            for task in background:
                task.cancel()
            await asyncio.wait(background)
            await self._end()

    def catalog_changed(self) -> None:
        """Placement or a model's document has changed."""
        self._catalog.set()

    def files_changed(self, model: str) -> None:
        """Files of a model have come, or something keeps them from coming."""
        self._catalog.set()
        self._pipeline.files_changed(model)

    def worker_vanished(self, worker: Worker) -> None:
        """Another worker has gone; what it had in flight may have to be looked for here."""
        self._pipeline.intake.redeliver_lost(worker)

    def _on_evict(self, message: Message) -> None:
        """An operator evicts a version from the device's memory."""
        try:
            asked = decode(Evict, message.data)
        except MsgspecError as error:
            log.warning("residency.evict_refused", why=str(error))
            return
        log.info("residency.evict_asked", model=asked.model, version=asked.version, by=asked.by)
        self._residency.evict((asked.model, asked.version))

    def _lease_changed(self) -> None:
        self._catalog.set()  # what could not be loaded may be loaded now
        self._pipeline.wake()
        self._changed.set()

    def _reconnected(self) -> None:
        """Look for what was lost with the connection."""
        self._catalog.set()
        self._pipeline.reconnected()

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
        self._pipeline.stop_taking()
        if self._lease.lost.is_set():
            await self._abandon()
        else:
            await self._finish()

    async def _finish(self) -> None:
        """Let go what has not started; let what runs end within its bound."""
        await self._pipeline.supply.close()
        await self._pipeline.let_go_waiting()
        if self._tasks:
            lost = asyncio.create_task(_happens(self._lease.lost), name="lease lost")
            ending = asyncio.create_task(self._tasks.finish(), name="running jobs end")
            await asyncio.wait([lost, ending], timeout=self._settings.drain_s, return_when=asyncio.FIRST_COMPLETED)
            for task in (lost, ending):
                task.cancel()
        if self._tasks:
            await self._cut_short()
        else:
            await self._pipeline.let_go_all()
        await self._flush()

    async def _cut_short(self) -> None:
        """Put what still runs back to the queue, without a strike: the bound of a drain has passed."""
        await self._tasks.cancel()
        if not self._lease.lost.is_set():
            try:
                async with asyncio.timeout(self._settings.request_timeout_s):
                    await self._commits.give_up(self.in_flight.values())
            except (TimeoutError, SignalboxError):
                log.warning("session.requeue_failed", jobs=len(self.in_flight))
        await self._abandon()

    async def _abandon(self) -> None:
        """End all work, as the lease is lost or time is up: no job may be started or committed any more."""
        await self._tasks.cancel()
        await self._pipeline.supply.close()
        if self.in_flight:
            log.warning("session.jobs_abandoned", jobs=len(self.in_flight), token=self._lease.token)
        await self._pipeline.let_go_all()
        await asyncio.wait_for(self._tasks.finish(), self._settings.request_timeout_s * 2)

    async def _flush(self) -> None:
        try:
            await self._bus.flush()
        except Unavailable:
            log.warning("session.flush_failed")

    # ------------------------------------------------------------------------------ background

    async def _follow(self) -> None:
        """Pull and load what is assigned to this worker, now and after each change."""
        while True:
            self._catalog.clear()
            assigned = self._fleet.assigned()
            await self._pipeline.follow(assigned)
            for name in self._fleet.published():
                self._residency.retry_failed(name)
            asked = [(name, version) for name in assigned if (version := self._fleet.prefetched(name))]
            asked += self._fleet.pinned()
            await self._warm(asked, [(m.name, v) for m in assigned.values() for v in self._fleet.targets(m)])
            with suppress(TimeoutError):
                async with asyncio.timeout(self._residency.due_in_s()):
                    await self._catalog.wait()

    async def _warm(self, asked: list[tuple[str, int]], wanted: list[tuple[str, int]]) -> None:
        try:
            await self._executor.admitted()
            await self._residency.keep_warm(wanted, is_ahead=self._settings.is_warm, asked=asked)
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
        """Look for cancel requests that were lost, renew records of long runs before they may go, let models sleep
        that nobody calls."""
        while True:
            await asyncio.sleep(KEEP_S)
            for held in self.in_flight.unchecked(self._loop.time(), CANCEL_CHECK_S):
                self._pipeline.cancellations.check(held)
            try:
                await self._pipeline.intake.rest()
            except SignalboxError as error:
                log.warning("intake.rest_failed", why=str(error))
            for held in self._commits.old_claims(self.in_flight.values(), self._settings.results_kept_s / RENEWED):
                self._tasks.start(self._commits.renew(held), name="renew a claim")
            gauges.IN_FLIGHT.set(len(self.in_flight))

    async def _tell_waiting(self) -> None:
        """Have presence written soon after a job was pulled that cannot begin at once: nobody knows of it till then."""
        while True:
            await asyncio.sleep(SOON_S)
            if self.in_flight.has_unreported():
                self._changed.set()


async def _happens(event: asyncio.Event) -> None:
    await event.wait()
