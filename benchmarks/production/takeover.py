"""Measures a take-over: from SIGKILL of the holder to the next holder's lease, and a caller's longest wait."""

import asyncio
import os
import signal
import statistics
import time
from typing import Final

from benchmarks.production.stack import POLL_S, until
from benchmarks.rig.load import Target, run
from signalbox.bus.client import Bus
from signalbox.bus.table import Table
from signalbox.wire import messages
from signalbox.wire.names import Bucket, key, token
from tests.rigs.runningstack import RunningStack

KILLS: Final = 4
HELD_S: Final = 60.0
BACK_S: Final = 180.0
LOAD_S: Final = 3.0


class Holders:
    """Who holds the stack's device, as the lease bucket tells."""

    def __init__(self, bus: Bus) -> None:
        self.bus = bus
        self.table = Table(bus, Bucket.LEASES, messages.Lease)
        self._now: dict[str, tuple[str, int, float]] = {}
        self._changed = asyncio.Event()
        self.table.on_change(self._note)

    def _note(self, gpu: str, lease: messages.Lease | None, revision: int) -> None:
        if lease is None or lease.state != "HELD" or not lease.owner.startswith("worker-"):
            return
        number = lease.token or revision
        if gpu not in self._now or self._now[gpu][1] != number:
            self._now[gpu] = (lease.owner, number, time.monotonic())
            self._changed.set()

    async def after(self, number: int) -> tuple[str, int, float]:
        """The first holder with a newer token, that token, and when we learnt of it."""
        async with asyncio.timeout(HELD_S):
            while True:
                newer = [found for found in self._now.values() if found[1] > number]
                if newer:
                    return min(newer, key=lambda found: found[1])
                self._changed.clear()
                await self._changed.wait()


async def measure(running: RunningStack, bus: Bus, target: Target) -> None:
    """Print take-over times. The stack has two workers on one device; each killed one is waited for."""
    holders = Holders(bus)
    took, longest = [], []
    await holders.table.start()
    try:
        for _ in range(KILLS):
            owner, number, _ = await holders.after(0)
            seconds, wait_s = await _killed(running, holders, target, owner, number)
            took.append(seconds * 1000)
            longest.append(wait_s * 1000)
    finally:
        await holders.table.close()
    print(
        f"take-over after SIGKILL of the holder, ms: median {statistics.median(took):.0f} "
        f"({', '.join(f'{each:.0f}' for each in sorted(took))}); longest wait of a caller meanwhile: "
        f"{', '.join(f'{each:.0f}' for each in sorted(longest))}",
        flush=True,
    )


async def _killed(
    running: RunningStack, holders: Holders, target: Target, owner: str, number: int
) -> tuple[float, float]:
    """Kill a holder under load; seconds until another holds, and the longest that a caller waited."""
    pid = running.pids()[owner]
    load = asyncio.create_task(asyncio.to_thread(run, target, 8, seconds=LOAD_S, warm_s=0.0))
    await asyncio.sleep(LOAD_S / 3)
    at = time.monotonic()
    os.kill(pid, signal.SIGKILL)
    _, _, held_at = await holders.after(number)
    figures = await load
    await _until_ready(running, holders.bus, owner, pid)
    return held_at - at, max(figures.latencies_s, default=float("nan"))


async def _until_ready(running: RunningStack, bus: Bus, owner: str, former: int) -> None:
    """Return when the stack has started a worker again and it serves."""
    await until(lambda: running.pids().get(owner, former) != former, BACK_S)
    pid = running.pids()[owner]
    async with asyncio.timeout(BACK_S):
        while True:
            found = await bus.leader_get(Bucket.WORKERS.stream, key(Bucket.WORKERS, token(owner)))
            if found is not None and found.data:
                worker = messages.decode(messages.Worker, found.data)
                if worker.pid == pid and worker.state == "ready":
                    return
            await asyncio.sleep(POLL_S)
