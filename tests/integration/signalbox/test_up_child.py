"""Programs of the stack as real child processes."""

import asyncio
import fcntl
import json
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path

import pytest

from signalbox.ops.foreground import UP_FILE
from signalbox.ops.programlog import KEPT, LIMIT_BYTES, LONGEST_LINE_BYTES, ProgramLog, Shown
from signalbox.ops.up import main
from signalbox.ops.up.child import BACKOFF_S, Child, Spec
from signalbox.ops.up.datadir import DataDir
from signalbox.ops.up.first import Greeting
from signalbox.ops.up.options import UpOptions
from signalbox.ops.up.stack import UpStack
from signalbox.program.errors import Unavailable

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
from signalbox.ops.up.child import Child, Spec
async def ready(): return True
async def main():
    spec = Spec("sleeper", (sys.executable, "-c", "import time; time.sleep(600)"), {}, ready)
    child = Child(spec, pathlib.Path(sys.argv[1]), print)
    await child.start()
    print(child.pid, flush=True)
    await asyncio.sleep(600)
asyncio.run(main())
"""
NUMBERS = """
import sys
for number in range(int(sys.argv[1])):
    print(f"{number:07d} {'x' * 92}", file=sys.stderr if number % 1000 else sys.stdout, flush=True)
"""
LINE_BYTES = 101
FULL_DISK = """
import pathlib, resource, sys, time
from signalbox.ops.programlog import ProgramLog
import os
path = pathlib.Path(sys.argv[1])
log = ProgramLog(path)
given = log.open()
resource.setrlimit(resource.RLIMIT_FSIZE, (5, resource.RLIM_INFINITY))
os.write(given, b"whole\\n" * 400_000)  # more than the pipe holds: it must go on being read
log.catch_up()
resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
os.write(given, b"again\\n")
log.catch_up()
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
    first = it.pid
    pids: asyncio.Queue[int] = asyncio.Queue()
    keeper = asyncio.create_task(it.keep(lambda: pids.put_nowait(it.pid)))
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(60):
        assert await pids.get() == 0
        assert await pids.get() == it.pid
    assert it.pid not in {0, first}
    assert said[0] == "it was ended by SIGKILL; starting it again in 0.1 s"
    assert said[-1] == f"it is back (pid {it.pid})"
    await it.stop()
    await keeper
    assert it.pid == 0


def wait_until_reaped(pid: int) -> None:
    while Path(f"/proc/{pid}").exists():
        time.sleep(0.001)


async def test_a_child_that_has_just_ended_can_be_killed(tmp_path: Path) -> None:
    sleeper = child(tmp_path, SLEEPER)
    await sleeper.start()
    pid = sleeper.pid
    os.kill(pid, signal.SIGKILL)
    wait_until_reaped(pid)  # by another thread; the loop stands, so it receives nothing of it
    assert sleeper.pid == pid
    sleeper.kill()
    await sleeper.stop()


async def test_a_child_that_is_held_ended_starts_again_only_after(tmp_path: Path) -> None:
    said: list[str] = []
    it = child(tmp_path, SLEEPER, said=said)
    await it.start()
    pids: asyncio.Queue[int] = asyncio.Queue()
    keeper = asyncio.create_task(it.keep(lambda: pids.put_nowait(it.pid)))
    async with asyncio.timeout(60):
        async with it.ended():
            assert await pids.get() == 0
            await asyncio.sleep(BACKOFF_S[0] * 3)  # more than the pause before a restart
            assert it.pid == 0
        assert await pids.get() == it.pid != 0
    async with it.ended():
        await it.stop()
    await keeper
    assert it.pid == 0


async def test_up_json_leaves_out_a_program_that_waits_to_be_started_again(tmp_path: Path) -> None:
    with DataDir(tmp_path) as data:
        stack = UpStack(UpOptions(front_port=0, console_port=0, nats_port=0), data, lambda _: None)
        reported: asyncio.Queue[dict[str, int]] = asyncio.Queue()

        def write() -> None:
            main.note(stack, Greeting("admin", "", ""))
            reported.put_nowait(data.read_json(UP_FILE)["processes"])

        it = await stack.start(Spec("it", (sys.executable, "-c", SLEEPER), {}, at_once))
        keeper = asyncio.create_task(stack.keep(write))
        os.kill(it.pid, signal.SIGKILL)
        async with asyncio.timeout(60):
            assert await reported.get() == {"up": os.getpid()}
            assert await reported.get() == {"up": os.getpid(), "it": it.pid}
        await stack.stop()
        await keeper


async def test_a_child_that_fails_on_its_first_try_comes_up_on_a_later_one(tmp_path: Path) -> None:
    it = child(tmp_path, FIRST_TRY_FAILS, str(tmp_path / "mark"))
    await it.start()
    pids: asyncio.Queue[int] = asyncio.Queue()
    keeper = asyncio.create_task(it.keep(lambda: pids.put_nowait(it.pid)))
    async with asyncio.timeout(60):
        while not await pids.get():
            pass
    assert it.restarts >= 1
    await it.stop()
    await keeper


async def test_a_child_that_ignores_sigterm_is_killed_after_its_grace(tmp_path: Path) -> None:
    said: list[str] = []
    it = child(tmp_path, DEAF, said=said)
    await it.start()
    pid = it.pid
    async with asyncio.timeout(60):
        await it.stop()
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


async def test_a_child_that_ends_while_starting_is_reported_with_its_last_words(tmp_path: Path) -> None:
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
        async with asyncio.timeout(60):
            await ended.wait()
    finally:
        asyncio.get_running_loop().remove_reader(watch)
        os.close(watch)


def logs(folder: Path) -> list[Path]:
    """Oldest first: .4, .3 ... and the present one."""
    return sorted(folder.glob("it.log*"), reverse=True)


def numbers(paths: Iterable[Path]) -> list[int]:
    """What the files hold, oldest first; fails on a line that is not whole."""
    lines = [line for path in paths for line in path.read_text().splitlines(keepends=True)]
    assert {len(line) for line in lines} == {LINE_BYTES}
    return [int(line[:7]) for line in lines]


async def test_a_log_is_rotated_while_the_program_runs_and_no_line_is_lost_or_torn(tmp_path: Path) -> None:
    count = 3 * LIMIT_BYTES // LINE_BYTES
    it = child(tmp_path, NUMBERS, str(count))
    await it.run_to_end()
    files = [tmp_path / f"it.log{end}" for end in (".2", ".1", "")]
    assert numbers(files) == list(range(count))
    assert max(path.stat().st_size for path in files) < LIMIT_BYTES + LINE_BYTES
    assert it.tail(1).startswith(f"{count - 1:07d}")


def test_lines_that_are_read_one_by_one_are_rotated_too(tmp_path: Path) -> None:
    log = ProgramLog(tmp_path / "it.log", limit_bytes=1000, kept=2)
    end = log.open()
    for number in range(100):
        os.write(end, f"{number:099d}\n".encode())
        log.catch_up()
    os.close(end)
    assert sorted(path.name for path in logs(tmp_path)) == ["it.log", "it.log.1", "it.log.2"]
    assert all(path.stat().st_size <= 1000 for path in logs(tmp_path))
    assert log.tail(1) == f"{99:099d}"


async def test_a_program_that_writes_much_cannot_fill_the_disk(tmp_path: Path) -> None:
    count = (KEPT + 3) * LIMIT_BYTES // LINE_BYTES
    it = child(tmp_path, NUMBERS, str(count))
    await it.run_to_end()
    files = logs(tmp_path)
    assert [path.name for path in files[:-1]] == [f"it.log.{n}" for n in range(KEPT, 0, -1)]
    kept = numbers(files)
    assert kept == list(range(count - len(kept), count))
    assert len(kept) * LINE_BYTES > KEPT * LIMIT_BYTES


async def test_a_line_without_end_is_cut(tmp_path: Path) -> None:
    endless = "import sys; sys.stdout.write('x' * (1 << 20) * 24)"
    it = child(tmp_path, endless)
    await it.run_to_end()
    sizes = [path.stat().st_size for path in logs(tmp_path)]
    assert sum(sizes) == 24 << 20
    assert max(sizes) <= LIMIT_BYTES + LONGEST_LINE_BYTES


async def test_a_full_disk_stops_no_program_and_what_it_cost_is_said_later(tmp_path: Path) -> None:
    argv = (sys.executable, "-c", FULL_DISK, str(tmp_path / "full.log"))
    env = {"PYTHONPATH": str(Path(__file__).parents[3])}
    await Child(Spec("it", argv, env, at_once, ready_s=30.0), tmp_path, print).run_to_end()
    first, note, last = (tmp_path / "full.log").read_text().splitlines()
    assert (first, last) == ("whole", "again")
    assert json.loads(note) == {"event": "log.lost", "level": "error", "bytes": 400_000 * 6 - 5}


def test_lines_of_two_programs_are_shown_whole_and_nobody_waits_for_who_reads_them(tmp_path: Path) -> None:
    reader, shown = os.pipe()
    fcntl.fcntl(shown, fcntl.F_SETPIPE_SZ, 65_536)
    programs = [ProgramLog(tmp_path / f"{name}.log", on_output=Shown(shown)) for name in "ab"]
    ends = [program.open() for program in programs]
    for number in range(2000):  # thrice what the pipe holds: none of it is read yet
        for name, end in zip("ab", ends, strict=True):
            os.write(end, f"{name}{number:049d}".encode())
            os.write(end, f"{number:049d}\n".encode())
        if number == 0:
            for program in programs:
                program.catch_up()  # before the other one's lines have taken all the room
    for program, end in zip(programs, ends, strict=True):
        program.catch_up()
        os.close(end)
        assert program.tail(1).endswith(f"{1999:049d}"), "the log has all of it"
    os.close(shown)
    with os.fdopen(reader, "rb") as lines:
        found = lines.read().splitlines()
    assert len(found) > 500, "of what had room"
    assert {line[:1] for line in found} == {b"a", b"b"}
    assert {len(line) for line in found} == {99}


async def test_two_lives_of_a_program_share_one_log(tmp_path: Path) -> None:
    async def has_spoken() -> bool:
        return it.tail().count("I am") > it.restarts

    code = "import os, time; print('I am', os.getpid(), flush=True); time.sleep(600)"
    it = Child(Spec("it", (sys.executable, "-c", code), {}, has_spoken), tmp_path, print)
    await it.start()
    first = it.pid
    pids: asyncio.Queue[int] = asyncio.Queue()
    keeper = asyncio.create_task(it.keep(lambda: pids.put_nowait(it.pid)))
    os.kill(first, signal.SIGKILL)
    async with asyncio.timeout(60):
        assert await pids.get() == 0
        assert await pids.get() == it.pid
    assert it.tail().splitlines() == [f"I am {first}", f"I am {it.pid}"]
    await it.stop()
    await keeper


def test_nobody_waits_for_a_pipe_whose_number_was_that_of_a_log(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seen once in many runs: ``Popen`` waited for ever, its pipe held open by the poll of an ended program's log."""
    polls, goes_on = threading.Event(), threading.Event()

    class Late:
        """A thread that is put off between its choice of a descriptor and its wait for it."""

        def __init__(self) -> None:
            self._poll = real_poll()
            self.register = self._poll.register

        def poll(self) -> object:
            polls.set()
            assert goes_on.wait(60)
            return self._poll.poll()

    real_poll = select.poll
    spare = os.dup(0)
    with monkeypatch.context() as patched:
        patched.setattr(select, "poll", Late)
        log = ProgramLog(tmp_path / "it.log")
        os.close(log.open())
        assert polls.wait(60)
    log.catch_up()
    os.close(spare)  # so that the number of the log's pipe would be that of the end we write into
    ours, theirs = os.pipe()
    goes_on.set()
    time.sleep(0.2)  # nothing tells that a thread has begun to wait in the kernel
    os.close(theirs)
    assert select.select([ours], [], [], 10)[0], "the end of the pipe is not seen"
    os.close(ours)


async def test_ctrl_z_stops_nobody_who_copies_logs() -> None:
    said = """
import asyncio, signal
from signalbox.ops import foreground

async def go():
    foreground.heed_signals(asyncio.get_running_loop(), asyncio.Event())
    assert signal.getsignal(signal.SIGTSTP) is signal.SIG_IGN

asyncio.run(go())
"""
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", said)
    assert await process.wait() == 0
