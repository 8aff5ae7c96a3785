"""A guard inside the test's own process, for tests with dozens of workers: no flock, no runner, the same words.

What it replaces is two processes a worker; leases, tickets and every request to NATS are the real thing. One
:class:`Device` stands for what the flock of a device is: one guard inside at a time, and the last token.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Final

from workers.guard.link import GuardOrders, GuardReport, RunnerEnds
from workers.runner import frames

_pids: Final = count(1_000_000)


class Device:
    """Who is inside, who waits for it to be free, and the last token it was entered under."""

    def __init__(self) -> None:
        self.holder: LightGuard | None = None
        self.waiting: deque[LightGuard] = deque()
        self.token = 0

    def start_guard(
        self,
        lock_path: Path,
        runner_argv: Sequence[str],
        environment: Mapping[str, str],
        *,
        is_runner_kept: bool,
        on_report: Callable[[GuardReport], None],
        **more: object,
    ) -> "LightGuard":
        """What a device takes as ``start_guard``."""
        del lock_path, runner_argv, environment, more
        assert is_runner_kept
        return LightGuard(self, on_report)


class LightGuard(GuardOrders):
    """One worker's guard."""

    def __init__(self, device: Device, on_report: Callable[[GuardReport], None]) -> None:
        self._device = device
        self._on_report = on_report
        self._loop = asyncio.get_running_loop()
        self._pid = next(_pids)
        self._sockets: tuple[socket.socket, ...] = ()
        self._fence: asyncio.TimerHandle | None = None
        self._tell("guard", self._pid)

    @property
    def pid(self) -> int:
        """Of nothing."""
        return self._pid

    def spawn(self) -> RunnerEnds:
        """A runner that is ready at once and never asked for anything."""
        (data, runner), (beats, heart) = socket.socketpair(), socket.socketpair()
        for ours in (data, beats, heart):
            ours.setblocking(False)
        self._sockets = (runner, heart)
        pid = next(_pids)
        runner.sendall(frames.pack(frames.RunnerStarted(pid, 0.0)))
        self._beat(heart)
        self._tell("spawned", pid)
        return RunnerEnds(data, beats)

    def _beat(self, heart: socket.socket) -> None:
        with suppress(OSError):  # nobody listens any more
            heart.send(b"\x0e")
            self._loop.call_later(frames.BEAT_S, self._beat, heart)

    def kill_all(self) -> None:
        """Kill guard and runner."""
        self._free()
        self._tell("gone")

    async def close(self, timeout_s: float) -> None:
        """End the guard and its runner."""
        del timeout_s
        self._free()
        for theirs in self._sockets:
            theirs.close()

    def _send(self, text: str) -> None:
        verb, *numbers = text.split()
        device = self._device
        if verb == "lock":
            if device.holder in {None, self}:
                device.holder = self
                self._tell("locked", device.token)
            else:
                device.waiting.append(self)
                self._tell("busy")
        elif verb == "enter":
            device.token = int(numbers[0])
            self._arm(int(numbers[1]))
            self._tell("entered", device.token)
        elif verb == "deadline":
            self._arm(int(numbers[0]))
            self._tell("pong", int(numbers[0]))
        elif verb in {"unlock", "leave"}:
            self._free()
            self._tell("unlocked" if verb == "unlock" else "left")
        elif verb == "fence":
            self._free()
            self._tell("fenced")

    def _arm(self, at_ns: int) -> None:
        """The lease is good until then, on the loop's clock (nothing sleeps in a test)."""
        if self._fence is not None:
            self._fence.cancel()
        self._fence = self._loop.call_at(at_ns / 1e9, self._fenced)

    def _fenced(self) -> None:
        self._free()
        self._tell("fenced", 1)

    def _free(self) -> None:
        if self._fence is not None:
            self._fence.cancel()
        device = self._device
        if self in device.waiting:
            device.waiting.remove(self)
        if device.holder is self:
            device.holder = device.waiting.popleft() if device.waiting else None
            if device.holder is not None:
                device.holder._tell("locked", device.token)

    def _tell(self, verb: str, number: int = 0) -> None:
        self._loop.call_soon(self._on_report, GuardReport(verb, number))
