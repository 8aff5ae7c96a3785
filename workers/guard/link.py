"""The supervisor's side of the guard: starts it, sends it orders, passes on its reports."""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, Protocol

from signalbox.program import log
from workers.guard.output import BURST_BYTES, RunnerOutput

_PROGRAM: Final = "import sys; sys.path.append(sys.argv.pop(1)); from workers.guard.process import main; main()"
"""Isolated and without site-packages, so that it stays tiny; it may import only this package."""
_ROOT: Final = str(Path(__file__).resolve().parents[2])
_REPORT_BYTES: Final = 4096


class GuardReport(NamedTuple):
    """One report: ``guard pid``, ``spawned pid``, ``locked stored-token``, ``busy``, ``unlocked``,
    ``replaced``, ``entered token``, ``left``, ``pong deadline``, ``died pid status``,
    ``fenced is-deadline``; ``error spawn``, ``error lock`` and ``error enter`` with an errno, for what could not be
    done; ``flooded`` when the runner prints without end, and ``gone`` when the guard itself has ended."""

    verb: str
    number: int = 0
    status: int = 0


class RunnerEnds(NamedTuple):
    """The supervisor's ends of a runner's sockets. data: requests and answers. beats: the runner's heartbeats."""

    data: socket.socket
    beats: socket.socket

    def close(self) -> None:
        """Both."""
        self.data.close()
        self.beats.close()


class GuardOrders(ABC):
    """The orders that a guard takes."""

    def lock(self, hold_ns: int = 0) -> None:
        """Take the flock now or as soon as it is free; answered by ``locked`` (and ``busy`` before).

        Released (``fenced``) where neither ``enter`` nor ``deadline`` follows for ``hold_ns``; 0 = never.
        """
        self._send(f"lock {hold_ns}")

    def unlock(self) -> None:
        """Release the flock, or stop waiting for it. The runner must be outside."""
        self._send("unlock")

    def enter(self, token: int, deadline_ns: int) -> None:
        """Let the runner enter the device; answered by ``entered``."""
        self._send(f"enter {token} {deadline_ns}")

    def deadline(self, at_ns: int) -> None:
        """Say that the lease is valid until ``at_ns`` (CLOCK_BOOTTIME); answered by ``pong``."""
        self._send(f"deadline {at_ns}")

    def leave(self) -> None:
        """Make the runner leave the device, by its own report or its end; answered by ``left``."""
        self._send("leave")

    def kill(self) -> None:
        """End the runner, keep the flock; answered by ``died``."""
        self._send("kill")

    def fence(self) -> None:
        """End the runner and release the flock; answered by ``fenced``."""
        self._send("fence")

    @property
    @abstractmethod
    def pid(self) -> int:
        """Process id of the guard."""

    @abstractmethod
    def spawn(self) -> RunnerEnds:
        """Ask for a runner. Answered by ``spawned``."""

    @abstractmethod
    def kill_all(self) -> None:
        """End a guard that does not answer, and the runner with it; the kernel frees the flock."""

    @abstractmethod
    async def close(self, timeout_s: float) -> None:
        """Close the socket, which makes the guard end its runner and itself; kill it after ``timeout_s``."""

    @abstractmethod
    def _send(self, text: str) -> None:
        """Never blocks."""


class StartGuard(Protocol):
    """Starts a guard for one flock; ``on_report`` receives what it says."""

    def __call__(
        self,
        lock_path: Path,
        runner_argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_runner_kept: bool,
        on_report: Callable[[GuardReport], None],
    ) -> GuardOrders:
        """Start it, in the main thread: the guard's parent-death signal is bound to the thread."""


class GuardLink(GuardOrders):
    """One guard process. Sends never block; a full socket means a frozen guard, which ends it.

    Must be made in the main thread: the guard's parent-death signal is bound to the thread.
    """

    def __init__(
        self,
        lock_path: Path,
        runner_argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_runner_kept: bool,
        on_report: Callable[[GuardReport], None],
    ) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        self._on_report = on_report
        self._socket = ours
        self._runner_pidfd = -1
        self._output = RunnerOutput(self._on_flood, time.monotonic)
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-I",
                "-S",
                "-c",
                _PROGRAM,
                _ROOT,
                str(theirs.fileno()),
                str(os.getpid()),
                str(lock_path),
                str(int(is_runner_kept)),
                *runner_argv,
            ],
            pass_fds=[theirs.fileno()],
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=self._output.fd,
            stderr=self._output.fd,
        )
        theirs.close()
        self._output.given()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(ours, self._on_readable)

    @property
    def pid(self) -> int:
        """The guard's process."""
        return self._process.pid

    def spawn(self) -> RunnerEnds:
        """Start a runner in the guard."""
        (data, their_data), (beats, their_beats) = socket.socketpair(), socket.socketpair()
        data.setblocking(False)
        beats.setblocking(False)
        with their_data, their_beats:
            self._send("spawn", [their_data.fileno(), their_beats.fileno()])
        return RunnerEnds(data, beats)

    def kill_all(self) -> None:
        """Kill guard and runner."""
        if self._runner_pidfd >= 0:
            with suppress(ProcessLookupError):
                signal.pidfd_send_signal(self._runner_pidfd, signal.SIGKILL)
        self._process.kill()

    async def close(self, timeout_s: float) -> None:
        """End the guard and its runner."""
        self._hang_up()
        ended = asyncio.create_task(asyncio.to_thread(self._process.wait))
        done, _ = await asyncio.wait({ended}, timeout=timeout_s)
        if not done:
            self.kill_all()
            await ended

    def _send(self, text: str, fds: Sequence[int] = ()) -> None:
        try:
            if fds:
                socket.send_fds(self._socket, [text.encode()], fds)
            else:
                self._socket.send(text.encode())
        except OSError:
            self.kill_all()  # its end is reported like any other

    def _on_readable(self) -> None:
        while True:
            try:
                data = self._socket.recv(_REPORT_BYTES)
            except BlockingIOError:
                return
            except OSError:
                data = b""
            if not data:
                self._log_last_output(self._process.pid, 0)
                self._hang_up()
                self._on_report(GuardReport("gone"))
                return
            report = parse(data)
            if report.verb == "spawned":
                self._follow(report.number)
            elif report.verb == "died":
                self._unfollow()
                self._log_last_output(report.number, report.status)
            self._on_report(report)

    def _on_flood(self) -> None:
        log.error("runner.flooded", bytes=BURST_BYTES)
        self._on_report(GuardReport("flooded"))

    def _log_last_output(self, pid: int, status: int) -> None:
        """Log what a runner printed before its end, unless it was killed."""
        lines = self._output.last_lines()
        if lines and status != -signal.SIGKILL:
            log.warning("runner.last_output", pid=pid, status=status, lines=lines)

    def _follow(self, pid: int) -> None:
        self._unfollow()
        with suppress(ProcessLookupError):
            self._runner_pidfd = os.pidfd_open(pid)

    def _unfollow(self) -> None:
        if self._runner_pidfd >= 0:
            os.close(self._runner_pidfd)
            self._runner_pidfd = -1

    def _hang_up(self) -> None:
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket)
            self._socket.close()
            self._output.close()


def parse(data: bytes) -> GuardReport:
    """A guard's report."""
    verb, *words = data.decode().split()
    if verb == "error":
        verb = f"error {words.pop(0)}"
    numbers = [int(word) if word.lstrip("-").isdigit() else 0 for word in words]
    return GuardReport(verb, *numbers[:2])
