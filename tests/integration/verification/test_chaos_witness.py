"""The witness of the interval log tells who is inside from who is only being taken apart by the kernel."""

import asyncio
import fcntl
import os
import signal
import sys
from pathlib import Path

from verification.chaos.evidence import intervals
from workers.runner.intervals import TAKE, Intervals

HOLDER = """
import sys, time
from workers.runner.intervals import Intervals
inside = Intervals(sys.argv[1], "g")
inside.enter(1)
print("in", flush=True)
time.sleep(600)
"""


async def _holder(log: Path) -> asyncio.subprocess.Process:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", HOLDER, str(log), stdout=asyncio.subprocess.PIPE
    )
    assert process.stdout is not None
    assert await process.stdout.readline() == b"in\n"
    return process


async def test_somebody_alive_inside_is_an_overlap_at_once(tmp_path: Path) -> None:
    log = tmp_path / "log"
    holder = await _holder(log)
    try:
        Intervals(str(log), "g").enter(2)
        kinds = [line.kind for line in intervals.read(log)]
        assert kinds == ["in", "overlap", "in"]
        assert intervals.violations(intervals.read(log)) != []
    finally:
        holder.kill()
        await holder.wait()


async def test_somebody_frozen_inside_is_an_overlap_too(tmp_path: Path) -> None:
    log = tmp_path / "log"
    holder = await _holder(log)
    try:
        holder.send_signal(signal.SIGSTOP)
        Intervals(str(log), "g").enter(2)
        assert [line.kind for line in intervals.read(log)] == ["in", "overlap", "in"]
    finally:
        holder.kill()
        await holder.wait()


async def test_a_witness_that_outlives_its_dead_holder_is_none(tmp_path: Path) -> None:
    log = tmp_path / "log"
    holder = await _holder(log)
    # The same description in a second process: the lock stays although who took it is dead, as it does for a
    # moment while the kernel closes a killed runner's files.
    keeper = os.pidfd_open(holder.pid)
    holder.kill()
    await holder.wait()
    os.close(keeper)
    heir = Intervals(str(log), "g")
    held = os.open(f"{log}.g.inside", os.O_RDWR)
    fcntl.fcntl(held, fcntl.F_OFD_SETLK, TAKE)
    asyncio.get_running_loop().call_later(0.0, os.close, held)
    entering = asyncio.to_thread(heir.enter, 2)
    await entering
    assert [line.kind for line in intervals.read(log)] == ["in", "in"]
    assert intervals.violations(intervals.read(log)) == []


def test_a_line_that_is_only_half_written_is_read_when_it_is_whole(tmp_path: Path) -> None:
    log = tmp_path / "log"
    Intervals(str(log), "g").enter(1)
    whole = log.read_bytes()
    log.write_bytes(whole + whole[: len(whole) // 2])
    assert [line.kind for line in intervals.read(log)] == ["in"]
    log.write_bytes(whole * 2)
    assert [line.kind for line in intervals.read(log)] == ["in", "in"]
