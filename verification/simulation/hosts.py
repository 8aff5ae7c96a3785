"""Workers and gateways of a simulated world: production classes in simulated processes, started again when they end."""

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from gateway_plugin.admission.idempotency import Idempotency, IdempotencyEntry
from gateway_plugin.admission.ownedjobs import OwnedJobs
from gateway_plugin.admission.submission import SubmitOptions, Submitter
from gateway_plugin.codec.bodies import DecodedInputs
from gateway_plugin.codec.prepared import PreparedVersion
from gateway_plugin.service.waiting import End as JobEnd
from gateway_plugin.service.waiting import Waiters
from signalbox.bus.client import Bus
from signalbox.bus.sharedclock import SharedClock
from signalbox.jobs import deletion
from signalbox.jobs.change import change
from signalbox.jobs.records import Found, Records
from signalbox.program.errors import SignalboxError
from signalbox.wire import workerdocs
from signalbox.wire.keydocs import ApiKey
from signalbox.wire.messages import Job, Record
from tests.rigs.unstaged import Unstaged
from verification.simulation.guarding import starter
from verification.simulation.kernel import Machine, Process
from verification.simulation.runner import Device, SimRunner, Sockets, Task, encode
from workers.host.identity import WorkerIdentity
from workers.settings import WorkerSettings
from workers.supervisor import Supervisor

if TYPE_CHECKING:
    from verification.simulation.world import World

KEY: Final = ApiKey(id="k1", account_id="k1", hmac="")
_INLINE_BYTES: Final = 262_144


class Host:
    """A program that is started again whenever it ends, as systemd would: the base of workers and gateways."""

    def __init__(self, world: "World", machine: Machine, name: str, role: str) -> None:
        self.world, self.machine, self.name, self.role = world, machine, name, role
        self.process: Process | None = None
        self.starts = 0
        self.is_wanted = True
        self.is_failed = ""

    def start(self) -> None:
        """A new process of it."""
        if not self.is_wanted or (self.process is not None and self.process.is_alive):
            return
        if self.machine.is_asleep:
            self.machine.on_wake.append(self.start)
            return
        self.starts += 1
        process = self.process = Process(self.machine, self.name, None)
        process.last_words.append(self._ended)
        self.world.note("start", who=self.name, pid=process.pid)
        self.world.loop.spawn(process.program, self._guarded(process))

    async def _guarded(self, process: Process) -> None:
        try:
            await self.main(process)
        except SignalboxError as error:
            self.world.note("refused", who=self.name, why=str(error))
            process.exit(1)
        except Exception as error:  # noqa: BLE001  the edge of the program
            self.world.broke(f"{self.name} ended by {error!r}", error)
            process.exit(1)
        else:
            process.exit(0)

    def _ended(self) -> None:
        self.world.note("end", who=self.name)
        self.ended()
        self.world.later(self.world.chance.uniform(0.2, 3.0), self.start)

    def ended(self) -> None:
        """Its process is gone."""

    async def main(self, process: Process) -> None:
        """The program."""
        raise NotImplementedError


class Worker(Host):
    """One worker: production supervisor, guard machine on the simulated kernel, simulated runner."""

    def __init__(self, world: "World", machine: Machine, name: str, device: Device) -> None:
        super().__init__(world, machine, name, "worker")
        self.device = device
        self.supervisor: Supervisor | None = None

    async def main(self, process: Process) -> None:
        """As :mod:`workers.main`."""
        world, shape = self.world, self.world.shape
        identity = WorkerIdentity(
            id=self.name,
            boot=f"{self.name}.{self.starts}",
            pid=process.pid,
            pid_start=process.pid,
            host=f"{self.machine.name}/{self.machine.boot}",
        )
        bus = await world.connect(self, process, self.role)
        self.supervisor = Supervisor(
            bus,
            self._settings(),
            identity,
            workerdocs.Device(id=self.device.id, kind=shape.kind, name=self.device.id),
            start_guard=starter(process, self._start_runner),
            make_stages=Unstaged,
        )
        await self.supervisor.run()
        await bus.close()

    def _settings(self) -> WorkerSettings:
        rules = self.world.shape.rules
        return WorkerSettings(
            id=self.name,
            lock_dir="/tmp",  # noqa: S108  nothing is there: the simulation has locks of its own
            heartbeat_s=rules.heartbeat_s,
            fence_s=rules.fence_s,
            kill_s=rules.kill_s,
            margin_s=rules.margin_s,
            lease_ttl_s=rules.ttl_s,
            failover_s=rules.failover_s,
            quantum_s=rules.quantum_s,
            reserved_s=rules.reserved_s,
            trusted_s=self.world.shape.trusted_s,
            recheck_s=rules.recheck_s,
            drain_s=5.0,
            cancel_grace_s=1.0,
            results_kept_s=self.world.shape.kept_s,
            sync_results_kept_s=self.world.shape.sync_kept_s,
        )

    def _start_runner(self, guard: Process, sockets: Sockets) -> Process:
        process = Process(self.machine, f"runner of {self.name}", guard)
        import_s = self.world.chance.uniform(0.1, 1.5)
        on_run = partial(self.world.oracle.ran, self.name)
        SimRunner(process, sockets, self.device, f"{self.name}.{self.starts}", import_s, on_run)
        if guard.parent is not None:
            self.world.oracle.watch_orphan(self, guard.parent, guard, process)
        return process

    def ended(self) -> None:
        """See the base."""
        self.supervisor = None


class Gateway(Host):
    """One plugin process: production submission, waiting and jobs."""

    def __init__(self, world: "World", machine: Machine, name: str) -> None:
        super().__init__(world, machine, name, "gateway")
        self.bus: Bus | None = None
        self.is_serving = asyncio.Event()
        self.has_ended = asyncio.Event()

    async def main(self, process: Process) -> None:
        """As :mod:`gateway_plugin.program`."""
        self.has_ended.clear()
        bus = await self.world.connect(self, process, self.role)
        self.records = records = Records(bus)
        self.waiters = Waiters(bus, records, recheck_s=5.0)
        await self.waiters.start()
        self.clock = clock = SharedClock(bus)
        await clock.start()
        self.now = clock.now
        inline_limit = 0 if self.world.shape.is_apart else _INLINE_BYTES
        self.submitter = Submitter(bus, inline_limit_bytes=inline_limit, wall=clock.now, queued=lambda: clock.queued)
        self.jobs = OwnedJobs(bus, records, kept_s=8 * 86_400, wall=clock.now)
        self.idempotency = Idempotency(bus, self.jobs, request_timeout_s=bus.settings.request_timeout_s, wall=clock.now)
        self.bus = bus
        self.ready = PreparedVersion(self.world.model, self.world.model.versions[0])
        self.is_serving.set()
        await self.world.loop.create_future()

    def ended(self) -> None:
        """See the base."""
        self.is_serving.clear()
        self.has_ended.set()

    async def ask(self, act: Callable[[], Coroutine[Any, Any, Any]], timeout_s: float) -> Any:
        """A caller's request: runs in the gateway's process; raises TimeoutError where no answer comes."""
        if not self.is_serving.is_set() or self.process is None:
            raise TimeoutError("connection refused")
        task = self.world.loop.spawn(self.process.program, act())
        ended = asyncio.ensure_future(self.has_ended.wait())
        try:
            await asyncio.wait({task, ended}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            ended.cancel()
        if task.done():
            return task.result()
        task.add_done_callback(lambda late: late.cancelled() or late.exception())
        raise TimeoutError("no answer")

    async def submit(
        self, task: Task, priority: Any, wait_s: float, key: str = "", not_before: float = 0.0
    ) -> tuple[str, JobEnd | None]:
        """As :meth:`Jobs.submit` of the gateway: accept a job, wait ``wait_s`` for its end, with ``key`` only once."""
        assert self.bus is not None
        idem = None
        if key:
            idem = await self.idempotency.look_up(KEY, key, digest=key)
            if idem.found is not None:
                return idem.job_id, None
        inputs = DecodedInputs(
            frame=b"", signature="serving_default", style="row", rows=1, batch_key="" if task.does == "alone" else "1/x"
        )
        delay_s = not_before - self.now()
        job = self.submitter.job(
            KEY,
            self.ready,
            inputs,
            SubmitOptions(priority, not_before=not_before if delay_s > 0.0 else 0.0),
            waiter=self.bus.instance if wait_s else "",
            job_id=idem.job_id if idem else "",
            is_short_lived=bool(wait_s) and idem is None,
        )
        self.world.ledger.begun(job.id, task, key, max(0.0, delay_s))
        frame = encode(Task(job.id, task.does, task.seconds))
        if not wait_s:
            await self._write(job, frame, idem)
            return job.id, None
        future = self.waiters.expect(job.id)
        try:
            await self._write(job, frame, idem)
            self.world.ledger.accepted(job.id)
            return job.id, await self.waiters.wait(job.id, future, wait_s)
        finally:
            self.waiters.forget(job.id)

    async def _write(self, job: Job, frame: bytes, idem: IdempotencyEntry | None) -> None:
        if idem is None:
            await self.submitter.accept(job, frame)
            return
        idem = await self.idempotency.hold(idem)
        try:
            await self.submitter.accept(job, frame)
        except SignalboxError:
            await self.idempotency.release(idem)
            raise

    async def find(self, job_id: str) -> Found:
        """Poll."""
        return await self.jobs.find(job_id, KEY.id)

    async def cancel(self, job_id: str) -> Found:
        """Cancel."""
        return await self.jobs.cancel(job_id, KEY.id)

    async def raise_priority(self, job_id: str) -> Found:
        """Have a waiting job run before others."""
        assert self.bus is not None
        found = await self.jobs.find(job_id, KEY.id)
        return await change(self.bus, self.records, found, priority="hi", deadline_at=None, admit=_admit)

    async def delete(self, job_id: str) -> bool:
        """Delete an ended job; whether all is gone."""
        assert self.bus is not None
        found = await self.jobs.known(job_id, KEY.id)
        done = await deletion.delete(self.records, found, clock=self.clock.now)
        return await deletion.is_gone(self.bus, done.record)


async def _admit(_: Record) -> None:
    """Whoever asks may."""
