"""The agent of one host: has those of its devices kept up that every host works out to be wanted.

Nobody tells it what to start: it reads what the controller wants and the presence of all agents, and gets the result
that the others get (:mod:`signalbox.wire.hosts`). While NATS is away all stays as it is.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple

import msgspec

from signalbox import __version__
from signalbox.bus.client import Bus
from signalbox.ops.host import machine
from signalbox.ops.host.firststart import FirstStart
from signalbox.ops.host.keptworkers import KeptWorkers
from signalbox.ops.host.presence import HostPresence
from signalbox.ops.host.tables import HostTables
from signalbox.ops.host.upgrade import Upgrade
from signalbox.ops.up.child import Child
from signalbox.program import log
from signalbox.program.errors import SignalboxError, Unavailable
from signalbox.program.tasks import TaskGroup
from signalbox.wire.hosts import is_failing, kept_devices
from signalbox.wire.manifests import HostCache
from signalbox.wire.messages import decode
from signalbox.wire.names import Bucket, key, token
from signalbox.wire.scaling import Host, HostDevice, Measured
from signalbox.wire.workerdocs import Worker

_DISK_S: Final = 30.0
"""How often disk and cache are looked at."""
NOT_BEGUN: Final = "The agent starts: it has not read yet which workers are wanted."
_SETTLED: Final = 2.0
"""Heartbeats after a reconnect until presence is believed again: others have to write theirs first."""


class Plan(NamedTuple):
    """What one host has. host: as its workers' presence has it. cache_dir: their disk cache."""

    id: str
    host: str
    devices: tuple[HostDevice, ...]
    cache_dir: Path
    presence_s: float = 2.0
    presence_ttl_s: int = 8
    warm_s: float = 300.0


class Agent:
    """Keeps the workers of a host. make: the children that run the workers of a device, by its id.

    say: called with sentences a person should read.
    """

    def __init__(
        self,
        bus: Bus,
        plan: Plan,
        make: Callable[[str], Sequence[Child]],
        *,
        say: Callable[[str], None],
        measured: Measured | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._bus = bus
        self._plan = plan
        self._say = say
        self._clock = clock
        self._started_at = clock()
        self._changed = asyncio.Event()
        self.on_change: Callable[[], None] = lambda: None
        """Called after each change of a worker's process."""
        self._begun = asyncio.Event()
        self._moving = asyncio.Event()
        self._has_ended = False
        self._settled_at = 0.0
        self._disk = machine.Disk(0, 0)
        self._cache_bytes = 0
        self.tables = HostTables(bus, plan.id, self._moved)
        self.workers = KeptWorkers(make, self._told, self._is_ready, self.tables.worker, warm_s=plan.warm_s)
        self._known = measured
        self.presence = HostPresence(bus, plan.id, self.describe, period_s=plan.presence_s, ttl_s=plan.presence_ttl_s)
        self._first = FirstStart(
            bus,
            plan.id,
            hosts=self.hosts,
            scale=lambda: self.tables.scale,
            workers=self.tables.workers,
            start=self._start_first,
            clock=clock,
        )
        self._upgrade = Upgrade(self.workers, self.tables, warm_s=plan.warm_s, say=say)

    async def run(self) -> None:
        """Keep them until cancelled, then end them. Raises :class:`Unavailable` where NATS does not answer first."""
        try:
            await self._run()
        finally:
            self._has_ended = True
            self._begun.set()
            self._moving.set()

    async def _run(self) -> None:
        await self.tables.start(self._on_worker, self._first.doubt)
        former = self.tables.former()
        self.workers.measured = self._known or (former.measured if former is not None else Measured())
        self._bus.on_reconnect(self._on_reconnect)
        try:
            await self._first.start()
            await self._look_at_disk()
            await self.presence.write()
            async with TaskGroup() as group:
                group.create_task(self.presence.keep())
                group.create_task(self._keep())
                group.create_task(self._first.keep())
                group.create_task(self._upgrade.keep())
                group.create_task(self._keep_disk())
        finally:
            self._bus.forget_reconnect(self._on_reconnect)
            await self.workers.close()
            await self.presence.end()
            await self._first.close()
            await self.tables.close()

    async def ready(self) -> None:
        """Wait until all workers that are wanted now are ready. Raises :class:`Unavailable` where one does not start.

        For whoever runs :meth:`run` beside it.
        """
        await self._begun.wait()
        while self._has_ended or any(not worker.child.is_ready for worker in self.workers):
            if self._has_ended:
                raise Unavailable("The agent of the workers has ended.")
            for worker in self.workers:
                if worker.child.why:
                    raise Unavailable(f"{worker.child.why}. Its log is {worker.child.log}.")
            self._moving.clear()
            await self._moving.wait()

    def faults(self) -> list[str]:
        """Why a worker that is wanted is not ready; none where no worker is wanted. Called in any thread."""
        if not self._begun.is_set():
            return [NOT_BEGUN]
        return [fault for worker in self.workers if (fault := worker.fault(self.tables.worker(worker.id)))]

    def upgrade(self) -> None:
        """Replace the workers one by one by such as their command runs now. Returns at once."""
        self._upgrade.ask()

    def hosts(self) -> list[Host]:
        """All that are present, this one as it is."""
        return [*self.tables.others(), self.describe()]

    def describe(self) -> Host:
        """This host's document."""
        plan, devices = self._plan, self._plan.devices
        kept = Counter(each.class_ for each in devices if self.workers.at(each.device.id))
        first = devices[0].device if devices else None
        return Host(
            id=plan.id,
            host=plan.host,
            devices=devices,
            workers=tuple(worker.describe() for worker in self.workers),
            wanted=dict(kept),
            measured=self.workers.measured,
            driver=first.driver if first else "",
            cuda=first.cuda if first else "",
            disk_bytes=self._disk.size,
            disk_free_bytes=self._disk.free,
            cache_bytes=self._cache_bytes,
            software=__version__,
            is_draining=self.tables.is_drain_asked,
            started_at=self._started_at,
            beat_at=self._clock(),
        )

    # ------------------------------------------------------------------------------ which devices

    async def _keep(self) -> None:
        """Have the wanted devices kept, now and after each change."""
        loop = asyncio.get_running_loop()
        while True:
            self._changed.clear()
            wait_s = self._settled_at - loop.time()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._apply()
            self._begun.set()
            await self._changed.wait()

    def _apply(self) -> None:
        scale = self.tables.scale
        kept = kept_devices(scale, self.hosts())
        self._first.released(kept, scale)
        for each in self._plan.devices:
            device = each.device.id
            is_wanted = device in kept or (device in self._first.held and not self.tables.is_drain_asked)
            is_kept = bool(self.workers.at(device))
            if is_wanted and not is_kept:
                self.workers.keep(device)
            elif is_kept and not is_wanted and self._may_leave(kept):
                self._say(f"no workers are wanted at {device}")
                self.workers.leave(device)
            for worker in self.workers.at(device):
                if is_wanted:
                    worker.stay()
                else:
                    worker.leave()

    def _may_leave(self, kept: Collection[str]) -> bool:
        """Whether workers that are not wanted may end: of a host that drains once those in their place are ready."""
        if not self.tables.is_drain_asked:
            return True
        ready = {worker.device.id for worker in self.tables.workers() if worker.state == "ready"}
        others = self.tables.others()
        return all(device in ready or any(is_failing(host, device) for host in others) for device in kept)

    def _start_first(self, device: str) -> None:
        self._say(f"a job waits and no host has a worker: starting one at {device}")
        self._moved()

    # ------------------------------------------------------------------------------ what it hears

    def _moved(self) -> None:
        self._changed.set()
        self._first.changed()
        self.presence.changed.set()

    def _told(self) -> None:
        """Something of our own workers has changed."""
        self._moved()
        self.workers.moved()
        self._moving.set()
        self.on_change()
        self._upgrade.changed()

    def _is_ready(self, worker: str, pid: int) -> bool:
        """Whether a worker says that it is, and not the one that had its name before."""
        found = self.tables.worker(worker)
        return found is not None and found.pid == pid and found.state != "starting"

    def _on_worker(self, key: str, worker: Worker | None) -> None:
        self.workers.learn(worker)
        self.workers.moved()
        if self.tables.is_drain_asked:
            self._changed.set()
        self._first.learn(key, worker)
        self._upgrade.changed()

    def _on_reconnect(self) -> None:
        self._first.doubt()
        self._settled_at = asyncio.get_running_loop().time() + _SETTLED * self._plan.presence_s
        self._changed.set()

    # ------------------------------------------------------------------------------ its disk

    async def _keep_disk(self) -> None:
        while True:
            await asyncio.sleep(_DISK_S)
            await self._look_at_disk()

    async def _look_at_disk(self) -> None:
        """Of the disk and what workers say of their cache, which nobody is told of."""
        self._disk = machine.disk_of(self._plan.cache_dir)
        bucket = Bucket.CACHES
        try:
            found = await self._bus.direct_get(bucket.stream, key(bucket, token(self._plan.host.partition("/")[0])))
            with suppress(msgspec.MsgspecError):  # an expiry marker has no body
                self._cache_bytes = decode(HostCache, found.data).used_bytes if found is not None else 0
        except SignalboxError as error:
            log.warning("host.cache_not_seen", why=error.public_message)
