"""``python -m verification.gpu``: what only a real NVIDIA GPU shows, printed, with an exit status of 1 if it is wrong.

Needs a driver, PyTorch with CUDA and nats-server. Two workers share the GPU; NVML is read beside them all the time.

- Jobs run on the GPU inside the sandbox; between them its holder hands it over, killed or asked to.
- No two runners compute there at once, by NVML's list of processes, and a runner enters when the memory is back.
- A foreign process is seen and seen to go; a GPU that is not free is left alone, and taken when it is.
"""

import argparse
import asyncio
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import Final, NamedTuple, Self

import pynvml

from signalbox.bus import topology
from signalbox.bus.client import Bus
from signalbox.program.settings import Wire
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.gpu.torchrunner import BALLAST
from workers.device import devices

PROGRAM: Final = "verification.gpu.torchworker"
MODEL: Final = "half"
READY_S: Final = 90.0
LOOK_S: Final = 0.002
FREE_BYTES: Final = 64 << 20
_OF_EACH_LINE: Final = {"at", "event", "level", "worker", "gpu"}
_HOLDS: Final = """
import sys, torch
x = torch.ones(1 << 30, dtype=torch.uint8, device="cuda")
print("here", flush=True)
sys.stdin.read()
"""


class Sample(NamedTuple):
    """What NVML showed. at: monotonic seconds."""

    at: float
    used: int
    pids: frozenset[int]


class Nvml:
    """Looks at one GPU again and again, from a thread."""

    def __init__(self, index: int) -> None:
        pynvml.nvmlInit()
        self._handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        self.samples: list[Sample] = []
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._keep, daemon=True)
        self._thread.start()

    def sample(self) -> Sample:
        """One look."""
        used = int(pynvml.nvmlDeviceGetMemoryInfo(self._handle, version=pynvml.nvmlMemory_v2).used)
        found = pynvml.nvmlDeviceGetComputeRunningProcesses(self._handle)
        return Sample(time.monotonic(), used, frozenset(each.pid for each in found))

    def end(self) -> list[Sample]:
        """Stop; all looks."""
        self._is_over.set()
        self._thread.join()
        return self.samples

    def _keep(self) -> None:
        while not self._is_over.wait(LOOK_S):
            self.samples.append(self.sample())


class Rig(NamedTuple):
    """NATS with one model, its jobs, and where the workers' files lie."""

    bus: Bus
    ledger: Ledger
    url: str
    folder: Path
    gpu: str
    user: str

    def worker(self, name: str) -> WorkerProcess:
        """A worker on the GPU, not started."""
        settings: dict[str, object] = {"worker_device": self.gpu}
        if self.user:
            settings |= {"worker_sandbox": "strict", "worker_runner_user": self.user}
            settings |= {"worker_model_folders": self.folder}
        made = WorkerProcess(self.url, self.folder, name, program=PROGRAM, **settings)
        made._env.pop("CUDA_VISIBLE_DEVICES")
        return made

    async def job(self, x: float) -> float:
        """Run one job; seconds until its durable end."""
        began = time.monotonic()
        job_id = await self.ledger.submit(MODEL, floats(x))
        (record,) = await self.ledger.ended(job_id)
        assert record.state.value == "succeeded", record
        return time.monotonic() - began


@asynccontextmanager
async def rig(folder: Path, gpu: str, user: str) -> AsyncIterator[Rig]:
    """Everything but workers."""
    async with NatsServer(folder / "nats") as nats:
        bus = await Bus.connect(Wire(nats_url=nats.url), role="admin", name="gpu")
        await topology.apply(bus)
        await register(bus, MODEL, folder)
        try:
            yield Rig(bus, await Ledger(bus).start(), nats.url, folder, gpu, user)
        finally:
            await bus.close()


async def main(rounds: int, user: str) -> int:
    """Every part, one after the other. user: of the runners, whose sandbox is strict then; empty = ours, and auto."""
    gpus = await anext(devices.watch(0.0), None)
    if not gpus:
        print("There is no NVIDIA GPU here.")
        return 1
    gpu, nvml = gpus[0], Nvml(gpus[0].index)
    idle = nvml.sample().used
    print(f"{gpu.name} {gpu.uuid}: {gpu.memory_bytes >> 20} MiB, {idle >> 20} MiB used when idle, processes {gpu.pids}")
    with tempfile.TemporaryDirectory(prefix="signalbox-gpu-") as folder:
        async with rig(Path(folder), gpu.uuid, user) as made:
            await _first(made, nvml)
            await _take_overs(made, nvml, idle, rounds)
            await _hand_overs(made, rounds)
            samples = nvml.end()
            await _foreign(made)
            await _not_free(made)
    return _judged(samples, idle)


async def _first(made: Rig, nvml: Nvml) -> None:
    """One worker alone."""
    async with made.worker("first") as worker:
        await worker.ready(timeout_s=READY_S)
        print(f"first job after {await made.job(1.0):.2f} s (lease, CUDA's start and a load included)")
        sandbox = await worker.said("worker.sandbox")
        print(f"sandbox: { ({k: v for k, v in sandbox.items() if k not in _OF_EACH_LINE}) }")
        sample = nvml.sample()
        print(f"its runner is process {sorted(sample.pids)}, {sample.used >> 20} MiB used")
        ten = [await made.job(float(x)) for x in range(10)]
        print(f"a lone job on the GPU: p50 {statistics.median(ten) * 1e3:.1f} ms", flush=True)


async def _take_overs(made: Rig, nvml: Nvml, idle: int, rounds: int) -> None:
    """The holder's worker is killed, with its model's memory on the GPU."""
    taken, freed, served = [], [], []
    async with AsyncExitStack() as stack:
        holder = await _holding(made, stack, "k0")
        for number in range(1, rounds + 1):
            waiter = await _ready(made, stack, f"k{number}")
            killed_at = time.monotonic()
            await holder.kill()
            job = asyncio.create_task(made.job(float(number)))
            await waiter.said("lease.acquired")
            taken.append(time.monotonic() - killed_at)
            await job
            served.append(time.monotonic() - killed_at)
            after = [sample for sample in list(nvml.samples) if sample.at > killed_at]
            freed.append(next(sample.at for sample in after if sample.used <= idle + FREE_BYTES) - killed_at)
            holder = waiter
    _print("SIGKILL of the holder's worker to another's lease", taken)
    _print("  to the memory back at idle, by NVML", freed)
    _print("  to the next job's end (CUDA's start and a load included)", served)


async def _hand_overs(made: Rig, rounds: int) -> None:
    """The holder ends in order while another waits."""
    found = []
    async with AsyncExitStack() as stack:
        holder = await _holding(made, stack, "h0")
        for number in range(1, rounds + 1):
            waiter = await _ready(made, stack, f"h{number}")
            began = time.monotonic()
            holder.signal(signal.SIGTERM)
            job = asyncio.create_task(made.job(float(number)))
            await waiter.said("lease.acquired")
            found.append(time.monotonic() - began)
            await job
            await holder.ended()
            holder = waiter
    _print("SIGTERM of the holder to another's lease", found)


async def _ready(made: Rig, stack: AsyncExitStack, name: str) -> WorkerProcess:
    return await (await stack.enter_async_context(made.worker(name))).ready(timeout_s=READY_S)


async def _holding(made: Rig, stack: AsyncExitStack, name: str) -> WorkerProcess:
    worker = await _ready(made, stack, name)
    await made.job(0.0)
    return worker


async def _foreign(made: Rig) -> None:
    """A process of somebody else computes on the GPU that a worker holds."""
    async with made.worker("f0") as holder:
        await holder.ready(timeout_s=READY_S)
        await made.job(1.0)
        with _Stranger() as stranger:
            seen = await holder.said("gpu.foreign_processes")
            assert stranger.pid in seen["pids"], seen
            print(f"a foreign process was seen {time.monotonic() - stranger.began:.1f} s after its start")
            print(f"  a job of the resident model beside it: {await made.job(2.0) * 1e3:.1f} ms")
        await holder.said("gpu.foreign_processes_gone")


async def _not_free(made: Rig) -> None:
    """The GPU is not free when its lease could be had."""
    with _Stranger():
        async with made.worker("d0") as worker:
            await worker.ready(timeout_s=READY_S)
            job = asyncio.create_task(made.job(1.0))
            said = await worker.said("gpu.not_free")
            print(f"a GPU that is not free was left alone: {said['why']}, {said['used_bytes'] >> 20} MiB used")
            job.cancel()


class _Stranger:
    """A foreign process with a GiB on the GPU."""

    def __enter__(self) -> Self:
        argv = [sys.executable, "-c", _HOLDS]
        self._process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._process.stdout is not None
        self._process.stdout.readline()
        self.began, self.pid = time.monotonic(), self._process.pid
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


def _judged(samples: list[Sample], idle: int) -> int:
    """Print whether any two runners computed at once, or one entered before the memory was back; 1 if so."""
    crowded = [sample for sample in samples if len(sample.pids) > 1]
    early = [
        after
        for before, after in pairwise(samples)
        if after.pids - before.pids and not before.pids and before.used > idle + FREE_BYTES
    ]
    runners = len(frozenset().union(*(sample.pids for sample in samples)))
    print(
        f"NVML was read {len(samples)} times and showed {runners} runners, two at once {len(crowded)} times, one that "
        f"entered before the memory was back {len(early)} times"
    )
    return 1 if crowded or early else 0


def _print(what: str, seconds: list[float]) -> None:
    found = sorted(seconds)
    print(f"{what}: n {len(found)}, p50 {statistics.median(found):.2f} s, max {found[-1]:.2f} s", flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m verification.gpu", description=__doc__)
    parser.add_argument("--rounds", type=int, default=10, help="of both ways to another holder (%(default)s)")
    parser.add_argument("--user", default="", help="of the runners, whose sandbox is strict then")
    options = parser.parse_args()
    os.environ.setdefault(BALLAST, "8192")
    sys.exit(asyncio.run(main(options.rounds, options.user)))
