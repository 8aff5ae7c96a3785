"""The guard with real processes, a real flock and a runner that needs no TensorFlow."""

import asyncio
import errno
import fcntl
import os
import signal
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.rigs.guardhost import RUNNER
from tests.rigs.processes import gone, is_alive, resident_bytes
from workers.guard.link import GuardLink, GuardReport, RunnerEnds

LIMIT_S = 60.0


class Ear:
    """One guard and what it says."""

    def __init__(self, lock: Path, mode: str, *, is_kept: bool) -> None:
        self.words: asyncio.Queue[GuardReport] = asyncio.Queue()
        self.runners: list[RunnerEnds] = []
        self.link = GuardLink(lock, [*RUNNER[:-1], mode], {}, is_runner_kept=is_kept, on_report=self.words.put_nowait)

    async def receive(self, verb: str) -> GuardReport:
        async with asyncio.timeout(LIMIT_S):
            while (word := await self.words.get()).verb != verb:
                pass
        return word

    async def inside(self, token: int = 1, seconds: float = 60.0) -> int:
        """Runner started, flock taken, runner let in; its pid."""
        self.runners.append(self.link.spawn())
        pid = (await self.receive("spawned")).number
        self.link.lock()
        await self.receive("locked")
        self.link.enter(token, now_ns() + int(seconds * 1e9))
        assert (await self.receive("entered")).number == token
        return pid

    async def close(self) -> None:
        await self.link.close(LIMIT_S)
        for ends in self.runners:
            ends.close()


Start = Callable[..., Awaitable[Ear]]


@pytest.fixture
async def start(tmp_path: Path) -> AsyncIterator[Start]:
    ears: list[Ear] = []

    async def make(mode: str = "good", *, is_kept: bool = True) -> Ear:
        ear = Ear(tmp_path / "gpu.lock", mode, is_kept=is_kept)
        ears.append(ear)
        await ear.receive("guard")
        return ear

    yield make
    for ear in ears:
        await ear.close()


def now_ns() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


async def flock_is_free(path: Path) -> None:
    """Wait for the flock as a waiter does: blocking, in a process of its own."""
    code = f"import fcntl; fcntl.flock(open({str(path)!r}), fcntl.LOCK_EX)"
    process = await asyncio.create_subprocess_exec(sys.executable, "-I", "-S", "-c", code)
    async with asyncio.timeout(LIMIT_S):
        assert await process.wait() == 0


def flock_is_taken(path: Path) -> bool:
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        return False


async def host(lock: Path, seconds: float, mode: str = "good") -> tuple[asyncio.subprocess.Process, int, int, int]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.rigs.guardhost", str(lock), str(seconds), mode, stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    async with asyncio.timeout(LIMIT_S * 2):
        guard, runner, deadline = (int(x) for x in (await process.stdout.readline()).split())
    return process, guard, runner, deadline


async def test_guard_is_small(start: Start) -> None:
    ear = await start()
    await ear.inside()
    assert resident_bytes(ear.link.pid) <= 15_000_000


async def test_runner_is_not_let_in_without_the_flock(start: Start) -> None:
    ear = await start()
    ear.runners.append(ear.link.spawn())
    await ear.receive("spawned")
    ear.link.enter(1, now_ns() + 10**10)
    assert (await ear.receive("error enter")).number == errno.EAGAIN


async def test_token_is_on_disk_before_the_runner_is_in(start: Start, tmp_path: Path) -> None:
    ear = await start()
    await ear.inside(token=41)
    assert int((tmp_path / "gpu.lock").read_text()) == 41
    ear.link.leave()
    await ear.receive("left")
    ear.link.lock()
    assert (await ear.receive("locked")).number == 41


async def test_second_guard_waits_and_gets_the_flock_when_the_first_leaves(start: Start) -> None:
    first, second = await start(), await start()
    await first.inside()
    second.link.lock()
    await second.receive("busy")
    first.link.leave()
    await second.receive("locked")


async def test_waiting_for_the_flock_can_be_given_up(start: Start, tmp_path: Path) -> None:
    first, second = await start(), await start()
    await first.inside()
    second.link.lock()
    await second.receive("busy")
    second.link.unlock()
    await second.receive("unlocked")
    first.link.leave()
    await first.receive("left")
    assert not flock_is_taken(tmp_path / "gpu.lock")


async def test_flock_that_nobody_makes_use_of_is_given_back(start: Start, tmp_path: Path) -> None:
    ear = await start()
    ear.link.lock(100_000_000)
    await ear.receive("locked")
    assert (await ear.receive("fenced")).number == 1
    assert not flock_is_taken(tmp_path / "gpu.lock")


async def test_kept_runner_survives_leaving(start: Start) -> None:
    ear = await start()
    pid = await ear.inside()
    ear.link.leave()
    await ear.receive("left")
    assert is_alive(pid)
    ear.link.lock()
    await ear.receive("locked")
    ear.link.enter(2, now_ns() + 10**10)
    assert (await ear.receive("entered")).number == 2


async def test_runner_that_is_not_kept_is_dead_before_the_flock_is_free(start: Start, tmp_path: Path) -> None:
    ear = await start(is_kept=False)
    pid = await ear.inside()
    ear.link.leave()
    await flock_is_free(tmp_path / "gpu.lock")
    assert not is_alive(pid)
    await ear.receive("left")


async def test_runner_that_does_not_leave_is_killed(start: Start, tmp_path: Path) -> None:
    ear = await start("deaf")
    pid = await ear.inside()
    ear.link.leave()
    await flock_is_free(tmp_path / "gpu.lock")
    assert not is_alive(pid)


async def test_frozen_runner_is_killed_at_the_deadline(start: Start, tmp_path: Path) -> None:
    ear = await start()
    pid = await ear.inside(seconds=0.3)
    os.kill(pid, signal.SIGSTOP)
    assert (await ear.receive("fenced")).number == 1
    assert not is_alive(pid)
    assert not flock_is_taken(tmp_path / "gpu.lock")


async def test_confirmed_deadlines_keep_the_runner_alive(start: Start) -> None:
    """How late a busy machine confirms decides nothing here: every deadline but the last is far away."""
    ear = await start()
    pid = await ear.inside()
    for ahead_s in (30, 60, 5):
        ear.link.deadline(now_ns() + ahead_s * 1_000_000_000)
        await ear.receive("pong")
    ear.link.deadline(now_ns() + 60_000_000_000)
    await ear.receive("pong")
    await asyncio.sleep(5.5)  # the one before has passed, and nothing is to happen
    assert is_alive(pid)
    ear.link.deadline(now_ns() + 100_000_000)
    assert (await ear.receive("fenced")).number == 1


async def test_killing_the_runner_keeps_the_flock_for_the_next_one(start: Start, tmp_path: Path) -> None:
    ear = await start()
    await ear.inside()
    ear.link.kill()
    assert (await ear.receive("died")).status == -signal.SIGKILL
    assert flock_is_taken(tmp_path / "gpu.lock")
    ear.runners.append(ear.link.spawn())
    await ear.receive("spawned")
    ear.link.enter(1, 0)
    assert (await ear.receive("entered")).number == 1


async def test_a_flock_given_back_after_its_runner_crashed_is_free_at_once(start: Start, tmp_path: Path) -> None:
    """Not at the deadline of a runner that is dead: somebody may be waiting."""
    ear = await start()
    os.kill(await ear.inside(), signal.SIGKILL)
    await ear.receive("died")
    ear.link.unlock()
    await ear.receive("unlocked")
    assert not flock_is_taken(tmp_path / "gpu.lock")


async def test_what_the_runner_started_dies_with_it(start: Start, tmp_path: Path) -> None:
    ear = await start("parent")
    await ear.inside()
    child = int(await asyncio.get_running_loop().sock_recv(ear.runners[0].data, 64))
    assert is_alive(child)
    ear.link.fence()
    await ear.receive("fenced")
    assert not is_alive(child)
    assert not flock_is_taken(tmp_path / "gpu.lock")


async def test_flock_outlives_the_guard_while_anything_lives_that_the_runner_started(
    start: Start, tmp_path: Path
) -> None:
    """L0 of S1: all who could use the device share one description, and the flock ends with the last of them."""
    ear = await start("parent")
    runner = await ear.inside()
    child = int(await asyncio.get_running_loop().sock_recv(ear.runners[0].data, 64))
    os.kill(ear.link.pid, signal.SIGKILL)
    await ear.receive("gone")
    await gone(runner)
    assert is_alive(child)
    assert flock_is_taken(tmp_path / "gpu.lock")
    os.kill(child, signal.SIGKILL)
    await flock_is_free(tmp_path / "gpu.lock")


async def test_replaced_lock_file_is_noticed(start: Start, tmp_path: Path) -> None:
    path = tmp_path / "gpu.lock"
    ear = await start()
    path.unlink()
    other = await start()
    await other.inside()
    ear.link.lock()
    await ear.receive("replaced")
    await ear.receive("unlocked")
    ear.link.lock()
    await ear.receive("busy")  # the new file, which the other holds
    other.link.leave()
    await ear.receive("locked")


async def test_end_of_the_supervisor_ends_guard_and_runner_and_frees_the_flock(tmp_path: Path) -> None:
    lock = tmp_path / "gpu.lock"
    process, guard, runner, _ = await host(lock, 60)
    start_ns = now_ns()
    process.kill()
    await flock_is_free(lock)
    assert now_ns() - start_ns < 10**9
    await gone(guard)
    assert not is_alive(runner)
    await process.wait()


async def test_frozen_supervisor_loses_its_runner_at_the_deadline(tmp_path: Path) -> None:
    lock = tmp_path / "gpu.lock"
    process, _, runner, deadline_ns = await host(lock, 1.0)
    process.send_signal(signal.SIGSTOP)
    assert is_alive(runner)
    await gone(runner)
    assert 0 <= now_ns() - deadline_ns < 3_000_000_000  # K, the kill budget
    await flock_is_free(lock)
    process.kill()
    await process.wait()


async def test_end_of_the_guard_is_the_end_of_the_runner(tmp_path: Path) -> None:
    lock = tmp_path / "gpu.lock"
    process, guard, runner, _ = await host(lock, 60)
    os.kill(guard, signal.SIGKILL)
    await gone(runner)
    await flock_is_free(lock)
    await process.wait()


async def test_end_of_the_guard_is_the_end_of_a_busy_runner_too(tmp_path: Path) -> None:
    """It does not notice by itself; nothing but its parent-death signal can end it."""
    lock = tmp_path / "gpu.lock"
    process, guard, runner, _ = await host(lock, 60, "busy")
    os.kill(guard, signal.SIGKILL)
    try:
        await gone(runner)
    finally:
        if is_alive(runner):
            os.kill(runner, signal.SIGKILL)
    await flock_is_free(lock)
    await process.wait()
