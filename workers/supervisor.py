"""The supervisor: waits for its GPU, serves while it holds the lease, gives the lease up when it must.

It never imports TensorFlow or numpy: frames go to the runner and come back as bytes.
"""

import asyncio
import functools
import os
import socket
import time
from contextlib import aclosing, suppress
from importlib import metadata
from pathlib import Path
from typing import Final

from msgspec.structs import replace

import signalbox
from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.bus.sharedclock import SharedClock
from signalbox.jobs.records import Records
from signalbox.program import log
from signalbox.wire.modeldocs import Model
from signalbox.wire.names import untoken
from signalbox.wire.workerdocs import Device, Residency, Worker
from workers.device.handle import LeaseHandle
from workers.device.leased import LeasedDevice
from workers.diskcache.files import Files
from workers.diskcache.stores import Stores
from workers.guard.link import GuardLink, StartGuard
from workers.host import gauges
from workers.host.devicegauges import DEVICE
from workers.host.fleet import FleetTables
from workers.host.identity import WorkerIdentity
from workers.host.presence import Presence
from workers.lease.demand import Demand
from workers.recovery.reconciler import JobReconciler
from workers.residency.activity import COMPUTING, LOADING
from workers.residency.cache import ModelCache
from workers.runner.staging import MakeStages
from workers.serving.hold import Hold
from workers.settings import WorkerSettings
from workers.statistics.worker import Statistics

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_PAUSE_S: Final = 1.0
"""Pause after an unforeseen error, so that the loop cannot spin."""
_VIRTUAL_BUDGET_BYTES: Final = 4 * 1024**3


class Supervisor:
    """One worker process on one device.

    start_guard: makes the process that guards its runner. make_stages: what shows the runner the files that it loads.
    """

    def __init__(
        self,
        bus: Bus,
        settings: WorkerSettings,
        identity: WorkerIdentity,
        device: Device,
        *,
        start_guard: StartGuard = GuardLink,
        make_stages: MakeStages | None = None,
    ) -> None:
        self._bus = bus
        self._settings = settings
        self._identity = identity
        self._device = device
        self._started_at = time.time()
        self._statistics = Statistics(results_kept_s=settings.results_kept_s)
        budget = settings.memory_budget_bytes or _budget(device)
        self._cache = ModelCache(budget, most=settings.most_versions, pin_bytes=int(budget * settings.pin_share))
        self._records = Records(bus)
        self._clock = SharedClock(bus)
        self._hold: Hold | None = None
        self._demand: Demand | None = None
        self._stop = asyncio.Event()
        self._halt = asyncio.Event()
        self._resumed = asyncio.Event()
        self._is_ready = False
        self._fleet = FleetTables(
            bus,
            worker=identity.id,
            host=identity.host.partition("/")[0],
            device=device.id,
            allowed=settings.models,
            describe=self._describe,
            on_change=self._fleet_changed,
            on_vanished=self._worker_vanished,
            clock=self._clock.now,
        )
        self._cache.pinned = self._fleet.pinned
        cached = settings.disk_cache()
        self._files = Files(
            bus,
            cached,
            socket.gethostname(),
            host_id=identity.host.partition("/")[0],
            open_store=Stores(cached.credentials).open,
            find_model=self._fleet.find,
            is_removed=self._fleet.is_removed,
            on_change=self._files_changed,
        )
        self._fleet.models.on_change(lambda key, model, _revision: self._model_changed(untoken(key), model))
        self._presence = Presence(
            bus, identity.id, self._describe, period_s=settings.presence_s, ttl_s=settings.presence_ttl_s
        )
        self._leased = LeasedDevice(
            bus, device, identity, settings.leased_device(), start_guard=start_guard, make_stages=make_stages
        )
        gauges.LEASE_SLACK.set_function(lambda: self._leased.lease_slack_s)
        self._reconciler = JobReconciler(
            bus,
            self._records,
            workers=self._fleet.present,
            models=self._fleet.models.items,
            is_removed=self._fleet.is_removed,
            worker=identity.id,
            boot=identity.boot,
            clock=self._clock.now,
            kept_s=settings.records_kept_s,
            least_kept_s=settings.results_kept_s,
            sync_kept_s=settings.sync_results_kept_s,
            held_s=settings.ends_held_s,
            outlives_s=2 * settings.trusted_s,
        )

    def stop(self) -> None:
        """Drain and end: stop pulling, finish or let go, release."""
        log.info("worker.draining", worker=self._identity.id)
        self._stop.set()
        self._halt.set()
        self._resumed.set()
        self._presence.changed.set()

    def leave(self) -> None:
        """Serve on, and have what is placed here placed elsewhere; presence says when that is in memory there."""
        log.info("worker.leaving", worker=self._identity.id)
        self._fleet.leave()
        self._fleet_changed()

    def stay(self) -> None:
        """Serve what is placed here, after :meth:`leave` too."""
        if self._fleet.is_leaving:
            log.info("worker.staying", worker=self._identity.id)
            self._fleet.stay()
            self._fleet_changed()

    def faults(self) -> list[str]:
        """What of runner and device keeps it from its work, see :mod:`signalbox.program.health`."""
        found = []
        if not self._is_ready:
            found.append("The runner starts: it has not imported TensorFlow yet.")
        elif self._leased.is_restarting:
            found.append("The runner has ended, and another one starts.")
        if self._leased.is_left_alone:
            found.append(f"Device {self._device.id} cannot be used and is tried again later; the log says why (gpu.*).")
        return found

    async def run(self) -> None:
        """Serve until :meth:`stop`.

        Raises :class:`Misconfigured` when the topology does not fit, :class:`Unavailable` when NATS does not
        answer at the start: the service manager starts the program again.
        """
        await topology.require(self._bus)
        await self._clock.start()
        await self._fleet.start()
        await self._files.start()
        await self._presence.write()
        background = [
            asyncio.create_task(self._presence.keep(), name="presence"),
            asyncio.create_task(self._reconciler.keep(), name="reconciler"),
        ]
        try:
            self._leased.on_runner = self._runner_changed
            await self._leased.start()
            while not self._stop.is_set():
                await self._turn()
        finally:
            await self._leased.close()
            for task in background:
                task.cancel()
            await asyncio.wait(background)
            await self._reconciler.close()
            await self._files.close()
            await self._presence.end()
            await self._fleet.close()
            await self._clock.close()
        log.info("worker.ended", worker=self._identity.id, done=self._statistics.done)

    def _runner_changed(self) -> None:
        """Report that a runner has come or gone, and this worker ready with the first one that imported TensorFlow."""
        self._presence.changed.set()
        if not self._is_ready and self._leased.runner.ready.is_set():
            self._is_ready = True
            log.info("worker.ready", worker=self._identity.id, device=self._device.id)

    # ------------------------------------------------------------------------------ turns

    async def _turn(self) -> None:
        """Get the GPU, serve, give it up. An error costs this turn only."""
        try:
            if self._fleet.is_drain_asked:
                await self._rest()
                return
            self._halt.clear()
            self._leased.allow(True)
            wanted_at = self._clock.now()
            lease = await self._acquire()
            if lease is not None:
                await self._serve(lease, wanted_at)
        except Exception:  # noqa: BLE001  the edge of the program's main loop
            log.exception("worker.turn_failed")
            await asyncio.sleep(_PAUSE_S)

    async def _rest(self) -> None:
        """Keep presence and hold no lease while an operator drains this worker."""
        self._leased.allow(False)
        self._presence.changed.set()
        log.info("worker.drained", worker=self._identity.id)
        self._resumed.clear()
        if self._fleet.is_drain_asked and not self._stop.is_set():
            await self._resumed.wait()

    async def _acquire(self) -> LeaseHandle | None:
        """Wait for the lease of the GPU; None if this worker must stop first, and does not hold it."""
        self._demand = Demand(
            self._bus,
            self._fleet.assigned,
            self._fleet.generation,
            patience_s=self._settings.patience_s,
            recheck_s=self._settings.recheck_s,
            has_files=self._has_files,
        )
        watching = asyncio.create_task(self._want(self._demand), name="demand")
        holding = asyncio.create_task(self._leased.held(), name="hold")
        halting = asyncio.create_task(self._halt.wait(), name="halt")
        try:
            await asyncio.wait([holding, halting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._demand = None
            for task in (watching, halting, holding):
                task.cancel()
            await asyncio.wait([watching, halting, holding])
        return self._leased.handle  # it may have come after the halt: whoever has it has to release it

    async def _want(self, demand: Demand) -> None:
        """Hold a ticket while jobs wait."""
        try:
            async with aclosing(demand.watch()) as demands:
                async for is_wanted in demands:
                    self._leased.want(is_wanted)
        finally:
            self._leased.want(False)

    async def _serve(self, lease: LeaseHandle, wanted_at: float) -> None:
        self._hold = Hold(
            bus=self._bus,
            records=self._records,
            leased=self._leased,
            lease=lease,
            fleet=self._fleet,
            cache=self._cache,
            files=self._files,
            statistics=self._statistics,
            settings=self._settings,
            worker=self._identity.id,
            clock=self._clock.now,
            changed=self._presence.changed,
            wanted_at=wanted_at,
        )
        self._presence.changed.set()
        gauges.LEASE_TOKEN.set(lease.token)
        DEVICE.begin_hold()
        log.info("session.began", token=lease.token, gpu=lease.gpu)
        try:
            await self._hold.serve(self._halt)
        finally:
            self._hold = None
            gauges.LEASE_TOKEN.set(0)
            gauges.IN_FLIGHT.set(0)
            DEVICE.end_hold()
            gauges.HOLDS.labels("lost" if lease.lost.is_set() else "given up").inc()
            self._presence.changed.set()
            log.info("session.ended", token=lease.token, is_lost=lease.lost.is_set())
            if not lease.lost.is_set():
                await lease.release()

    # ------------------------------------------------------------------------------ telling

    def _fleet_changed(self) -> None:
        if self._fleet.is_drain_asked:
            self._halt.set()
        else:
            self._resumed.set()
        if self._hold is not None:
            self._hold.catalog_changed()
        if self._demand is not None:
            self._demand.models_changed()
        self._presence.changed.set()

    def _model_changed(self, name: str, model: Model | None) -> None:
        self._files.catalog_changed(name)
        if model is None:
            self._reconciler.model_removed()

    def _files_changed(self, model: str) -> None:
        if self._hold is not None:
            self._hold.files_changed(model)
        if self._demand is not None:
            self._demand.models_changed()
        self._presence.changed.set()

    def _has_files(self, name: str) -> bool:
        """Whether a model can be served with the files that are here; if not, those are fetched that requests get."""
        model = self._fleet.find(name)
        if model is None or self._files.may_serve(model):
            return True
        self._files.fetch(model, self._fleet.targets(model))
        return False

    def _worker_vanished(self, worker: Worker) -> None:
        if self._hold is not None:
            self._hold.worker_vanished(worker)

    def _describe(self) -> Worker:
        is_draining = self._stop.is_set() or self._fleet.is_drain_asked
        hold = self._hold
        used_s = dict(self._statistics.used_s)
        for activity, seconds in hold.activity.under_way() if hold is not None else ():
            used_s[activity] = used_s.get(activity, 0.0) + seconds
        told = Worker(
            id=self._identity.id,
            boot=self._identity.boot,
            host=self._identity.host,
            pid=self._identity.pid,
            state=self._state(is_draining=is_draining),
            device=self._device,
            started_at=self._started_at,
            beat_at=time.time(),
            token=self._leased.token,
            waiting_since=self._leased.waiting_since,
            models=self._residencies(),
            serves=self._settings.models,
            running=hold.in_flight.ids() if hold is not None else (),
            rates=self._statistics.rates(),
            load_s=self._statistics.usual_loads(),
            load_rate=self._statistics.load_rate.per_s,
            fetch_rates=self._files.rates(),
            done=self._statistics.done,
            failed=self._statistics.failed,
            rss_bytes=_rss_bytes(self._identity.pid),
            runner_rss_bytes=_rss_bytes(self._leased.runner.pid),
            is_drain_asked=self._fleet.is_drain_asked,
            is_drained=is_draining and hold is None and self._leased.has_left,
            is_leaving=self._fleet.is_leaving,
            why=" ".join(self.faults()),
            software=signalbox.__version__,
            tensorflow=_tensorflow(),
            restarts=self._leased.runner.restarts,
            sandbox=self._leased.runner.sandbox.active,
            run=hold.activity.now() if hold is not None else None,
            computing_s=round(used_s.get(COMPUTING, 0.0), 3),
            loading_s=round(used_s.get(LOADING, 0.0), 3),
            generation=self._fleet.generation(),
            in_flight=hold.in_flight.by_model() if hold is not None else {},
            waiting=hold.in_flight.waiting() if hold is not None else {},
            oldest=hold.in_flight.oldest() if hold is not None else {},
            results=self._statistics.results.most(),
            large_results=self._statistics.large_results.most(),
            budget_bytes=self._cache.budget_bytes,
            pin_bytes=self._cache.pin_bytes,
        )
        return replace(told, kept=self._fleet.kept(told)) if told.is_leaving else told

    def _residencies(self) -> tuple[Residency, ...]:
        batch_limits = self._statistics.batch_limits.lowest()
        here = self._cache.residencies(
            is_spare=self._fleet.is_spare,
            max_rows=lambda key: batch_limits.get(key, 0),
            joining=lambda key: self._statistics.joinings.unreported(key, self._fleet.find),
            shadow=lambda key: self._statistics.shadowed.of(key, self._fleet.find),
        )
        return (*here, *self._files.residencies(but={(one.model, one.version) for one in here}))

    def _state(self, *, is_draining: bool) -> str:
        if is_draining:
            return "draining"
        if self._leased.is_at_risk:
            return "at risk"
        if not self._is_ready:
            return "starting"
        return "restarting" if self._leased.is_restarting else "ready"


def _budget(device: Device) -> int:
    return device.memory_bytes * 4 // 5 if device.memory_bytes else _VIRTUAL_BUDGET_BYTES


@functools.cache
def _tensorflow() -> str:
    """Version of TensorFlow, which only the runner imports; empty where it is none that was installed."""
    for name in ("tensorflow", "tensorflow-cpu", "tensorflow-gpu"):
        with suppress(metadata.PackageNotFoundError):
            return metadata.version(name)
    return ""


def _rss_bytes(pid: int) -> int:
    """Memory of a process on the host; 0 = there is none."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES if pid else 0
    except (FileNotFoundError, ProcessLookupError):
        return 0
