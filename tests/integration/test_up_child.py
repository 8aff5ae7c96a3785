"""Programs of the stack as real child processes."""

import asyncio
import os
import signal
import sys
from pathlib import Path

import pytest

from signalbox.errors import Unavailable
from signalbox.up.child import Child, Spec

SLEEPER = "import time; time.sleep(600)"
DEAF = "import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); time.sleep(600)"
FIRST_TRY_FAILS = """
import pathlib, sys, time
mark = pathlib.Path(sys.argv[1])
if not mark.exists():
    mark.write_text("")
    sys.exit(3)
time.sleep(600)
"""
PARENT = """
import asyncio, pathlib, sys
from signalbox.up.child import Child, Spec
async def ready(): return True
async def main():
    spec = Spec("sleeper", (sys.executable, "-c", "import time; time.sleep(600)"), {}, ready)
    child = Child(spec, pathlib.Path(sys.argv[1]), print)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""


async def at_once() -> bool:
    return True


async def never() -> bool:
    return False


def child(folder: Path, code: str, *arguments: str, said: list[str] | None = None) -> Child:
    argv = (sys.executable, "-c", code, *arguments)
    sentences = [] if said is None else said
    return Child(Spec("it", argv, {}, at_once, stop_s=0.5), folder, sentences.append)


async def test_a_child_that_is_killed_is_started_again_and_we_are_told(tmp_path: Path) -> None:
    said: list[str] = []
    it = child(tmp_path, SLEEPER, said=said)
    await it.start()
    first, changed = it.pid, asyncio.Event()
    keeper = asyncio.create_task(it.keep(changed.set))
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(10):
        await changed.wait()
    assert it.pid not in {0, first}
    assert said[0] == "it was ended by SIGKILL; starting it again in 0.1 s"
    assert said[-1] == f"it is back (pid {it.pid})"
    await it.stop()
    await keeper
    assert it.pid == 0


async def test_a_child_that_fails_on_its_first_try_comes_up_on_a_later_one(tmp_path: Path) -> None:
    it = child(tmp_path, FIRST_TRY_FAILS, str(tmp_path / "mark"))
    await it.start()
    changed = asyncio.Event()
    keeper = asyncio.create_task(it.keep(changed.set))
    async with asyncio.timeout(10):
        await changed.wait()
    assert it.restarts >= 1
    await it.stop()
    await keeper


async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    said: list[str] = []
    it = child(tmp_path, DEAF, said=said)
    await it.start()
    pid = it.pid
    async with asyncio.timeout(10):
        await it.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_child_that_ends_while_starting_is_reported_with_its_last_words(
    tmp_path: Path,
) -> None:
    argv = (sys.executable, "-c", "import sys; sys.exit('no port left')")
    it = Child(Spec("it", argv, {}, never), tmp_path, print)
    with pytest.raises(Unavailable, match=r"ended with status 1 while starting(.|\n)*no port left"):
        await it.start()


async def test_a_child_that_is_never_ready_is_reported(tmp_path: Path) -> None:
    it = Child(Spec("it", (sys.executable, "-c", SLEEPER), {}, never, ready_s=0.2), tmp_path, print)
    with pytest.raises(Unavailable, match=r"not ready within 0\.2 s"):
        await it.start()
    await it.stop()


async def test_the_kernel_ends_a_child_when_we_are_killed(tmp_path: Path) -> None:
    parent = await asyncio.create_subprocess_exec(
        sys.executable, "-c", PARENT, str(tmp_path), stdout=asyncio.subprocess.PIPE
    )
    assert parent.stdout is not None
    pid = int(await parent.stdout.readline())
    watch = os.pidfd_open(pid)
    try:
        parent.kill()
        await parent.wait()
        ended = asyncio.Event()
        asyncio.get_running_loop().add_reader(watch, ended.set)
        async with asyncio.timeout(10):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(watch)
        os.close(watch)
