"""The workers of one device: each a child process that is kept up, until the device is to have none."""

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence

from signalbox.jobs import starts
from signalbox.ops.up.child import Child
from signalbox.program import log
from signalbox.program.tasks import Background
from signalbox.wire.hosts import LEAVE, STAY
from signalbox.wire.scaling import HostWorker, HostWorkerState, Measured
from signalbox.wire.workerdocs import Worker


class KeptWorker:
    """One worker. id: its name in presence, and that of its child. is_ready: asked with it and its process id."""

    def __init__(self, child: Child, device: str, is_ready: Callable[[str, int], bool]) -> None:
        self.child = child
        self.id = child.spec.name
        self._is_ready = is_ready
        child.spec = child.spec._replace(ready=self._ready)
        self.device = device
        self.is_ending = False
        self._has_run = False
        self._left_pid = 0

    async def keep(self, changed: Callable[[], None], on_ready: Callable[[float], None]) -> None:
        """Have it run until :meth:`end`. on_ready: called with the seconds that each start has taken."""

        def told() -> None:
            self._has_run = True
            if self.child.is_ready:
                on_ready(time.time() - self.child.since)
            changed()

        await self.child.keep(told, changed)

    def leave(self) -> None:
        """Have it serve on until what it has is in memory elsewhere. One that is not ready has nothing."""
        if self.child.is_ready and self.child.pid != self._left_pid:
            self._left_pid = self.child.pid
            self.child.tell(LEAVE)

    def stay(self) -> None:
        """Take :meth:`leave` back."""
        if self._left_pid:
            self._left_pid = 0
            self.child.tell(STAY)

    def may_end(self, worker: Worker | None) -> bool:
        """Whether a worker that leaves serves nothing that is not in memory elsewhere. worker: its presence."""
        if not self._left_pid or self.child.pid != self._left_pid:
            return True
        return worker is not None and worker.pid == self._left_pid and worker.is_leaving and not worker.kept

    async def end(self, changed: Callable[[], None]) -> None:
        """End it for good."""
        self.is_ending = True
        changed()
        await self.child.stop()

    async def _ready(self) -> bool:
        return self._is_ready(self.id, self.child.pid)

    def is_present(self, worker: Worker | None) -> bool:
        """Whether a presence is that of its present process, not of one that has ended."""
        return worker is not None and worker.pid == self.child.pid

    def fault(self, worker: Worker | None) -> str:
        """Why it is not ready, in words; empty = it is, or it is to end. worker: its presence."""
        child = self.child
        if self.is_ending:
            return ""
        name = f"Worker {self.id} at {self.device}"
        if child.why:
            return f"{name}: {child.why}. Its log is {child.log}."
        if not child.pid:
            return f"{name} {'has ended, and is started again' if self._has_run else 'is started'}."
        if worker is None or not self.is_present(worker):
            return f"{name} {'says no more' if child.is_ready else 'has not said yet'} that it is there."
        if worker.why:
            return f"{name}: {worker.why}"
        return f"{name} starts." if worker.state == "starting" else ""  # an older release says no more

    def describe(self) -> HostWorker:
        """What the host tells of it."""
        child = self.child
        state: HostWorkerState
        if self.is_ending:
            state = "draining"
        elif child.is_ready and child.pid:
            state = "ready"
        else:
            state = "starting" if child.pid or not self._has_run else "waiting"
        return HostWorker(
            id=self.id,
            device=self.device,
            state=state,
            since=child.since if child.pid else 0.0,
            pid=child.pid,
            restarts=child.restarts,
            why=child.why,
        )


class KeptWorkers:
    """Those of all devices of a host. make: the children that run a device's workers.

    changed: called whenever something of them has changed that others should know. is_ready: whether a worker says so,
    by its id and process id. presence: of a worker, by its id. warm_s: so long at most those that leave are waited for.
    """

    def __init__(
        self,
        make: Callable[[str], Sequence[Child]],
        changed: Callable[[], None],
        is_ready: Callable[[str, int], bool],
        presence: Callable[[str], Worker | None],
        *,
        warm_s: float,
    ) -> None:
        self._presence = presence
        self._warm_s = warm_s
        self._moved = asyncio.Event()
        self._is_closing = False
        self._is_ready = is_ready
        self._make = make
        self._changed = changed
        self._by_device: dict[str, tuple[KeptWorker, ...]] = {}
        self._keeping = Background()
        self.measured = Measured()

    def __iter__(self) -> Iterator[KeptWorker]:
        return (worker for workers in tuple(self._by_device.values()) for worker in workers)

    def at(self, device: str) -> tuple[KeptWorker, ...]:
        """Those of one device; none where it has none, or where they end."""
        found = self._by_device.get(device, ())
        return () if any(worker.is_ending for worker in found) else found

    def keep(self, device: str) -> None:
        """Have workers at the device. Does nothing where it has some, also such as end."""
        if device in self._by_device:
            return
        made = tuple(KeptWorker(child, device, self._is_ready) for child in self._make(device))
        self._by_device[device] = made
        for worker in made:
            self._keeping.start(worker.keep(self._changed, self._started), name=worker.id)
        self._changed()

    def leave(self, device: str) -> None:
        """Have no workers at the device. Returns at once.

        They serve on until what they alone have in memory is so where it is placed now; then they drain and end.
        """
        if found := self.at(device):
            for worker in found:
                worker.is_ending = True
            self._keeping.start(self._end(device, found), name=f"end of {device}")

    async def close(self) -> None:
        """End all, also those that leave: at once."""
        self._is_closing = True
        self.moved()
        for device in list(self._by_device):
            self.leave(device)
        await self._keeping.finish()

    def learn(self, worker: Worker | None) -> None:
        """Take what one of them tells of its work."""
        if worker is not None and any(kept.id == worker.id for kept in self):
            self.measured = starts.learned(self.measured, worker)

    def moved(self) -> None:
        """Presence of a worker has changed."""
        self._moved.set()
        self._moved = asyncio.Event()

    async def _end(self, device: str, workers: tuple[KeptWorker, ...]) -> None:
        self._changed()
        await self._leave(device, workers)
        await asyncio.gather(*(worker.end(self._changed) for worker in workers))
        del self._by_device[device]
        self._changed()

    async def _leave(self, device: str, workers: tuple[KeptWorker, ...]) -> None:
        """Returns once none of them has anything alone, and after ``warm_s`` at the latest."""
        for worker in workers:
            if not self._is_closing:
                worker.leave()
        try:
            async with asyncio.timeout(self._warm_s):
                while not (self._is_closing or all(each.may_end(self._presence(each.id)) for each in workers)):
                    await self._moved.wait()
        except TimeoutError:
            log.warning("host.left_unfinished", device=device, after_s=self._warm_s)

    def _started(self, start_s: float) -> None:
        self.measured = starts.started(self.measured, start_s)
