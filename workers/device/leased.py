"""One device as the supervisor sees it: its lease, its waiters, its guard and the runner that uses it.

:mod:`workers.lease.machine` decides; this module carries out what it asks for, on NATS, the guard and the runner.
"""

import asyncio
import random
import time
from collections import deque
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any, Final

from signalbox.bus.client import Bus, Message, Subscription
from signalbox.jobs.attempts import boottime
from signalbox.program import log
from signalbox.program.errors import Misconfigured, SignalboxError
from signalbox.program.filesystem import remote_kind
from signalbox.program.tasks import Background
from signalbox.wire import names
from signalbox.wire.names import Bucket
from signalbox.wire.workerdocs import Device
from workers.device import devices
from workers.device.foreign import Watch
from workers.device.guardedrunner import GuardedRunner
from workers.device.guardorders import ForGuard, event_of, order_of
from workers.device.handle import LeaseHandle
from workers.device.leaserecord import LeaseRecord
from workers.device.settings import DeviceSettings
from workers.device.waitingtickets import WaitingTickets
from workers.guard.link import GuardLink, GuardReport, StartGuard
from workers.host import gauges
from workers.host.identity import WorkerIdentity
from workers.lease import effects, events
from workers.lease.effects import Effect
from workers.lease.events import Event
from workers.lease.machine import Claimant, Flock, LeaseMachine
from workers.lease.tickets import DropTicket, OwnTicket, PutTicket
from workers.runner.link import RunnerLink
from workers.runner.staging import MakeStages

_LONGEST_SLEEP_S: Final = 30.0


class LeasedDevice:
    """The lease, the guard and the runner of one device, for one worker.

    Make and start it in the main thread (the guard's parent-death signal is bound to the thread).
    on_runner: called each time a runner has imported TensorFlow, has entered the device, or has ended. start_guard:
    makes the guard's process. make_stages: what shows the runner the files that it loads.
    """

    def __init__(
        self,
        bus: Bus,
        device: Device,
        worker: WorkerIdentity,
        settings: DeviceSettings,
        *,
        start_guard: StartGuard = GuardLink,
        make_stages: MakeStages | None = None,
    ) -> None:
        self.device, self.worker, self.settings = device, worker, settings
        self._guarded = GuardedRunner(
            device,
            settings,
            on_report=self._on_report,
            start_guard=start_guard,
            make_stages=make_stages,
        )
        self.runner: RunnerLink = self._guarded.runner
        self._watch = Watch(device, lambda: self.runner.pid, self._tell_holder)
        self.on_runner: Callable[[], None] | None = None
        self._bus = bus
        self._log = log.get_logger(gpu=device.id, worker=worker.id)
        timeout_s, epoch = settings.request_timeout_s, time.time() - boottime()
        self._record = LeaseRecord(bus, device.id, timeout_s=timeout_s, log=self._log)
        self._ticket = OwnTicket(device.id, worker.id, worker.boot, ttl_s=settings.ttl_s, epoch=epoch)
        self._tickets = WaitingTickets(bus, device.id, worker.id, self._ticket, timeout_s=timeout_s, clock=boottime)
        me = Claimant(worker.id, worker.boot, worker.host, worker.pid, worker.pid_start)
        self._lease = LeaseMachine(device.id, me, settings, self._tickets.queue, epoch=epoch, jitter=_jitter)
        self._handle: LeaseHandle | None = None
        self._gained = asyncio.Event()
        self._left = asyncio.Event()
        self._events: deque[Event] = deque()
        self._is_stepping = self._is_open = False
        self._left_alone_until = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._idle_timer: asyncio.TimerHandle | None = None
        self._acts = Background()
        self._subscriptions: list[Subscription] = []

    # -- for the worker ------------------------------------------------------------------------------

    @property
    def handle(self) -> LeaseHandle | None:
        """Of the lease that is held, with the runner inside the device; None without one."""
        return self._handle

    @property
    def token(self) -> int:
        """Fencing token of the lease that is held; 0 without one."""
        return self._handle.token if self._handle is not None else 0

    @property
    def lease_slack_s(self) -> float:
        """Seconds until the guard would kill the runner; 0 without a lease."""
        return self._lease.slack(boottime())

    @property
    def is_at_risk(self) -> bool:
        """Half the time in which a heartbeat must be confirmed has passed without one."""
        return self._lease.is_at_risk

    @property
    def has_left(self) -> bool:
        """Whether neither lease nor flock of the device is this worker's."""
        return self._left.is_set()

    @property
    def is_restarting(self) -> bool:
        """Whether there is no runner that could compute: none inside the device that is held, or none to enter it."""
        runner = self.runner
        return not (runner.ready if self._handle is None else runner.entered).is_set()

    @property
    def is_left_alone(self) -> bool:
        """Whether the device could not be used when it was last tried, and is not tried again yet."""
        return boottime() < self._left_alone_until

    @property
    def may_begin(self) -> bool:
        """Whether a run or load may begin now: :attr:`LeaseHandle.may_begin`."""
        return self._lease.may_begin(boottime())

    @property
    def waiting_since(self) -> float | None:
        """Unix seconds since when this worker holds a ticket; ``None`` without one."""
        return self._ticket.waiting_since

    async def start(self) -> None:
        """Watch the lease, start the guard and a standby runner (TensorFlow imported, device untouched).

        Returns before the runner is ready. Raises :class:`Misconfigured`, :class:`Unavailable`.
        """
        self.settings.check()
        if remote_kind(self.settings.lock_dir):
            raise Misconfigured(
                "The lock directory must be on a local file system: a flock over a network excludes no other host.",
                lock_dir=str(self.settings.lock_dir),
            )
        gpu = names.token(self.device.id)
        self._subscriptions = [
            await self._bus.subscribe(names.event_of_key(Bucket.LEASES, gpu), self._on_lease_event),
            await self._bus.subscribe(names.event_of_key(Bucket.WAITERS, f"{gpu}.*"), self._on_ticket_event),
            await self._bus.subscribe(names.ask_release(self.device.id), lambda _: self._feed(events.YieldAsked())),
        ]
        self._bus.on_reconnect(self._on_reconnect)
        await self._tickets.sync()
        self._guarded.start()
        self._is_open = True
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
        """Note that no job is in flight. The lease learns of it where it matters: once that has lasted ``idle_s``."""
        if self._idle_timer is None:
            idle = events.Idle(boottime())
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
        if not self._is_open:
            return
        self._feed(events.Intent(is_wanted=False, is_allowed=False))
        self._feed(events.ReleaseAsked())
        limit_s = self.settings.request_timeout_s * 2 + self.settings.kill_s
        with suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._left.wait()
                await self._acts.finish()
        self._is_open = False
        for subscription in self._subscriptions:
            await subscription.close()
        for timer in (self._timer, self._idle_timer):
            if timer is not None:
                timer.cancel()
        await self._acts.cancel()
        await self._guarded.close()
        self._end_lease("closed")
        await self._acts.finish()

    # -- events --------------------------------------------------------------------------------------

    def _feed(self, event: Event) -> None:
        """Give one event to the lease and carry out what it asks; events that this causes follow."""
        self._events.append(event)
        if self._is_stepping or not self._is_open:
            return
        self._is_stepping = True
        try:
            while self._events:
                for effect in self._lease.on(self._events.popleft(), boottime()):
                    self._do(effect)
        finally:
            self._is_stepping = False
        self._settle()

    def _settle(self) -> None:
        now = boottime()
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
            self._begin(self._write_ticket(write), name="write a ticket")
        wake_at = min(lease.wake_at, self._ticket.next_at() or lease.wake_at)
        if self._timer is not None:
            self._timer.cancel()
        delay_s = min(max(wake_at - now, 0.0), _LONGEST_SLEEP_S)
        self._timer = asyncio.get_running_loop().call_later(delay_s, self._feed, events.Tick())

    def _on_lease_event(self, message: Message) -> None:
        if (seen := self._record.receive(message)) is not None:
            self._feed(seen)

    def _on_ticket_event(self, message: Message) -> None:
        self._tickets.receive(message)
        self._feed(events.Tick())

    def _on_reconnect(self) -> None:
        if self._is_open:
            self._begin(self._resync(), name="read lease and tickets")

    async def _resync(self) -> Event:
        try:
            await self._tickets.sync()
        except SignalboxError as error:
            self._log.warning("lease.resync_failed", error=str(error))
        return await self._record.read()

    # -- effects -------------------------------------------------------------------------------------

    def _do(self, effect: Effect) -> None:
        match effect:
            case effects.WriteRecord():
                self._begin(self._record.write(effect), name="write the lease")
            case effects.ReadLeader():
                self._begin(self._record.read(), name="read the lease")
            case effects.Enter():
                self._begin(self._enter(effect), name="enter the device")
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
            case effects.Leave() | effects.Fence():
                self.runner.expel()
                self._order(effect)
            case _:
                self._order(effect)

    def _leave_alone(self, reason: str, **facts: object) -> None:
        """Report that the lease is held and the device cannot be used, and why."""
        gauges.GPU_QUARANTINE.labels(reason).inc()
        self._left_alone_until = boottime() + self.settings.quarantine_s
        self._log.error("gpu.unusable", why=reason, again_in_s=self.settings.quarantine_s, **facts)

    def _tell_risk(self) -> None:
        name = "lease.at_risk" if self.is_at_risk else "lease.out_of_risk"
        self._log.warning(name, slack_s=round(self.lease_slack_s, 2))
        self._tell_holder()

    def _tell_runner(self) -> None:
        if self.on_runner is not None:
            self.on_runner()

    def _tell_holder(self) -> None:
        if self._handle is not None and self._handle.on_change is not None:
            self._handle.on_change()

    def _gain(self, token: int) -> None:
        self.runner.admit(token)
        self._left_alone_until = 0.0
        if self._handle is None:  # otherwise a new runner under the same lease
            self._handle = LeaseHandle(self, token=token, gpu=self.device.id, runner=self.runner, watch=self._watch)
            self._watch.start()
            self._log.info("lease.acquired", token=token)
            self._gained.set()
        self._tell_runner()

    def _end_lease(self, why: str) -> None:
        self.runner.expel()
        handle, self._handle = self._handle, None
        self._gained.clear()
        if handle is None:
            return
        if (watching := self._watch.stop()) is not None:
            self._acts.start(asyncio.wait([watching]), name="stop watching the device")
        if why:
            handle.lost.set()
            self._log.warning("lease.lost", token=handle.token, why=why)
        else:
            self._log.info("lease.released", token=handle.token)
        handle.ended.set()

    def _begin(self, act: Coroutine[Any, Any, Event | None], *, name: str) -> None:
        """Carry out what takes its time; what it returns is fed to the lease."""
        self._acts.start(self._carry_out(act), name=name)

    async def _carry_out(self, act: Coroutine[Any, Any, Event | None]) -> None:
        if (event := await act) is not None:
            self._feed(event)

    async def _write_ticket(self, write: PutTicket | DropTicket) -> Event:
        await self._tickets.write(write)
        return events.Tick()

    async def _enter(self, enter: effects.Enter) -> Event | None:
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
                self._left_alone_until = boottime() + self.settings.quarantine_s
                return events.DeviceUnusable()
        if self._lease.token == enter.token:
            self._order(enter)
        return None

    # -- guard and runner ----------------------------------------------------------------------------

    def _order(self, effect: ForGuard) -> None:
        verb, numbers = order_of(effect, hold_s=self.settings.fence_s)
        is_reported = self._guarded.order(verb, *numbers)
        if not is_reported and isinstance(effect, effects.Unlock | effects.Leave | effects.Fence):
            self._events.append(events.Unlocked())  # the flock went with the guard

    def _on_report(self, report: GuardReport) -> None:
        event = event_of(report)
        if report.verb in {"ready", "died"}:
            self._tell_runner()
        if report.verb == "guard" and self._lease.flock is Flock.ASKED:
            self._order(effects.Lock())
        elif report.verb == "replaced":
            self._log.error("lock.replaced", lock_dir=str(self.settings.lock_dir))
        elif isinstance(event, events.DeviceUnusable):
            self._leave_alone("disk", errno=report.number)
        if event is not None:
            self._feed(event)


def _jitter() -> float:
    """Factor around 1 on periods, so that workers do not march in step."""
    return random.uniform(0.9, 1.1)  # noqa: S311  not a secret
