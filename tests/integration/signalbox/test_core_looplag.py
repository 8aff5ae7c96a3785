"""The watch over an event loop: what it measures, and that a stopped loop ends its process."""

import asyncio
import contextlib
import http.client
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from signalbox.ops.ports import free_port
from signalbox.program import health, metrics
from signalbox.program.looplag import LoopWatch
from signalbox.program.metrics import REGISTRY

ROOT = Path(__file__).parents[3]
BLOCKED = """
import asyncio, sys, threading
from signalbox.program.looplag import LoopWatch
async def main():
    LoopWatch(abort_s=0.3, period_s=0.05).start()
    await asyncio.sleep(0)
    sys.stdout.write("blocking\\n"); sys.stdout.flush()
    threading.Event().wait(60)
asyncio.run(main())
"""
STOPPED = """
import asyncio, os, signal, sys
from signalbox.program.looplag import LoopWatch
async def main():
    LoopWatch(abort_s=0.5, period_s=0.05).start()
    loop = asyncio.get_running_loop()
    received = asyncio.Event()
    loop.add_reader(0, received.set)
    sys.stdout.write("running\\n"); sys.stdout.flush()
    await received.wait()
    await asyncio.sleep(0.5)
asyncio.run(main())
"""


def sample(name: str) -> float:
    return REGISTRY.get_sample_value(f"signalbox_{name}") or 0.0


def start(text: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-c", text], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )


def test_a_loop_that_stops_turning_ends_its_process_and_says_where_it_stood() -> None:
    process = start(BLOCKED)
    _, reported = process.communicate(timeout=50)
    assert process.returncode == -signal.SIGABRT
    assert b"line 8 in main" in reported


def test_a_process_that_was_stopped_for_longer_than_that_goes_on() -> None:
    process = start(STOPPED)
    assert process.stdout is not None
    assert process.stdout.readline() == b"running\n"
    os.kill(process.pid, signal.SIGSTOP)
    os.waitid(os.P_PID, process.pid, os.WSTOPPED | os.WNOWAIT)
    threading.Event().wait(1.5)  # three times what ends a process whose loop is blocked
    os.kill(process.pid, signal.SIGCONT)
    process.communicate(b"go\n", timeout=50)
    assert process.returncode == 0


async def test_a_program_whose_loop_stands_still_is_not_alive_until_it_turns_again() -> None:
    health.ALIVE.clear()  # of tests before this one
    port = metrics.serve(free_port())
    assert asked(port) == (200, "alive\n"), "it starts"
    watch = LoopWatch(abort_s=None, period_s=0.01, dead_s=0.2).start()
    said: list[tuple[int, str]] = []
    is_said = threading.Event()

    def look() -> None:
        while not said or said[-1][0] == 200:
            said.append(asked(port))
        is_said.set()

    threading.Thread(target=look).start()
    assert is_said.wait(60), "the loop stands still meanwhile"
    assert said[-1][0] == 503
    assert "has not turned" in said[-1][1]
    while asked(port)[0] != 200:  # noqa: ASYNC110  its thread looks at the beat
        await asyncio.sleep(0.01)
    watch.stop()
    assert asked(port) == (200, "alive\n")


def asked(port: int) -> tuple[int, str]:
    with contextlib.closing(http.client.HTTPConnection("127.0.0.1", port, timeout=60)) as link:
        link.request("GET", "/livez")
        page = link.getresponse()
        return page.status, page.read().decode()


async def test_a_late_beat_is_measured_and_counted() -> None:
    reported = threading.Event()
    before, stalls = sample("loop_lag_seconds_sum"), sample("loop_stalls_total")
    watch = LoopWatch(warn_s=0.05, abort_s=60.0, period_s=0.01, on_stall=reported.set).start()
    threading.Event().wait(0.2)
    await asyncio.sleep(0.05)  # the beat is long overdue: the loop's next turn makes it
    watch.stop()
    assert sample("loop_lag_seconds_sum") - before > 0.15
    assert sample("loop_stalls_total") == stalls + 1
    assert not reported.is_set()


async def test_a_watch_that_was_stopped_says_nothing() -> None:
    reported = threading.Event()
    watch = LoopWatch(abort_s=0.02, period_s=0.01, on_stall=reported.set).start()
    watch.stop()
    assert not reported.wait(0.2)
