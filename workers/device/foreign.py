"""Finds foreign processes on the GPU that this worker holds, every two seconds, by a helper process that may hang.

A GPU is free of them when it is taken over (:func:`workers.device.devices.wait_until_free`); this module sees those
that come later. A foreign process is left alone, and so is what runs: no version is loaded until it has gone.
"""

import asyncio
from collections.abc import Callable, Iterable
from contextlib import aclosing
from pathlib import Path
from typing import Final

from signalbox.program import log
from signalbox.wire.workerdocs import Device
from workers.device import devices
from workers.device.devices import Gpu, Unfree
from workers.host import gauges
from workers.host.devicegauges import USED

PERIOD_S: Final = 2.0
_HOST: Final = "pid:[4026531836]"
"""The machine's first namespace of process numbers. Source: Linux' include/linux/proc_ns.h."""


def foreign_processes(pids: Iterable[int], runner: int) -> frozenset[int]:
    """Select those of ``pids`` that live and are neither the runner nor descend from it.

    In a container NVML may give the host's numbers, which name no process here, or another one: they are
    believed where the runner is among them.
    """
    found = set(pids)
    if runner not in found and not _is_host():
        return frozenset()
    return frozenset(pid for pid in found if Path(f"/proc/{pid}").exists() and not _is_of(runner, pid))


class Watch:
    """The foreign processes on one GPU, from :meth:`start` to :meth:`stop`; none on a virtual device.

    runner: pid of this worker's runner at present, 0 = none. on_change: called when ``pids`` has changed.
    """

    def __init__(self, device: Device, runner: Callable[[], int], on_change: Callable[[], None]) -> None:
        self.pids: frozenset[int] = frozenset()
        self._device, self._runner, self._on_change = device, runner, on_change
        self._task: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look."""
        if self._device.kind != "cpu" and self._task is None:
            self._task = asyncio.create_task(self._run(), name=f"watch {self._device.id}")

    def stop(self) -> asyncio.Task[None] | None:
        """Stop to look, and forget. Returns the task to wait for, until its helper has ended."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        self.pids = frozenset()
        gauges.GPU_FOREIGN.set(0)
        USED.clear()
        return task

    async def _run(self) -> None:
        while True:
            async with aclosing(devices.watch(PERIOD_S)) as readings:
                async for gpus in readings:
                    self._judge(gpus)
            log.warning("gpu.watch_failed", gpu=self._device.id, again_in_s=PERIOD_S)
            await asyncio.sleep(PERIOD_S)

    def _judge(self, gpus: list[Gpu]) -> None:
        runner = self._runner()
        gpu = next((gpu for gpu in gpus if gpu.uuid == self._device.id), None)
        if gpu is not None and not gpu.fault:
            USED.labels(gpu.uuid).set(gpu.used_bytes)
        if runner and gpu is not None and not gpu.fault:
            self._found(foreign_processes(gpu.pids, runner))

    def _found(self, pids: frozenset[int]) -> None:
        if pids == self.pids:
            return
        if pids - self.pids:
            gauges.GPU_QUARANTINE.labels(Unfree.PROCESS.value).inc()
            log.error("gpu.foreign_processes", gpu=self._device.id, pids=sorted(pids))
        elif not pids:
            log.info("gpu.foreign_processes_gone", gpu=self._device.id)
        self.pids = pids
        gauges.GPU_FOREIGN.set(len(pids))
        self._on_change()


def _is_host() -> bool:
    return str(Path("/proc/self/ns/pid").readlink()) == _HOST


def _is_of(runner: int, pid: int) -> bool:
    while pid > 1 and pid != runner:
        pid = _parent(pid)
    return pid == runner


def _parent(pid: int) -> int:
    """0 where the process is gone or not to be seen."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return 0
    return int(stat.rpartition(")")[2].split()[1])
