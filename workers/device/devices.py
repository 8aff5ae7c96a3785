"""The devices of this machine: NVIDIA GPUs through NVML, and virtual ``cpu:N`` ones.

NVML calls can hang in the kernel for good, so they happen in a process that is thrown away:
:mod:`workers.device.nvml`.
"""

import asyncio
import hashlib
import os
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from enum import StrEnum
from pathlib import Path
from typing import Final

import msgspec

from signalbox.program import log
from signalbox.program.errors import Misconfigured
from signalbox.wire.workerdocs import Device
from workers.host import gauges
from workers.host.identity import host_id

_NVML_TIMEOUT_S: Final = 5.0
_IDLE_BYTES: Final = 64 << 20
"""Memory a GPU may show as used, above what it always shows, without any process on it. What the
driver reserves is not counted."""
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_KILL_S: Final = 1.0
_FIRST_POLL_S, _LONGEST_POLL_S = 0.05, 1.0
_PASSED_ON: Final = ("PATH", "HOME", "LD_LIBRARY_PATH", "VIRTUAL_ENV")
_PASSED_ON_PREFIXES: Final = ("CUDA_", "NVIDIA_")


class Gpu(msgspec.Struct, frozen=True, kw_only=True):
    """One GPU, or one MIG instance of it, as :mod:`workers.device.nvml` reports it.

    pids: of those computing on it, as far as NVML shows them. fault: why it cannot be asked, such as
    a GPU that fell off the bus; empty = it answers. driver, cuda: as :class:`Device` has them.
    """

    index: int
    uuid: str
    name: str
    memory_bytes: int = 0
    used_bytes: int = 0
    pids: tuple[int, ...] = ()
    fault: str = ""
    driver: str = ""
    cuda: str = ""


class Unfree(StrEnum):
    """Why no version may be loaded on a GPU."""

    SILENT = "silent"
    GONE = "gone"
    FAULT = "fault"
    MEMORY = "memory"
    PROCESS = "process"


def unfree(gpus: list[Gpu] | None, uuid: str, idle_bytes: int) -> Unfree | None:
    """Say why no version may be loaded on GPU ``uuid``; None = it is free. gpus: None = NVML did not answer.

    Judged by memory first: inside containers the list of processes is empty or another machine's.
    """
    if gpus is None:
        return Unfree.SILENT
    gpu = next((gpu for gpu in gpus if gpu.uuid == uuid), None)
    if gpu is None:
        return Unfree.GONE
    if gpu.fault:
        return Unfree.FAULT
    if gpu.used_bytes > idle_bytes + _IDLE_BYTES:
        return Unfree.MEMORY
    return Unfree.PROCESS if gpu.pids else None


def virtual(number: int, lock_dir: Path) -> Device:
    """Virtual device ``cpu:<number>``: the same for every worker that shares ``lock_dir``."""
    digest = hashlib.sha256(host_id(lock_dir).encode()).hexdigest()[:8]
    return Device(id=f"CPU-{digest}-{number}", kind="cpu", name=f"Virtual device cpu:{number}")


async def find(setting: str, lock_dir: Path) -> Device:
    """Find the device that a setting names: ``cpu:N``, ``gpu:N`` (NVML index) or the UUID of a GPU or MIG instance.

    Raises :class:`Misconfigured`, which names what there is.
    """
    kind, _, number = setting.partition(":")
    if kind == "cpu" and number.isdigit():
        return virtual(int(number), lock_dir)
    gpus = await _HELPERS.list_gpus()
    for gpu in gpus or ():
        if setting in {gpu.uuid, f"gpu:{gpu.index}"}:
            return _device(gpu)
    if gpus is None:
        raise Misconfigured(f"NVML does not answer, so device {setting!r} cannot be found.")
    known = ", ".join(["cpu:0", *(f"gpu:{gpu.index} ({gpu.uuid})" for gpu in gpus)])
    raise Misconfigured(f"There is no device {setting!r} here; there is: {known}.")


async def gpus() -> list[tuple[int, Device]]:
    """Every GPU that answers, after its number. Of one that is divided the MIG instances, in its place.

    Raises :class:`Misconfigured` where NVML does not answer.
    """
    found = await _HELPERS.list_gpus()
    if found is None:
        raise Misconfigured("NVML does not answer, so the GPUs of this machine cannot be found.")
    divided = {gpu.index for gpu in found if gpu.uuid.startswith("MIG-")}
    return [
        (gpu.index, _device(gpu))
        for gpu in found
        if gpu.uuid and not gpu.fault and (gpu.uuid.startswith("MIG-") or gpu.index not in divided)
    ]


def _device(gpu: Gpu) -> Device:
    return Device(
        id=gpu.uuid, kind="nvidia", name=gpu.name, memory_bytes=gpu.memory_bytes, driver=gpu.driver, cuda=gpu.cuda
    )


async def wait_until_free(device: Device, *, timeout_s: float, idle_bytes: int = 0) -> bool:
    """Whether the GPU is free before ``timeout_s`` has passed. idle_bytes: what it always shows as used.

    Asks at once, after 50 ms, then less and less often, up to once a second; a request that was
    sent in time is waited for. The reason why it is not free is logged and counted; the caller leaves the GPU alone
    for a while.
    """
    began_s, delay_s = time.monotonic(), _FIRST_POLL_S
    while True:
        gpus = await _HELPERS.list_gpus()
        why = unfree(gpus, device.id, idle_bytes)
        if why is None or time.monotonic() + delay_s > began_s + timeout_s:
            break
        await asyncio.sleep(delay_s)
        delay_s = min(delay_s * 2, _LONGEST_POLL_S)
    gauges.GPU_WAIT_FREE.observe(time.monotonic() - began_s)
    if why is None:
        return True
    gpu = next((gpu for gpu in gpus or () if gpu.uuid == device.id), None)
    gauges.GPU_QUARANTINE.labels(why.value).inc()
    log.error(
        "gpu.not_free",
        gpu=device.id,
        why=why.value,
        used_bytes=gpu.used_bytes if gpu else 0,
        pids=gpu.pids if gpu else (),
        fault=gpu.fault if gpu else "",
    )
    return False


class _Helpers:
    """Processes that ask NVML. One that hangs in the kernel cannot be ended: no second one is started."""

    def __init__(self) -> None:
        self._hung: asyncio.subprocess.Process | None = None

    async def list_gpus(self) -> list[Gpu] | None:
        """GPUs of this machine, none where there is no driver; None where NVML does not answer."""
        async with aclosing(self.watch()) as readings:
            return await anext(readings, None)

    async def watch(self, every_s: float = 0.0) -> AsyncGenerator[list[Gpu], None]:
        """Yield what one helper sees, at once and every ``every_s``; ends when NVML does not answer. 0 = once."""
        if self._is_stuck:
            return
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "workers.device.nvml",
            str(every_s),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=_environment(),
        )
        assert process.stdout is not None
        try:
            while True:
                async with asyncio.timeout(every_s + _NVML_TIMEOUT_S):
                    line = await process.stdout.readline()
                yield msgspec.json.decode(line, type=list[Gpu])
        except (TimeoutError, ValueError, msgspec.MsgspecError):
            return  # silent, or it has ended: an empty line is no list
        finally:
            await self._end(process)

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        if process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.wait({asyncio.create_task(process.wait())}, timeout=_KILL_S)
        if not self._is_stuck:
            self._hung = process  # in the kernel's D state it has not ended

    @property
    def _is_stuck(self) -> bool:
        return self._hung is not None and self._hung.returncode is None


_HELPERS: Final = _Helpers()


def watch(every_s: float) -> AsyncGenerator[list[Gpu], None]:
    """The GPUs of this machine as one process sees them every ``every_s``, until NVML does not answer."""
    return _HELPERS.watch(every_s)


def _environment() -> dict[str, str]:
    """The environment of the helper: where the driver's library is, and no secrets."""
    passed = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return passed | {"PYTHONPATH": _ROOT, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
