"""One device as the supervisor sees it: its lease, its waiters, its guard and the runner that uses it.

:mod:`workers.lease.machine` decides; this module carries out what it asks for, on NATS, the guard and the runner.
"""

import asyncio
import errno
import random
import tempfile
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Literal

import msgspec

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.program import log
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.wire import names
from signalbox.wire.messages import Device
from signalbox.wire.names import Bucket
from workers.device import devices
from workers.device.foreign import Watch
from workers.device.guardedrunner import GuardedRunner, Timing
from workers.device.handle import LeaseHandle
from workers.device.leaserecord import LeaseRecord
from workers.device.settings import DeviceSettings
from workers.device.waitingtickets import WaitingTickets
from workers.guard.link import GuardLink, GuardReport, StartGuard
from workers.host import gauges
from workers.host.identity import WorkerIdentity, is_local
from workers.lease import effects, events
from workers.lease.effects import Effect
from workers.lease.events import Event
from workers.lease.machine import Claimant, Flock, LeaseMachine
from workers.lease.tickets import DropTicket, OwnTicket, PutTicket
from workers.runner.link import RunnerLink
from workers.runner.staging import MakeStages, Stages, Staging
from workers.sandbox import privileges

HoldState = Literal["standby", "waiting", "held"]
_LONGEST_SLEEP_S: Final = 30.0


class LeasedDevice:
    """The lease, the guard and the runner of one device, for one worker.

    Make and start it in the main thread (the guard's parent-death signal is bound to the thread).
    on_lost: called with the reason when the lease is lost, after ``lost`` of its handle is set. on_ready: called each
    time a runner has imported TensorFlow. clock: CLOCK_BOOTTIME in seconds. jitter: factor around 1 on periods.
    start_guard: makes the guard's process. make_stages: what shows the runner the files that it loads.
    """

    def __init__(
        self,
        bus: Bus,
        device: Device,
        worker: WorkerIdentity,
        settings: DeviceSettings,
        *,
        clock: Callable[[], float] = lambda: time.clock_gettime(time.CLOCK_BOOTTIME),
        jitter: Callable[[], float] = lambda: random.uniform(0.9, 1.1),  # noqa: S311  not a secret
        start_guard: StartGuard = GuardLink,
        make_stages: MakeStages | None = None,
    ) -> None:
        self.device, self.worker, self.settings = device, worker, settings
        self._stages = self._make_stages(make_stages or Staging)
        self._guarded = self._make_guarded_runner(start_guard)
        self.runner: RunnerLink = self._guarded.runner
        self._watch = Watch(device, lambda: self.runner.pid, self._tell_holder)
        self.on_lost: Callable[[str], None] | None = None
        self.on_ready: Callable[[], None] | None = None
        self._bus, self._clock = bus, clock
        self._log = log.get_logger(gpu=device.id, worker=worker.id)
        timeout_s, epoch = settings.request_timeout_s, time.time() - clock()
        self._record = LeaseRecord(bus, device.id, timeout_s=timeout_s, log=self._log)
        self._ticket = OwnTicket(device.id, worker.id, worker.boot, ttl_s=settings.ttl_s, epoch=epoch)
        self._tickets = WaitingTickets(bus, device.id, worker.id, self._ticket, timeout_s=timeout_s, clock=clock)
        me = Claimant(worker.id, worker.boot, worker.host, worker.pid, worker.pid_start)
        self._lease = LeaseMachine(device.id, me, settings, self._tickets.queue, epoch=epoch, jitter=jitter)
        self._handle: LeaseHandle | None = None
        self._gained = asyncio.Event()
        self._left = asyncio.Event()
        self._events: deque[Event] = deque()
        self._is_stepping = self._is_closing = False
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._acts: set[asyncio.Task[None]] = set()
        self._tending: asyncio.Task[None] | None = None
        self._subscriptions: list[Subscription] = []

    def _make_stages(self, make: MakeStages) -> Stages:
        sandbox = self.settings.sandbox
        reader = privileges.find_user(sandbox.user, []) if sandbox.user else None
        parent = self.settings.staging_dir or Path(tempfile.gettempdir())
        return make(parent, sandbox.model_folders, reader.gid if reader else None)

    def _make_guarded_runner(self, start_guard: StartGuard) -> GuardedRunner:
        settings, device = self.settings, self.device
        timing = Timing(
            ready_s=settings.ready_timeout_s,
            answer_s=settings.kill_s + settings.request_timeout_s,
            kill_s=settings.kill_s,
            frozen_s=settings.frozen_s,
        )
        sandbox = settings.sandbox
        if sandbox.model_folders:  # the runner sees what the worker has taken from there
            sandbox = msgspec.structs.replace(sandbox, model_folders=(str(self._stages.folder),))
        argv = [
            "--gpu",
            device.id,
            "--kind",
            device.kind,
            "--intra",
            str(settings.intra_threads),
            "--inter",
            str(settings.inter_threads),
            "--frame-limit",
            str(settings.frame_limit_bytes),
            "--interval-log",
            settings.interval_log,
            "--sandbox",
            sandbox.argument(),
        ]
        return GuardedRunner(
            device,
            settings.lock_dir / f"gpu-{names.token(device.id)}.lock",
            argv,
            stage=self._stages.staged,
            is_runner_kept=settings.is_kept(device),
            timing=timing,
            frame_limit_bytes=settings.frame_limit_bytes,
            on_report=self._on_report,
            on_ready=self._runner_ready,
            on_gone=lambda: self._feed(events.GuardGone()),
            start_guard=start_guard,
        )

    # -- for the worker ------------------------------------------------------------------------------

    @property
    def state(self) -> HoldState:
        """``held`` means that the runner is inside the device."""
        if self._handle is not None:
            return "held"
        return "waiting" if self._ticket.number else "standby"

    @property
    def token(self) -> int:
        """Fencing token of the lease that is held; 0 without one."""
        return self._handle.token if self._handle is not None else 0

    @property
    def lease_slack_s(self) -> float:
        """Seconds until the guard would kill the runner; 0 without a lease."""
        return self._lease.slack(self._clock())

    @property
    def is_at_risk(self) -> bool:
        """Half the time in which a heartbeat must be confirmed has passed without one."""
        return self._lease.is_at_risk

    @property
    def is_shared(self) -> bool:
        """Whether a foreign process computes on the GPU that this worker holds."""
        return bool(self._watch.pids)

    @property
    def waiting_since(self) -> float | None:
        """Unix seconds since when this worker holds a ticket; ``None`` without one."""
        return self._ticket.waiting_since

    @property
    def guard_pid(self) -> int:
        """Process id of the guard; 0 while there is none."""
        return self._guarded.guard_pid

    async def start(self) -> None:
        """Watch the lease, start the guard and a standby runner (TensorFlow imported, device untouched).

        Returns before the runner is ready. Raises :class:`Misconfigured`, :class:`Unavailable`.
        """
        self.settings.check()
        if not is_local(self.settings.lock_dir):
            raise Misconfigured(
                "The lock directory must be on a local file system: a flock over a network excludes no other host.",
                lock_dir=str(self.settings.lock_dir),
            )
        try:
            self._stages.make()
        except OSError as error:
            folder = self._stages.folder.parent
            raise Misconfigured(
                f"SIGNALBOX_WORKER_STAGING_DIR: no version can be staged in {folder}: {error.strerror}."
            ) from error
        gpu = names.token(self.device.id)
        self._subscriptions = [
            await self._bus.subscribe(names.event_of_key(Bucket.LEASES, gpu), self._on_lease_event),
            await self._bus.subscribe(names.event_of_key(Bucket.WAITERS, f"{gpu}.*"), self._on_ticket_event),
            await self._bus.subscribe(names.ask_release(self.device.id), lambda _: self._feed(events.YieldAsked())),
        ]
        self._bus.on_reconnect(self._on_reconnect)
        await self._tickets.sync()
        self._tending = asyncio.create_task(self._guarded.run(), name=f"guard and runner of {self.device.id}")
        self._feed(events.Tick())

    def want(self, is_wanted: bool) -> None:
        """Take a ticket whenever another holds the lease, or give the ticket up. This outlives a lease."""
        self._feed(events.Intent(is_wanted=is_wanted))

    def allow(self, is_allowed: bool) -> None:
        """Whether the lease may be taken at all (a draining worker says no); a held one is asked back."""
        self._feed(events.Intent(is_allowed=is_allowed))

    def busy(self) -> None:
        """Note that jobs are in flight: no idle hand-over."""
        self._lease.busy()
        if self._idle_timer is not None:
            self._idle_timer.cancel()
            self._idle_timer = None

    def idle(self) -> None:
        """Note that no job is in flight. The lease hears of it when it matters: when that has lasted for ``idle_s``."""
        if self._idle_timer is None:
            idle = events.Idle(self._clock())
            self._idle_timer = asyncio.get_running_loop().call_later(self.settings.idle_s, self._feed, idle)

    async def held(self) -> LeaseHandle:
        """Wait until this worker holds the lease and the flock, and its runner is inside the device."""
        while (handle := self._handle) is None:
            await self._gained.wait()
        return handle

    def release(self, handle: LeaseHandle) -> None:
        """What :meth:`LeaseHandle.release` begins; a handle whose lease has ended does nothing."""
        if handle is self._handle:
            self._feed(events.ReleaseAsked())

    async def close(self) -> None:
        """Release the lease, end guard and runner. Bounded; idempotent."""
        if self._tending is None:
            return
        self._feed(events.Intent(is_wanted=False, is_allowed=False))
        self._feed(events.ReleaseAsked())
        limit_s = self.settings.request_timeout_s * 2 + self.settings.kill_s
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._left.wait()
                while self._acts:
                    await asyncio.wait(self._acts)
        self._is_closing = True
        for subscription in self._subscriptions:
            await subscription.close()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        tending, self._tending = self._tending, None
        for task in (tending, *self._acts):
            task.cancel()
        await asyncio.gather(tending, *self._acts, return_exceptions=True)
        self._stages.remove()
        self._end_lease("closed")

    # -- events --------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        """Give one event to the lease and carry out what it asks; events that this causes follow."""
        self._events.append(event)
        if self._is_stepping or self._is_closing:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self._lease.on(self._events.popleft(), self._clock()):
                    self._do(effect)
        finally:
            self._is_stepping = False
        self._settle()

    def _settle(self) -> None:
        now = self._clock()
        lease = self._lease
        self._tickets.queue.forget(now - 2 * self.settings.ttl_s)
        if lease.flock is Flock.NONE and (lease.held is None or lease.held.is_releasing):
            self._left.set()
            if self._handle is not None:
                self._end_lease("")
        else:
            self._left.clear()
        self._ticket.want(lease.needs_ticket, now)
        if (write := self._ticket.due(now)) is not None:
            self._begin(self._write_ticket(write))
        wake_at = min(lease.wake_at, self._ticket.next_at() or lease.wake_at)
        if self._timer is not None:
            self._timer.cancel()
        delay_s = min(max(wake_at - now, 0.0), _LONGEST_SLEEP_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._feed, events.Tick())

    def _on_lease_event(self, message: Message) -> None:
        if (seen := self._record.heard(message)) is not None:
            self._feed(seen)

    def _runner_ready(self) -> None:
        self._feed(events.RunnerReady())
        if self.on_ready is not None:
            self.on_ready()

    def _on_ticket_event(self, message: Message) -> None:
        self._tickets.heard(message)
        self._feed(events.Tick())

    def _on_reconnect(self) -> None:
        if not self._is_closing:
            self._begin(self._resync())

    async def _resync(self) -> None:
        try:
            await self._tickets.sync()
        except SignalboxError as error:
            self._log.warning("lane.resync_failed", error=str(error))
        await self._read()

    # -- effects -------------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        match effect:
            case effects.WriteRecord():
                self._begin(self._write(effect))
            case effects.ReadLeader():
                self._begin(self._read())
            case effects.Enter():
                self._begin(self._enter(effect))
            case effects.Gained(token):
                self._gain(token)
            case effects.AskYield():
                if self._handle is not None:
                    self._handle.yield_asked.set()
            case effects.AtRisk() | effects.OutOfRisk():
                self._tell_risk()
            case effects.NoFlock():
                self._leave_alone("lock")
            case effects.Ended(why):
                self._end_lease(why)
            case _:
                self._order_guard(effect)

    def _order_guard(self, effect: Effect) -> None:
        match effect:
            case effects.Lock():
                self._lock()
            case effects.Unlock():
                self._order("unlock")
            case effects.Deadline(at):
                self._order("deadline", int(at * 1e9))
            case effects.Leave():
                self.runner.expel()
                self._order("leave")
            case effects.Fence():
                self.runner.expel()
                self._order("fence")

    def _leave_alone(self, reason: str, **facts: object) -> None:
        """Report that the lease is held and the device cannot be used, and why."""
        gauges.GPU_QUARANTINE.labels(reason).inc()
        self._log.error("gpu.unusable", why=reason, again_in_s=self.settings.quarantine_s, **facts)

    def _tell_risk(self) -> None:
        name = "lease.at_risk" if self.is_at_risk else "lease.out_of_risk"
        self._log.warning(name, slack_s=round(self.lease_slack_s, 2))
        self._tell_holder()

    def _tell_holder(self) -> None:
        if self._handle is not None and self._handle.on_change is not None:
            self._handle.on_change()

    def _gain(self, token: int) -> None:
        self.runner.admit(token)
        if self._handle is None:  # otherwise a new runner under the same lease
            self._handle = LeaseHandle(self, token=token, gpu=self.device.id, runner=self.runner)
            self._watch.start()
            self._log.info("lease.acquired", token=token)
            self._gained.set()

    def _end_lease(self, why: str) -> None:
        self.runner.expel()
        handle, self._handle = self._handle, None
        self._gained.clear()
        if handle is None:
            return
        if (watching := self._watch.stop()) is not None:
            self._acts.add(watching)
            watching.add_done_callback(self._acts.discard)
        if why:
            handle.lost.set()
            self._log.warning("lease.lost", token=handle.token, why=why)
            if self.on_lost is not None:
                self.on_lost(why)
        else:
            self._log.info("lease.released", token=handle.token)
        handle.ended.set()

    def _begin(self, act: Coroutine[Any, Any, None]) -> None:
        """Run an act in a task of its own; :meth:`close` awaits them all."""
        task = asyncio.create_task(act)
        self._acts.add(task)
        task.add_done_callback(self._acts.discard)

    async def _write(self, write: effects.WriteRecord) -> None:
        self._feed(await self._record.write(write))

    async def _read(self) -> None:
        self._feed(await self._record.read())

    async def _write_ticket(self, write: PutTicket | DropTicket) -> None:
        await self._tickets.write(write)
        self._feed(events.Tick())

    async def _enter(self, enter: effects.Enter) -> None:
        """Let the runner enter the device, unless a foreign process still uses its memory."""
        if self.device.kind != "cpu":
            try:
                is_free = await devices.wait_until_free(
                    self.device, timeout_s=self.settings.lock_wait_s, idle_bytes=self.settings.gpu_idle_bytes
                )
            except Exception:  # noqa: BLE001  a worker that cannot look must not keep the device from the others
                log.exception("gpu.check_failed", gpu=self.device.id, worker=self.worker.id, token=enter.token)
                is_free = False
            if not is_free:
                self._log.error("gpu.entry_refused", token=enter.token)
                self._feed(events.DeviceUnusable())
                return
        if self._lease.token == enter.token:
            self._order("enter", enter.token, int(enter.deadline * 1e9))

    # -- guard and runner ----------------------------------------------------------------------------

    def _lock(self) -> None:
        self._order("lock", int(self.settings.fence_s * 1e9))

    def _order(self, verb: str, *numbers: int) -> None:
        if not self._guarded.order(verb, *numbers) and verb in {"unlock", "leave", "fence"}:
            self._events.append(events.Unlocked())  # the flock went with the guard

    def _on_report(self, report: GuardReport) -> None:
        match report.verb:
            case "guard" if self._lease.flock is Flock.ASKED:
                self._lock()
            case "locked":
                self._feed(events.Locked(report.number))
            case "left" | "unlocked":
                self._feed(events.Unlocked())
            case "fenced":
                self._feed(events.Unlocked(is_fenced=True))
            case "replaced":
                self._log.error("lock.replaced", lock_dir=str(self.settings.lock_dir))
            case "entered":
                self._feed(events.Entered(report.number))
            case "error enter" if report.number != errno.EAGAIN:  # EAGAIN: the guard has reported another event first
                self._leave_alone("disk", errno=report.number)
                self._feed(events.DeviceUnusable())
            case "died":
                self._feed(events.RunnerDied())
