"""The NVIDIA path with NVML's library made by this test: memory, processes, faults, hangs, a dirty GPU.

No real GPU is used here; what only a real one shows stands in docs/sandbox.md as not run.
"""

import asyncio
import json
import os
import shutil
import signal
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest

from signalbox.program import metrics
from signalbox.program.errors import Misconfigured
from signalbox.wire.workerdocs import Device
from tests.integration.workers.test_lease_devices import QUICK, Worker
from tests.rigs import workerhouse
from tests.rigs.natsserver import NatsServer
from tests.rigs.submit import Ledger, floats, register
from tests.rigs.workerprocess import WorkerProcess
from verification.chaos.evidence import journal
from workers.device import devices, foreign
from workers.device.devices import Gpu, Unfree, find, unfree, wait_until_free
from workers.device.guardedrunner import _environment

SOURCE = Path(__file__).parents[2] / "rigs" / "nvml" / "fake_nvml.c"
UUID = "GPU-5c1d3e9a-0000-1111-2222-333344445555"
OTHER = "GPU-0a0b0c0d-0000-1111-2222-333344445555"
MIG = "MIG-11111111-0000-1111-2222-333344445555"
GIB = 1 << 30
DEVICE = Device(id=UUID, kind="nvidia", name="Fake GPU", memory_bytes=80 * GIB)
LIMIT_S = 60.0

State = Callable[..., None]


@pytest.fixture(scope="session")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that holds our libnvidia-ml.so.1."""
    compiler = shutil.which("gcc") or shutil.which("cc")
    if compiler is None:
        pytest.skip("no C compiler to make the library with")
    folder = tmp_path_factory.mktemp("nvml")
    subprocess.run(
        [compiler, "-shared", "-fPIC", "-Wall", "-Werror", "-O1", "-o", str(folder / "libnvidia-ml.so.1"), str(SOURCE)],
        check=True,
        capture_output=True,
        timeout=LIMIT_S,
    )
    return folder


@pytest.fixture
def state(library: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> State:
    """Sets what NVML shows, at once and for whoever asks next."""
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    file = tmp_path / "nvml"
    monkeypatch.setenv("NVIDIA_FAKE_STATE", str(file))
    monkeypatch.setattr(devices, "_HELPERS", devices._Helpers())

    def write(*lines: str) -> None:
        draft = file.with_suffix(".draft")
        draft.write_text("".join(f"{line}\n" for line in lines))
        draft.rename(file)

    write(gpu())
    return write


def gpu(used: int = 0, processes: int = 0, error: int = 0, uuid: str = UUID, mig: str = "") -> str:
    return f"{uuid} {80 * GIB} {used} {processes} {error} {mig}"


def used_by(*pids: int) -> str:
    return f"{UUID} {80 * GIB} {GIB} ={','.join(map(str, pids))} 0"


def counted(reason: str) -> float:
    found = metrics.REGISTRY.get_sample_value("signalbox_gpu_quarantine_total", {"reason": reason})
    return found or 0.0


async def test_devices_are_found_by_index_and_by_uuid(state: State, tmp_path: Path) -> None:
    state(gpu(uuid=OTHER), gpu())
    assert (await find("gpu:1", tmp_path)).id == UUID
    found = await find(OTHER, tmp_path)
    assert (found.id, found.kind, found.memory_bytes) == (OTHER, "nvidia", 80 * GIB)
    with pytest.raises(Misconfigured, match=UUID):
        await find("gpu:7", tmp_path)


async def test_a_mig_instance_is_a_device_of_its_own(state: State, tmp_path: Path) -> None:
    state(gpu(used=3 * GIB, mig=f"{MIG} {10 * GIB} 0"))
    found = await find(MIG, tmp_path)
    assert (found.id, found.memory_bytes) == (MIG, 10 * GIB)
    assert await wait_until_free(found, timeout_s=LIMIT_S)


async def test_without_the_library_there_are_no_gpus(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(tmp_path))
    if await devices._HELPERS.list_gpus():
        pytest.skip("this machine has an NVIDIA driver")
    with pytest.raises(Misconfigured, match="there is: cpu:0"):
        await find("gpu:0", tmp_path)


async def test_a_driver_that_refuses_is_said(state: State, tmp_path: Path) -> None:
    state("init 18", gpu())  # library and driver of different versions
    with pytest.raises(Misconfigured, match="does not answer"):
        await find("gpu:0", tmp_path)


async def test_a_helper_that_hangs_is_ended_and_no_second_one_is_started(
    state: State, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_NVML_TIMEOUT_S", 1.0)
    monkeypatch.setattr(devices, "_KILL_S", LIMIT_S)
    state(gpu(error=-1))
    helpers = devices._HELPERS
    assert await helpers.list_gpus() is None
    hung = helpers._hung
    assert hung is not None
    assert hung.returncode == -signal.SIGKILL
    state(gpu())
    monkeypatch.setattr(devices, "_NVML_TIMEOUT_S", LIMIT_S)
    assert [found.uuid for found in await helpers.list_gpus() or []] == [UUID]

    class Stuck:
        """A process in the kernel's D state: SIGKILL changes nothing."""

        returncode = None

    helpers._hung = Stuck()  # type: ignore[assignment]  # no test can make such a process
    assert await helpers.list_gpus() is None


async def test_one_helper_looks_again_and_again_until_it_hangs_and_is_ended(
    state: State, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(devices, "_NVML_TIMEOUT_S", LIMIT_S)
    monkeypatch.setattr(devices, "_KILL_S", LIMIT_S)
    seen = []
    async with aclosing(devices.watch(0.01)) as readings:
        async for gpus in readings:
            seen.append(gpus[0].pids)
            if seen == [()]:
                state(used_by(7, 8))
            elif seen[-1] == (7, 8):
                state(gpu(error=-1))
                monkeypatch.setattr(devices, "_NVML_TIMEOUT_S", 1.0)
    assert seen[0] == ()
    assert seen[-1] == (7, 8)
    hung = devices._HELPERS._hung
    assert hung is not None
    assert hung.returncode == -signal.SIGKILL


async def test_a_free_gpu_is_free_at_once(state: State) -> None:
    state(gpu(used=60 << 20, processes=-1))  # a little, and a list that may not be seen
    assert await wait_until_free(DEVICE, timeout_s=LIMIT_S)


@pytest.mark.parametrize(
    ("line", "why"),
    [
        (gpu(used=5 * GIB), Unfree.MEMORY),
        (gpu(used=65 << 20), Unfree.MEMORY),
        (gpu(processes=2), Unfree.PROCESS),
        (gpu(error=15), Unfree.FAULT),
        (gpu(uuid=OTHER), Unfree.GONE),
        ("init 999", Unfree.SILENT),
    ],
)
async def test_a_gpu_that_is_not_free_is_given_up_with_the_reason(state: State, line: str, why: Unfree) -> None:
    state(line)
    before = counted(why)
    assert not await wait_until_free(DEVICE, timeout_s=0.2)
    assert counted(why) == before + 1


async def test_what_a_gpu_always_shows_is_no_dirt(state: State) -> None:
    state(gpu(used=600 << 20))
    assert await wait_until_free(DEVICE, timeout_s=LIMIT_S, idle_bytes=550 << 20)


async def test_a_gpu_that_becomes_free_is_taken(state: State) -> None:
    state(gpu(used=40 * GIB, processes=1))
    waiting = asyncio.create_task(wait_until_free(DEVICE, timeout_s=LIMIT_S))
    await asyncio.sleep(0)
    state(gpu())
    assert await waiting


def test_memory_decides_before_processes_and_silence_before_both() -> None:
    dirty = Gpu(index=0, uuid=UUID, name="x", used_bytes=GIB, pids=(1, 2, 3))
    assert unfree([dirty], UUID, 0) is Unfree.MEMORY
    assert unfree(None, UUID, 0) is Unfree.SILENT
    assert unfree([], UUID, 0) is Unfree.GONE


def test_the_helper_sees_no_secrets_and_the_runner_sees_one_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIGNALBOX_NATS_PASSWORD", "secret")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    assert not [name for name in devices._environment() if name.startswith("SIGNALBOX_")]
    runner = _environment(DEVICE)
    assert runner["CUDA_VISIBLE_DEVICES"] == UUID
    assert runner["CUDA_DEVICE_ORDER"] == "PCI_BUS_ID"
    assert "SIGNALBOX_NATS_PASSWORD" not in runner


@pytest.fixture
async def worker(state: State, nats: NatsServer, tmp_path: Path) -> AsyncIterator[Callable[[], Awaitable[Worker]]]:
    started: list[Worker] = []

    async def start() -> Worker:
        rules = {**QUICK, "lock_wait_s": 2.0, "quarantine_s": 2.0}
        device = {"id": UUID, "kind": "nvidia", "name": "Fake GPU"}
        facts = {"url": nats.url, "worker": "w1", "lock_dir": str(tmp_path / "locks"), "rules": rules, "device": device}
        worker = await Worker.start(facts, tmp_path / "log")
        started.append(worker)
        return worker

    yield start
    for each in started:
        each.process.kill()
        await each.process.wait()


async def is_left_alone(worker: Worker) -> bool:
    worker.tell("usable")
    return bool((await worker.receive("usable"))["is_left_alone"])


async def test_a_dirty_gpu_is_left_alone_and_taken_when_it_is_clean(
    worker: Callable[[], Awaitable[Worker]], state: State, nats: NatsServer, tmp_path: Path
) -> None:
    """The lease is given back meanwhile, so that others see it; the runner never enters."""
    state(gpu(used=10 * GIB))
    one = await worker()
    await one.receive("ready")
    log = tmp_path / "log"
    async with asyncio.timeout(LIMIT_S):
        # Left alone, tried again, left alone again.
        while log.read_text().count("gpu.entry_refused") < 2:  # noqa: ASYNC110  another process writes it
            await asyncio.sleep(0.05)
        while not await is_left_alone(one):
            pass  # it tries just now
    assert not [fact for fact in one.seen if fact["event"] == "held"]
    reasons = [json.loads(line) for line in journal.lines(log) if b"gpu.not_free" in line]
    assert {(fact["why"], fact["used_bytes"]) for fact in reasons} == {("memory", 10 * GIB)}
    state(gpu())
    held = await one.receive("held")
    assert held["token"] > 0
    assert not await is_left_alone(one)
    one.tell("run 0.01")
    await one.receive("answer")


def test_strangers_are_those_that_live_and_do_not_descend_from_the_runner(monkeypatch: pytest.MonkeyPatch) -> None:
    with subprocess.Popen(
        ["/bin/sh", "-c", "sleep 600 & echo $!; wait"], stdout=subprocess.PIPE, start_new_session=True
    ) as runner:
        assert runner.stdout is not None
        child = int(runner.stdout.readline())
        try:
            everybody = (runner.pid, child, os.getpid())
            assert foreign.foreign_processes(everybody, runner.pid) == {os.getpid()}
            monkeypatch.setattr(foreign, "_HOST", "")
            assert not foreign.foreign_processes((child, os.getpid()), runner.pid), "whose numbers are these?"
            monkeypatch.setattr(foreign, "_HOST", str(Path("/proc/self/ns/pid").readlink()))
            assert foreign.foreign_processes((child, os.getpid()), runner.pid) == {os.getpid()}
        finally:
            os.killpg(runner.pid, signal.SIGKILL)
    assert not foreign.foreign_processes((runner.pid,), os.getpid()), "it is gone"


async def test_nothing_more_is_loaded_beside_a_stranger_and_what_runs_goes_on(state: State, tmp_path: Path) -> None:
    async with (
        workerhouse.declared(tmp_path) as (url, bus),
        WorkerProcess(url, tmp_path, "w1", program="verification.chaos.rig.toyworker", worker_device="gpu:0") as worker,
    ):
        ledger = await Ledger(bus).start()
        await register(bus, "slow", tmp_path)
        await ledger.ended(await ledger.submit("slow", floats(0.0, name="seconds")))
        runner = (await worker.said("runner.ready"))["pid"]
        state(used_by(runner, os.getpid()))
        running = await ledger.submit("slow", floats(4.0, name="seconds"))
        found = await worker.said("gpu.foreign_processes")
        assert found["pids"] == [os.getpid()]
        await register(bus, "half", tmp_path)
        other = await ledger.submit("half", floats(1.0))
        served = await ledger.ended(running, await ledger.submit("slow", floats(0.0, name="seconds")))
        for _ in range(3):  # each of these is younger than the other model's job
            served += await ledger.ended(await ledger.submit("slow", floats(0.0, name="seconds")))
        assert ledger.open([other])
        assert [line["model"] for line in worker.lines if line["event"] == "model.loaded"] == ["slow"]
        state(used_by(runner))
        await worker.said("gpu.foreign_processes_gone")
        served += await ledger.ended(other)
    assert {(record.state.value, record.token) for record in served} == {("succeeded", served[0].token)}
    assert not [line for line in worker.lines if line["event"] == "runner.died"][1:], "but at its end"
