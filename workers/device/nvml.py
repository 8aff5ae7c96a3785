"""``python -m workers.device.nvml [SECONDS]``: the GPUs as NVML sees them, a line of JSON, once or again and again.

A process of its own, since NVML can hang in the kernel for good. It imports little: a worker that takes a GPU over
waits for its start.
"""

import json
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def ask() -> list[dict[str, Any]]:
    """Each GPU and MIG instance with the fields of :class:`workers.device.devices.Gpu`; none without a driver.

    Raises NVMLError where the driver refuses.
    """
    try:
        import pynvml
    except ImportError:
        return []
    nvml: Any = pynvml
    try:
        nvml.nvmlInit()
    except (nvml.NVMLError_LibraryNotFound, nvml.NVMLError_DriverNotLoaded):
        return []
    found = []
    software = _software(nvml)
    for index in range(nvml.nvmlDeviceGetCount()):
        try:
            handle = nvml.nvmlDeviceGetHandleByIndex(index)
        except nvml.NVMLError as error:
            found.append({"index": index, "uuid": "", "name": "", "fault": str(error)})
            continue
        found.append(_described(nvml, index, handle))
        found += [_described(nvml, index, part) for part in _instances(nvml, handle)]
    return [each | software for each in found]


def _software(nvml: Any) -> dict[str, str]:
    """The driver's version, and that of the newest CUDA that it runs."""
    try:
        cuda = nvml.nvmlSystemGetCudaDriverVersion_v2()
        return {"driver": nvml.nvmlSystemGetDriverVersion(), "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}"}
    except nvml.NVMLError:
        return {}


def _described(nvml: Any, index: int, handle: Any) -> dict[str, Any]:
    uuid = name = ""
    try:
        uuid, name = nvml.nvmlDeviceGetUUID(handle), nvml.nvmlDeviceGetName(handle)
        memory = nvml.nvmlDeviceGetMemoryInfo(handle, version=nvml.nvmlMemory_v2)
    except nvml.NVMLError as error:
        return {"index": index, "uuid": uuid, "name": name, "fault": str(error)}
    pids: list[int] = []
    with suppress(nvml.NVMLError):  # NVML may refuse this inside containers and on MIG instances
        pids = [found.pid for found in nvml.nvmlDeviceGetComputeRunningProcesses(handle)]
    reported = {"memory_bytes": memory.total, "used_bytes": memory.used, "pids": pids}
    return {"index": index, "uuid": uuid, "name": name, **reported}


def _instances(nvml: Any, handle: Any) -> Iterator[Any]:
    """Handles of the MIG instances of a GPU, which count as devices of their own."""
    try:
        if not nvml.nvmlDeviceGetMigMode(handle)[0]:
            return
        slots = nvml.nvmlDeviceGetMaxMigDeviceCount(handle)
    except nvml.NVMLError:
        return
    for slot in range(slots):
        with suppress(nvml.NVMLError):  # a slot without an instance
            yield nvml.nvmlDeviceGetMigDeviceHandleByIndex(handle, slot)


def main(every_s: float) -> None:
    """Print what there is, a line each time; ends when its reader has ended."""
    while True:
        sys.stdout.write(json.dumps(ask()) + "\n")
        sys.stdout.flush()
        if not every_s:
            return
        time.sleep(every_s)


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 0.0)
