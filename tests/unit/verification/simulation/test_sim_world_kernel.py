"""The simulated kernel keeps the promises of the real one that test_lease_guard.py measures."""

import asyncio
import math
import time
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest

from verification.simulation.guarding import SimGuardLink
from verification.simulation.kernel import Machine, Process
from verification.simulation.loop import Clock, SimLoop, running
from verification.simulation.runner import Device, SimRunner, Sockets
from workers.guard import process as production
from workers.guard.link import GuardReport

LOCK = "/locks/gpu.lock"


class Ear:
    """A supervisor that has a guard, and receives it."""

    def __init__(self, machine: Machine, device: Device, name: str) -> None:
        self.process = Process(machine, name, None)
        self.words: asyncio.Queue[GuardReport] = asyncio.Queue()
        self.runner: Process | None = None

        def start_runner(guard: Process, sockets: Sockets) -> Process:
            self.runner = Process(machine, f"runner of {name}", guard)
            SimRunner(self.runner, sockets, device, name, 0.2)
            return self.runner

        self.link = SimGuardLink(
            self.process, Path(LOCK), is_runner_kept=True, on_report=self.words.put_nowait, start_runner=start_runner
        )

    async def receive(self, verb: str) -> GuardReport:
        while (word := await self.words.get()).verb != verb:
            pass
        return word

    async def inside(self, token: int, seconds: float) -> None:
        await self.receive("guard")
        self.link.spawn()
        await self.receive("spawned")
        self.link.lock()
        await self.receive("locked")
        machine = self.process.machine
        self.link.enter(token, int((machine.clock.boottime(machine.loop.now) + seconds) * 1e9))
        await self.receive("entered")


Story = Callable[[SimLoop, Machine, Device], Coroutine[Any, Any, None]]


def play(story: Story) -> Device:
    device = Device("none")
    for seed in range(20):
        device = Device(f"gpu {seed}")
        with running(seed) as loop:
            machine = Machine(loop, "host", str(seed), Clock(rate=1.0 + seed / 2000))
            loop.run_until_complete(asyncio.wait_for(story(loop, machine, device), 600))
    return device


async def started(loop: SimLoop, ear: Ear, seconds: float = 10.0) -> None:
    await loop.spawn(ear.process.program, ear.inside(1, seconds))


def test_end_of_the_supervisor_is_the_end_of_guard_and_runner_and_frees_the_flock() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        first, second = Ear(machine, device, "a"), Ear(machine, device, "b")
        await started(loop, first)
        at = loop.now
        first.process.kill()
        await loop.spawn(second.process.program, second.inside(2, 10.0))
        assert loop.now - at < 1.0
        assert device.stays[0].left is not None
        assert first.runner is not None
        assert not first.runner.is_alive

    assert play(story).overlaps == []


def test_runner_of_a_frozen_supervisor_is_dead_soon_after_its_deadline() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        ear = Ear(machine, device, "a")
        await started(loop, ear)
        ear.process.stop()
        at = loop.now
        await asyncio.sleep(30)
        left = device.stays[0].left
        assert left is not None
        assert 9.5 < left - at < 10.5

    play(story)


def is_inside(device: Device) -> bool:
    return device.stays[0].left is None


def left_after_waking(nap_s: float) -> list[float]:
    """Seconds from a machine's resume to the end of its runner, whose supervisor never says a word of it."""
    found: list[float] = []

    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        await started(loop, Ear(machine, device, "a"))
        machine.suspend()
        await asyncio.sleep(nap_s)
        assert is_inside(device)  # nothing can end while nothing runs
        machine.resume()
        woke_at = loop.now
        await asyncio.sleep(100)
        left = device.stays[0].left
        found.append(math.inf if left is None else left - woke_at)

    play(story)
    return found


def test_guard_ends_its_runner_as_the_machine_wakes_past_its_deadline() -> None:
    assert max(left_after_waking(60.0)) < 0.5


def test_machine_that_wakes_before_the_deadline_has_the_rest_of_its_time() -> None:
    found = left_after_waking(5.0)
    assert min(found) > 4.0
    assert max(found) < 5.5


def test_guard_that_sleeps_through_its_deadline_is_found_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(production, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
    assert min(left_after_waking(60.0)) > 4.0


def is_held(machine: Machine) -> bool:
    return machine.files[LOCK].owner is not None


def test_killed_while_it_sleeps_dies_and_frees_its_lock_as_the_machine_wakes() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        ear = Ear(machine, device, "a")
        await started(loop, ear, 1000.0)
        machine.suspend()
        ear.process.kill()
        await asyncio.sleep(60)
        assert is_held(machine)
        machine.resume()
        await asyncio.sleep(1)
        assert not ear.process.is_alive
        assert not is_held(machine)

    play(story)


def test_power_lost_in_its_sleep_brings_a_machine_back_awake() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        await started(loop, Ear(machine, device, "a"), 100.0)
        machine.suspend()
        await asyncio.sleep(60)
        machine.reboot()
        assert machine.clock.boottime(loop.now) == machine.clock.monotonic(loop.now) == 0
        await started(loop, Ear(machine, device, "b"))

    assert play(story).overlaps == []


def test_frozen_guard_keeps_the_flock_and_a_killed_one_takes_the_runner_along() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        first, second = Ear(machine, device, "a"), Ear(machine, device, "b")
        await started(loop, first)
        guard = machine.processes[first.link.pid]
        guard.stop()
        waiting = loop.spawn(second.process.program, second.inside(2, 10.0))
        await asyncio.sleep(100)
        assert not waiting.done()
        guard.kill()
        await waiting

    assert play(story).overlaps == []


def test_runner_in_the_d_state_keeps_the_flock_until_it_is_gone() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        first, second = Ear(machine, device, "a"), Ear(machine, device, "b")
        await started(loop, first)
        assert first.runner is not None
        first.runner.is_stuck = True
        first.process.kill()
        waiting = loop.spawn(second.process.program, second.inside(2, 10.0))
        await asyncio.sleep(100)
        assert not waiting.done()
        first.runner.is_stuck = False
        await waiting

    assert play(story).overlaps == []


def test_overlap_is_noticed_where_the_lock_file_was_replaced_under_a_holder() -> None:
    async def story(loop: SimLoop, machine: Machine, device: Device) -> None:
        await started(loop, Ear(machine, device, "a"), 100.0)
        machine.unlink(LOCK)
        second = Ear(machine, device, "b")
        await loop.spawn(second.process.program, second.inside(2, 10.0))

    assert len(play(story).overlaps) == 1
