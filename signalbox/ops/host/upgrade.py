"""Replaces the workers of a host one by one: those that stand by first, the holder last, one device after the other.

A model with another replica stays in memory somewhere all the time: its holder here ends once presence says that
another is ready, and the next device has its turn when what this one had is in memory again.
"""

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from signalbox.ops.host.keptworkers import KeptWorker, KeptWorkers
from signalbox.ops.host.tables import HostTables
from signalbox.program import log
from signalbox.wire.workerdocs import Worker

Versions = set[tuple[str, int]]
_COMING: Final = frozenset({"ready", "loading", "fetching"})


def in_memory(worker: Worker | None) -> Versions:
    """The versions that a worker has in memory for requests."""
    if worker is None or not worker.token or worker.state == "draining":
        return set()
    return {(one.model, one.version) for one in worker.models if one.state == "ready"}


def awaited(worker: Worker | None, fleet: Iterable[Worker]) -> Versions:
    """What this worker alone has in memory, and another device is about to have."""
    others = [other for other in fleet if worker is not None and other.device.id != worker.device.id]
    ready: Versions = set().union(*map(in_memory, others))
    coming = {(one.model, one.version) for other in others for one in other.models if one.state in _COMING}
    return (in_memory(worker) & coming) - ready


class Upgrade:
    """Of one host, when it is asked for. warm_s: how long a model is waited for at most."""

    def __init__(self, workers: KeptWorkers, tables: HostTables, *, warm_s: float, say: Callable[[str], None]) -> None:
        self._workers = workers
        self._tables = tables
        self._warm_s = warm_s
        self._say = say
        self._asked = asyncio.Event()
        self._moved = asyncio.Event()

    def ask(self) -> None:
        """Have it done; once more where it is under way."""
        self._asked.set()

    def changed(self) -> None:
        """Presence of a worker, or something of ours, has changed."""
        self._moved.set()

    async def keep(self) -> None:
        """Until cancelled."""
        while True:
            await self._asked.wait()
            self._asked.clear()
            self._say("replacing the workers one by one")
            for device in dict.fromkeys(worker.device for worker in self._workers):
                await self._replace(device)
            self._say("the workers have been replaced")

    async def _replace(self, device: str) -> None:
        """Replace the workers of one device, the one that holds it last."""
        left = list(self._workers.at(device))
        before = self._at(device)
        while left and self._workers.at(device):
            worker = min(left, key=self._holds)
            left.remove(worker)
            await self._replace_one(worker)
        await self._until(lambda: before <= self._at(device), f"models at {device} to be in memory again")

    async def _replace_one(self, worker: KeptWorker) -> None:
        if self._holds(worker):
            await self._until(lambda: not self._awaited(worker), f"replicas elsewhere of what {worker.id} has")
        async with worker.child.ended():
            pass
        await self._until(lambda: self._is_up(worker), f"{worker.id} to be ready")

    async def _until(self, is_so: Callable[[], bool], what: str) -> None:
        """Wait for it, for so long at most; presence that moves is looked at."""
        try:
            async with asyncio.timeout(self._warm_s):
                while not is_so():
                    self._moved.clear()
                    await self._moved.wait()
        except TimeoutError:
            log.warning("host.upgrade_goes_on", without=what, after_s=self._warm_s)
            self._say(f"going on without: {what}")

    def _holds(self, worker: KeptWorker) -> bool:
        found = self._tables.worker(worker.id)
        return found is not None and bool(found.token)

    def _awaited(self, worker: KeptWorker) -> Versions:
        return awaited(self._tables.worker(worker.id), self._tables.workers())

    def _at(self, device: str) -> Versions:
        found: Versions = set()
        return found.union(*(in_memory(self._tables.worker(one.id)) for one in self._workers.at(device)))

    def _is_up(self, worker: KeptWorker) -> bool:
        found = self._tables.worker(worker.id)
        is_ready = worker.child.is_ready and worker.is_present(found)
        return worker.is_ending or (is_ready and found is not None and found.state == "ready")
