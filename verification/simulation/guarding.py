"""The guard's process on a simulated kernel: the production machine, with modelled effects."""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, cast

from verification.simulation.kernel import End, Process
from verification.simulation.runner import Sockets
from workers.guard import process as production
from workers.guard.link import GuardOrders, GuardReport, RunnerEnds, parse
from workers.guard.machine import GuardMachine

START_S: Final = 0.03
"""How long an interpreter without site-packages takes to start."""
StartRunner = Callable[[Process, Sockets], Process]
"""Forks a runner off a guard."""


class SimGuard:
    """One guard. Everything it receives comes through its program, so it can be stopped anywhere."""

    def __init__(
        self, process: Process, control: End, handed: deque[End], path: str, is_kept: bool, start_runner: StartRunner
    ) -> None:
        self.handed = handed
        self.process, self.control, self.path = process, control, path
        self.kernel = process.machine
        self.machine = GuardMachine(is_kept)
        self.given: list[End] = []
        self.lock = self.kernel.open(path, process)
        self.start_runner = start_runner
        self.runner: Process | None = None
        self.words: End | None = None
        self.waiter: Process | None = None
        self.timer: asyncio.TimerHandle | None = None
        process.death_signal = "TERM"
        process.on_term = lambda: self.feed("hung_up")
        control.give(process).listen(self._on_control)
        control.send(f"guard {process.pid}".encode())

    def feed(self, event: str, *numbers: int) -> None:
        """As the real guard does, by the clock it reads."""
        for verb, what in self.machine.on(event, *numbers, now_ns=production.now_ns()):
            if self.process.is_running:
                getattr(self, f"_{verb}")(what)

    def _on_control(self, message: bytes | None) -> None:
        if message is None:
            self.feed("hung_up")
            return
        verb, *words = message.decode().split()
        handed = [self.handed.popleft() for _ in range(2)] if verb == "spawn" else []
        self.given = handed
        self.feed(verb, *(int(word) for word in words))
        while self.given:
            self.given.pop().close()

    def _on_report(self, message: bytes | None) -> None:
        if message is None:
            self.words = None
            self.feed("mute")
        elif message == b"left":
            self.feed("left")
        else:
            self.feed("in", int(message.split()[1]))

    def _on_runner_exit(self, pid: int, status: int) -> None:
        self.runner = self.words = None
        self.feed("died", pid, status)

    def _on_waiter_exit(self, pid: int, status: int) -> None:
        if self.waiter is None or self.waiter.pid != pid:
            return
        self.waiter = None
        if status == 0:
            self._report_taken()
        else:
            self.feed("unwaited")

    def _report_taken(self) -> None:
        if self.kernel.files.get(self.path) is self.lock.file:
            self.feed("taken", self.lock.file.token)
        else:
            self.feed("replaced")

    # -- hands, by the names of the effects ----------------------------------------------------------

    def _tell(self, text: str) -> None:
        if not self.control.send(text.encode()):
            self.feed("hung_up")

    def _say(self, word: str) -> None:
        if self.words is not None and not self.words.send(word.encode()):
            self.feed("mute")

    def _arm(self, at_ns: int) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if at_ns:
            self.timer = self.kernel.alarm(self.process, production.CLOCK_BOOTTIME, at_ns / 1e9, self.feed, "timer")

    def _store(self, token: int) -> None:
        self.lock.file.token = token
        self.feed("stored", token)

    def _fork(self, _: object) -> None:
        ours, theirs = self.kernel.pipe(self.process, self.process)
        (data, beats), self.given = self.given, []
        self.runner = self.start_runner(self.process, Sockets(data, beats, theirs))
        self.lock.share(self.runner)
        self.words = ours
        self.runner.watch(self.process, self._on_runner_exit)
        ours.listen(self._on_report)
        self.feed("spawned", self.runner.pid)

    def _kill(self, _: object) -> None:
        if self.runner is not None:
            self.runner.kill()

    def _try(self, _: object) -> None:
        if self.lock.try_lock():
            self._report_taken()
        else:
            self.feed("busy")

    def _wait(self, _: object) -> None:
        self.waiter = Process(self.kernel, "waiter", self.process)
        self.waiter.death_signal = "KILL"
        self.lock.share(self.waiter)
        self.waiter.watch(self.process, self._on_waiter_exit)
        self.lock.wait(self.waiter)

    def _unwait(self, _: object) -> None:
        if self.waiter is not None:
            waiter, self.waiter = self.waiter, None
            waiter.kill()
            self.lock.close(waiter)  # the real guard reaps it before it goes on

    def _unlock(self, _: object) -> None:
        self.lock.unlock()

    def _reopen(self, _: object) -> None:
        self.lock.close(self.process)
        self.lock = self.kernel.open(self.path, self.process)

    def _exit(self, _: object) -> None:
        self.process.exit(0)


class SimGuardLink(GuardOrders):
    """The supervisor's side: what :class:`workers.guard.link.GuardLink` is on a real kernel."""

    def __init__(
        self,
        supervisor: Process,
        lock_path: Path,
        *,
        is_runner_kept: bool,
        on_report: Callable[[GuardReport], None],
        start_runner: StartRunner,
    ) -> None:
        machine = supervisor.machine
        self._supervisor, self._on_report = supervisor, on_report
        self._ours, theirs = machine.pipe(supervisor, supervisor)
        self._process = Process(machine, f"guard of {supervisor.name}", supervisor)
        theirs.give(self._process)
        self._ended = asyncio.Event()
        self._process.watch(supervisor, lambda *_: self._ended.set())
        self._runner_pid = 0
        self._is_gone = False
        self._handed: deque[End] = deque()
        self._ours.listen(self._on_message)
        self.guard: SimGuard | None = None
        machine.loop.post(
            self._process.program,
            self._begin,
            theirs,
            lock_path,
            is_runner_kept,
            start_runner,
            delay=START_S * (1 + machine.chance.random()),
        )

    def _begin(self, control: End, path: Path, is_kept: bool, start_runner: StartRunner) -> None:
        if self._supervisor.is_alive:
            self.guard = SimGuard(self._process, control, self._handed, str(path), is_kept, start_runner)
        else:
            self._process.exit(1)  # prctl came too late: the parent is another already

    @property
    def pid(self) -> int:
        """The guard's process."""
        return self._process.pid

    def spawn(self) -> RunnerEnds:
        """Start a runner in the guard."""
        machine = self._supervisor.machine
        pipes = [machine.pipe(self._supervisor, self._process) for _ in range(2)]
        self._handed += [theirs for _, theirs in pipes]
        self._send("spawn")
        return RunnerEnds(*(cast("socket.socket", SimSocket(ours)) for ours, _ in pipes))

    def kill_all(self) -> None:
        """Kill guard and runner."""
        runner = self._supervisor.machine.processes.get(self._runner_pid)
        if runner is not None:
            runner.kill()
        self._process.kill()

    async def close(self, timeout_s: float) -> None:
        """End the guard and its runner."""
        self._ours.close()
        try:
            async with asyncio.timeout(timeout_s):
                await self._ended.wait()
        except TimeoutError:
            self.kill_all()
            await self._ended.wait()

    def _send(self, text: str) -> None:
        if not self._ours.send(text.encode()):
            self.kill_all()

    def _on_message(self, message: bytes | None) -> None:
        if message is None:
            if not self._is_gone:
                self._is_gone = True
                self._ours.close()
                self._on_report(GuardReport("gone"))
            return
        word = parse(message)
        if word.verb == "spawned":
            self._runner_pid = word.number
        elif word.verb == "died":
            self._runner_pid = 0
        self._on_report(word)


class SimSocket:
    """Our end of one of the runner's sockets, as far as ``loop.create_connection`` wants it."""

    def __init__(self, end: End) -> None:
        self._end = end

    def join(self, protocol: asyncio.Protocol) -> "SimTransport":
        """Give the protocol what arrives."""
        transport = SimTransport(self._end)
        protocol.connection_made(transport)

        def receive(message: bytes | None) -> None:
            if message is None:
                self._end.close()
                protocol.connection_lost(None)
            else:
                protocol.data_received(message)

        self._end.listen(receive)
        return transport


class SimTransport(asyncio.Transport):
    """The writing side of a :class:`SimSocket`."""

    def __init__(self, end: End) -> None:
        super().__init__()
        self._end = end

    def write(self, data: Any) -> None:
        """In one piece."""
        self._end.send(bytes(data))

    def close(self) -> None:
        """Idempotent."""
        self._end.close()


def starter(supervisor: Process, start_runner: StartRunner) -> Callable[..., GuardOrders]:
    """What a :class:`workers.device.leased.LeasedDevice` takes as ``start_guard``."""

    def start_guard(
        lock_path: Path,
        runner_argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_runner_kept: bool,
        on_report: Callable[[GuardReport], None],
        **_: object,
    ) -> GuardOrders:
        return SimGuardLink(
            supervisor, lock_path, is_runner_kept=is_runner_kept, on_report=on_report, start_runner=start_runner
        )

    return start_guard
