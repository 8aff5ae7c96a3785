"""Keeps one guard and under it one runner alive, and reports their starts and ends."""

import asyncio
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from signalbox.program import log
from signalbox.wire.messages import Device
from workers.guard.link import GuardLink, GuardOrders, GuardReport, StartGuard
from workers.runner.link import RunnerLink, Stage
from workers.runner.wire import FROZEN_S

RUNNER = "workers.runner.process"
"""The module a runner runs."""
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_PASSED_ON: Final = frozenset({"PATH", "HOME", "LANG", "LC_ALL", "TZ", "TMPDIR", "LD_LIBRARY_PATH", "VIRTUAL_ENV"})
_PASSED_ON_PREFIXES: Final = ("CUDA_", "NVIDIA_", "XLA_", "TF_", "OMP_", "KMP_")
_HEALTHY_S: Final = 5.0
"""A process that lived this long may be replaced at once."""
_FIRST_BACKOFF_S: Final = 0.05
_LONGEST_BACKOFF_S: Final = 30.0


class Timing(NamedTuple):
    """ready_s: for a runner to import TensorFlow. answer_s: for a guard to answer before it counts as
    frozen. kill_s: from the order to end to the end. frozen_s: for a runner without a beat to count as frozen."""

    ready_s: float
    answer_s: float
    kill_s: float
    frozen_s: float = FROZEN_S


class GuardedRunner:
    """The guard and the runner of one leased.

    on_report: each report of the guard, after the runner's link knows of it. on_ready: called when a runner is ready,
    outside the device. on_gone: called when the guard has ended, and its runner with it. start_guard: makes a guard's
    process. stage: shows the runner the files of what it loads.
    """

    def __init__(
        self,
        device: Device,
        lock_path: Path,
        runner_argv: Sequence[str],
        *,
        stage: Stage,
        is_runner_kept: bool,
        timing: Timing,
        frame_limit_bytes: int,
        on_report: Callable[[GuardReport], None],
        on_ready: Callable[[], None],
        on_gone: Callable[[], None],
        start_guard: StartGuard = GuardLink,
    ) -> None:
        self.runner = RunnerLink(
            self._kill_runner, stage=stage, frame_limit_bytes=frame_limit_bytes, frozen_s=timing.frozen_s
        )
        self._device, self._lock_path = device, lock_path
        self._argv, self._is_runner_kept = ["-m", RUNNER, *runner_argv], is_runner_kept
        self._timing = timing
        self._on_report, self._on_ready, self._on_gone = on_report, on_ready, on_gone
        self._make_guard = start_guard
        self._guard: GuardOrders | None = None
        self._is_gone = asyncio.Event()
        self._spawned: asyncio.Future[int] | None = None
        self._silence: asyncio.TimerHandle | None = None
        self._log = log.get_logger(gpu=device.id)

    @property
    def guard_pid(self) -> int:
        """Process id of the guard; 0 while there is none."""
        return self._guard.pid if self._guard is not None else 0

    def order(self, verb: str, *numbers: int) -> bool:
        """Tell the guard to do something (a method of :class:`GuardOrders`); False where there is none."""
        if self._guard is None:
            return False
        getattr(self._guard, verb)(*numbers)
        if self._silence is None:
            self._silence = asyncio.get_running_loop().call_later(self._timing.answer_s, self._on_silence)
        return True

    def _kill_runner(self) -> None:
        self.order("kill")

    async def run(self) -> None:
        """Keep guard and runner alive until cancelled, then end them."""
        loop = asyncio.get_running_loop()
        backoff_s = _FIRST_BACKOFF_S
        while True:
            started = loop.time()
            guard = self._start_guard()
            try:
                async with asyncio.TaskGroup() as group:
                    runner = group.create_task(self._keep_runner(guard))
                    await self._is_gone.wait()
                    runner.cancel()
            finally:
                self._guard = None
                self._hear_something()
                await asyncio.shield(guard.close(self._timing.kill_s))
                self.runner.detach()
            self._log.error("guard.ended", pid=guard.pid)
            self._on_gone()
            was_well = loop.time() - started > _HEALTHY_S
            backoff_s = _next_backoff(backoff_s, was_well=was_well)
            await asyncio.sleep(backoff_s)

    def _start_guard(self) -> GuardOrders:
        self._is_gone.clear()
        self._guard = self._make_guard(
            self._lock_path,
            [sys.executable, *self._argv],
            _environment(self._device),
            is_runner_kept=self._is_runner_kept,
            on_report=self._hear,
        )
        return self._guard

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
                async with asyncio.timeout(self._timing.ready_s):
                    await self.runner.until_ready()
            except TimeoutError:
                self._log.error("runner.not_ready", pid=pid)
                guard.kill()
            if self.runner.ready.is_set():
                self._log.info("runner.ready", pid=pid, seconds=round(loop.time() - started, 2))
                self._on_ready()
            await self.runner.died.wait()
            was_well = self.runner.is_useful or loop.time() - started > _HEALTHY_S
            backoff_s = _next_backoff(backoff_s, was_well=was_well)
            await asyncio.sleep(backoff_s)

    def _hear(self, report: GuardReport) -> None:
        self._hear_something()
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

    def _hear_something(self) -> None:
        if self._silence is not None:
            self._silence.cancel()
            self._silence = None

    def _on_silence(self) -> None:
        """Kill a guard that does not answer, most likely frozen: no other process would fence the runner."""
        self._silence = None
        if self._guard is not None:
            self._log.error("guard.silent", pid=self._guard.pid)
            self._guard.kill_all()


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
        # The kernel takes gigabytes back page by page before it frees the flock: large pages are 500 times fewer.
        "GLIBC_TUNABLES": "glibc.malloc.hugetlb=1",
        # Signatures need no Keras, and importing it is a third of TensorFlow's start. Without the
        # old Keras, which is not installed either, TensorFlow goes on with none.
        "TF_USE_LEGACY_KERAS": passed.get("TF_USE_LEGACY_KERAS", "1"),
        "TF_CPP_MIN_LOG_LEVEL": passed.get("TF_CPP_MIN_LOG_LEVEL", "2"),
        "PYTHONPATH": _ROOT,
        "PYTHONNOUSERSITE": "1",
        "SIGNALBOX_RUNNER": "1",
    }
