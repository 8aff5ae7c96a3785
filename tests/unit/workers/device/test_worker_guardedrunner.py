"""How long a worker is without a runner, on the simulated kernel: one that dies before use comes back slower."""

import errno
from itertools import pairwise
from pathlib import Path

import pytest

from signalbox.program.errors import RunnerCrashed
from signalbox.wire.workerdocs import Device
from tests.rigs.unstaged import Unstaged
from verification.simulation import runner as simulated
from verification.simulation.guarding import SimGuard, starter
from verification.simulation.kernel import Machine, Process
from verification.simulation.loop import Clock, SimLoop, running
from workers.device.guardedrunner import GuardedRunner
from workers.device.settings import DeviceSettings
from workers.guard.link import GuardReport

RESTARTS = 8
FOR_EVER_NS = 10**18
CRASH = simulated.encode(simulated.Task("fatal", does="crash"))


class House:
    """A guard whose runners are let into the device. pauses: seconds from each runner's death to the next one."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.pauses: list[float] = []
        self._died_at = 0.0
        machine = Machine(loop, "host", "boot", Clock())
        self.process = Process(machine, "worker", None)
        self.guarded = GuardedRunner(
            Device(id="0", kind="gpu", name="0"),
            DeviceSettings(
                lock_dir=Path("/locks"),
                ready_timeout_s=10.0,
                kill_s=5.0,
                frame_limit_bytes=simulated.FRAME_LIMIT_BYTES,
                is_runner_kept=True,
            ),
            on_report=self._receive,
            start_guard=starter(self.process, self._start_runner),
            make_stages=Unstaged,
        )

    def _start_runner(self, guard: Process, sockets: simulated.Sockets) -> Process:
        process = Process(guard.machine, "runner", guard)
        simulated.SimRunner(process, sockets, simulated.Device("0"), "boot", 0.1)
        return process

    def _order(self, verb: str, *numbers: int) -> None:
        assert self.guarded.order(verb, *numbers)

    def _receive(self, word: GuardReport) -> None:
        if word.verb == "ready":
            self._order("lock")
        elif word.verb == "locked":
            self._order("enter", 1, FOR_EVER_NS)
        elif word.verb == "entered":
            self.guarded.runner.admit(1)
        elif word.verb == "died":
            self._died_at = self.loop.now
        elif word.verb == "spawned" and self._died_at:
            self.pauses.append(self.loop.now - self._died_at)

    async def crash_by_a_job(self) -> None:
        runner = self.guarded.runner
        await runner.entered.wait()
        await runner.load("m", 1, "/m")
        with pytest.raises(RunnerCrashed):
            await runner.run("m", 1, "s", [CRASH])
        await runner.died.wait()

    async def crash_unasked(self) -> None:
        runner = self.guarded.runner
        await runner.ready.wait()
        runner.kill()
        await runner.died.wait()

    async def restarts(self, *, is_asked: bool) -> list[float]:
        self.guarded.start()
        for _ in range(RESTARTS):
            await (self.crash_by_a_job() if is_asked else self.crash_unasked())
        await self.guarded.runner.ready.wait()
        await self.guarded.close()
        return self.pauses


def pauses(*, is_asked: bool) -> list[float]:
    """Between runners that all die, by a job or before they had one."""
    with running(1) as loop:
        house = House(loop)
        story = house.restarts(is_asked=is_asked)
        return loop.run_until_complete(loop.spawn(house.process.program, story))


def test_a_job_that_kills_runners_does_not_make_the_others_wait() -> None:
    found = pauses(is_asked=True)
    assert len(found) == RESTARTS
    assert max(found) < 0.1


def test_runners_that_die_before_they_are_any_use_come_back_slower_and_slower() -> None:
    found = pauses(is_asked=False)
    assert found == sorted(found)
    assert found[-1] > 100 * found[0]


def test_guard_that_cannot_fork_is_replaced_later_and_later(monkeypatch: pytest.MonkeyPatch) -> None:
    fork, refused_at = SimGuard._fork, list[float]()

    def refuse(guard: SimGuard, what: object) -> None:
        if len(refused_at) < RESTARTS:
            refused_at.append(guard.kernel.loop.now)
            guard.feed("refused", errno.EAGAIN)
        else:
            fork(guard, what)

    monkeypatch.setattr(SimGuard, "_fork", refuse)
    with running(0) as loop:
        house = House(loop)

        async def live() -> None:
            house.guarded.start()
            await house.guarded.runner.ready.wait()
            await house.guarded.close()

        loop.run_until_complete(loop.spawn(house.process.program, live()))
    pauses = [after - before for before, after in pairwise(refused_at)]
    assert len(pauses) == RESTARTS - 1
    assert all(after > 1.5 * before for before, after in pairwise(pauses))
