"""A supervisor that only has a guard and a runner inside the device, to be killed or frozen by a test.

``python -m tests.rigs.guardhost LOCK_PATH SECONDS [MODE]``: enters with a deadline SECONDS away, prints
``guard runner deadline_ns`` and waits.
"""

import asyncio
import sys
import time
from pathlib import Path

from workers.guard.link import GuardLink, GuardReport

RUNNER = [sys.executable, "-I", "-S", str(Path(__file__).with_name("idlerunner.py")), "good"]


async def main(lock_path: str, seconds: float, mode: str = "good") -> None:
    words: asyncio.Queue[GuardReport] = asyncio.Queue()
    guard = GuardLink(Path(lock_path), [*RUNNER[:-1], mode], {}, is_runner_kept=True, on_report=words.put_nowait)

    async def receive(verb: str) -> int:
        while (word := await words.get()).verb != verb:
            pass
        return word.number

    ends = guard.spawn()
    runner = await receive("spawned")
    guard.lock()
    await receive("locked")
    deadline_ns = time.clock_gettime_ns(time.CLOCK_BOOTTIME) + int(seconds * 1e9)
    guard.enter(1, deadline_ns)
    await receive("entered")
    sys.stdout.write(f"{guard.pid} {runner} {deadline_ns}\n")
    sys.stdout.flush()
    await receive("gone")
    ends.close()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], float(sys.argv[2]), *sys.argv[3:]))
