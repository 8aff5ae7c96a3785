"""Keeps one guard and under it one runner alive, shows the runner its files, and reports their starts and ends."""

import asyncio
import os
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

from msgspec.structs import replace

from signalbox.program import log
from signalbox.program.errors import Misconfigured
from signalbox.program.tasks import Background, TaskGroup
from signalbox.wire import names
from signalbox.wire.workerdocs import Device
from workers.device.settings import DeviceSettings
from workers.guard.link import GuardLink, GuardOrders, GuardReport, StartGuard
from workers.runner.link import RunnerLink
from workers.runner.staging import MakeStages, Stages, Staging
from workers.sandbox import privileges

RUNNER = "workers.runner.process"
"""The module a runner runs."""
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_PASSED_ON: Final = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})
_PASSED_ON_PREFIXES: Final = ("CUDA_", "NVIDIA_", "XLA_", "TF_", "OMP_", "KMP_")
_MALLOC: Final = {"hugetlb": 1, "arena_max": 1, "mmap_threshold": 1 << 28, "trim_threshold": 1 << 28}
"""glibc's tunables. The kernel takes gigabytes back page by page before it frees the flock: large pages are 500 times
fewer. Tensors below 256 MiB come from one heap that keeps as much between runs, or each run of a convolutional network
would have its pages cleared anew; a heap of a thread's own could not hold them. The engine gives it back.
"""
_HEALTHY_S: Final = 5.0
"""A process that lived this long may be replaced at once."""
_FIRST_BACKOFF_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 30.0


class GuardedRunner:
    """The guard and the runner of one device, and the files that the runner is shown.

    on_report: each report of the guard, after the runner's link knows of it; beside those ``ready`` when a runner is
    ready, outside the device, and ``gone`` when the guard has ended, and its runner with it. start_guard: makes a
    guard's process. make_stages: what shows the runner the files of what it loads.
    """

    def __init__(
        self,
        device: Device,
        settings: DeviceSettings,
        *,
        on_report: Callable[[GuardReport], None],
        start_guard: StartGuard = GuardLink,
        make_stages: MakeStages | None = None,
    ) -> None:
        self._device, self._settings = device, settings
        self._stages = _stages(settings, make_stages or Staging)
        self.runner = RunnerLink(
            self._kill_runner,
            stage=self._stages.staged,
            frame_limit_bytes=settings.frame_limit_bytes,
            frozen_s=settings.frozen_s,
        )
        self._answer_s = settings.kill_s + settings.request_timeout_s
        """For a guard to answer before it counts as frozen."""
        self._on_report = on_report
        self._make_guard = start_guard
        self._guard: GuardOrders | None = None
        self._is_gone = asyncio.Event()
        self._spawned: asyncio.Future[int] | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._tasks = Background()
        self._log = log.get_logger(gpu=device.id)

    def start(self) -> None:
        """Keep guard and runner alive from now on, in the main thread. Raises :class:`Misconfigured`."""
        try:
            self._stages.make()
        except OSError as error:
            raise Misconfigured(
                f"SIGNALBOX_WORKER_STAGING_DIR: no version can be staged in {self._stages.folder.parent}:"
                f" {error.strerror}."
            ) from error
        self._tasks.start(self._keep(), name=f"guard and runner of {self._device.id}")

    async def close(self) -> None:
        """End guard and runner, and remove what the runner was shown. Idempotent."""
        await self._tasks.cancel()
        self._stages.remove()

    def order(self, verb: str, *numbers: int) -> bool:
        """Tell the guard to do something (a method of :class:`GuardOrders`); False where there is none."""
        if self._guard is None:
            return False
        getattr(self._guard, verb)(*numbers)
        if self._silence is None:
            self._silence = asyncio.get_running_loop().call_later(self._answer_s, self._on_silence)
        return True

    def _kill_runner(self) -> None:
        self.order("kill")

    async def _keep(self) -> None:
        """Keep guard and runner alive until cancelled, then end them."""
        loop = asyncio.get_running_loop()
        backoff_s = _FIRST_BACKOFF_S
        while True:
            started = loop.time()
            guard = self._start_guard()
            try:
                async with TaskGroup() as group:
                    runner = group.create_task(self._keep_runner(guard))
                    await self._is_gone.wait()
                    runner.cancel()
            finally:
                self._guard = None
                self._note_message()
                await asyncio.shield(guard.close(self._settings.kill_s))
                self.runner.detach()
            self._log.error("guard.ended", pid=guard.pid)
            self._on_report(GuardReport("gone"))
            was_well = loop.time() - started > _HEALTHY_S
            backoff_s = _next_backoff(backoff_s, was_well=was_well)
            await asyncio.sleep(backoff_s)

    def _start_guard(self) -> GuardOrders:
        self._is_gone.clear()
        self._guard = self._make_guard(
            self._settings.lock_dir / f"gpu-{names.token(self._device.id)}.lock",
            [sys.executable, *self._runner_argv()],
            _environment(self._device),
            is_runner_kept=self._settings.is_kept(self._device),
            on_report=self._receive,
        )
        return self._guard

    def _runner_argv(self) -> list[str]:
        settings, device, sandbox = self._settings, self._device, self._settings.sandbox
        if sandbox.model_folders:  # the runner sees what the worker has taken from there
            sandbox = replace(sandbox, model_folders=(str(self._stages.folder),))
        options = {
            "--gpu": device.id,
            "--kind": device.kind,
            "--intra": str(settings.intra_threads),
            "--inter": str(settings.inter_threads),
            "--frame-limit": str(settings.frame_limit_bytes),
            "--interval-log": settings.interval_log,
            "--sandbox": sandbox.argument(),
        }
        return ["-m", RUNNER, *(word for option in options.items() for word in option)]

    async def _keep_runner(self, guard: GuardOrders) -> None:
        """Start a runner whenever there is none; with a growing delay if it dies before it has answered anything.

        One that has answered is replaced at once: a job that kills runners is counted, and must not delay others.
        """
        loop = asyncio.get_running_loop()
        backoff_s = _FIRST_BACKOFF_S
        while True:
            started = loop.time()
            self._spawned = loop.create_future()
            ends = guard.spawn()
            pid = await self._spawned
            await self.runner.attach(ends, pid)
            try:
                async with asyncio.timeout(self._settings.ready_timeout_s):
                    await self.runner.until_ready()
            except TimeoutError:
                self._log.error("runner.not_ready", pid=pid)
                guard.kill()
            if self.runner.ready.is_set():
                self._log.info("runner.ready", pid=pid, seconds=round(loop.time() - started, 2))
                self._on_report(GuardReport("ready", pid))
            await self.runner.died.wait()
            was_well = self.runner.is_useful or loop.time() - started > _HEALTHY_S
            backoff_s = _next_backoff(backoff_s, was_well=was_well)
            await asyncio.sleep(backoff_s)

    def _receive(self, report: GuardReport) -> None:
        self._note_message()
        if report.verb == "gone":
            self._is_gone.set()
            return
        if report.verb == "spawned" and self._spawned is not None and not self._spawned.done():
            self._spawned.set_result(report.number)
        elif report.verb == "died":
            self._log.info("runner.died", pid=report.number, status=report.status)
            self.runner.detach(report.number)
        elif report.verb == "flooded":
            self.runner.flooded()
        elif report.verb.startswith("error"):
            self._log.error("guard.order_failed", what=report.verb.removeprefix("error "), errno=report.number)
            if report.verb != "error enter" and self._guard is not None:
                self._guard.kill_all()  # no room for another process; the next guard starts after a growing delay
        self._on_report(report)

    def _note_message(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _on_silence(self) -> None:
        """Kill a guard that does not answer, most likely frozen: no other process would fence the runner."""
        self._silence = None
        if self._guard is not None:
            self._log.error("guard.silent", pid=self._guard.pid)
            self._guard.kill_all()


def _stages(settings: DeviceSettings, make: MakeStages) -> Stages:
    sandbox = settings.sandbox
    reader = privileges.find_user(sandbox.user, []) if sandbox.user else None
    parent = settings.staging_dir or Path(tempfile.gettempdir())
    return make(parent, sandbox.model_folders, reader.gid if reader else None)


def _next_backoff(backoff_s: float, *, was_well: bool) -> float:
    return _FIRST_BACKOFF_S if was_well else min(backoff_s * 2, _LONGEST_BACKOFF_S)


def _environment(device: Device) -> dict[str, str]:
    """The environment of guard and runner: no settings of Signalbox, no secrets, and one device."""
    passed = {
        name: value for name, value in os.environ.items() if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIXES)
    }
    return passed | {
        "CUDA_VISIBLE_DEVICES": "" if device.kind == "cpu" else device.id,
        "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
        "TF_FORCE_GPU_ALLOW_GROWTH": "true",
        # Where a CPU has instructions for neural networks, oneDNN's arena would keep what versions have left for ever.
        "TF_ONEDNN_USE_SYSTEM_ALLOCATOR": passed.get("TF_ONEDNN_USE_SYSTEM_ALLOCATOR", "true"),
        "GLIBC_TUNABLES": ":".join(f"glibc.malloc.{name}={value}" for name, value in _MALLOC.items()),
        # Signatures need no Keras, and importing it is a third of TensorFlow's start. Without the
        # old Keras, which is not installed either, TensorFlow goes on with none.
        "TF_USE_LEGACY_KERAS": passed.get("TF_USE_LEGACY_KERAS", "1"),
        "TF_CPP_MIN_LOG_LEVEL": passed.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "PYTHONPATH": _ROOT,
        "PYTHONNOUSERSITE": "1",
        "SIGNALBOX_RUNNER": "1",
    }
