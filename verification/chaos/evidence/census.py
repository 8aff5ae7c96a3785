"""Records starts and ends of the processes of a run, from /proc."""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from verification.chaos.evidence.journal import Journal

GUARD: Final = b"workers.guard.process"
"""Stands on every guard's command line and on no runner's."""
SCAN_S: Final = 0.1
"""Between two looks at /proc."""


class Census:
    """Births and deaths of the processes of one stack. is_ours: tells them by id and command line."""

    def __init__(self, is_ours: Callable[[int, bytes], bool], folder: Path) -> None:
        self._is_ours = is_ours
        self._journal = Journal(folder / "processes.jsonl")
        self._known: dict[int, tuple[int, str]] = {}
        self._foreign: dict[int, int] = {}
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        self._task = asyncio.create_task(self._keep(), name="census")
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait([self._task])
        self._journal.close()

    def alive(self, role: str) -> list[int]:
        """Process ids of one role, as of the last look."""
        return [pid for pid, (_, known) in self._known.items() if known == role]

    def scan(self) -> None:
        """One look at /proc."""
        seen: dict[int, int] = {}
        for name in os.listdir("/proc"):  # noqa: PTH208  many times a second
            if name.isdigit() and (found := _stat(int(name))) is not None:
                seen[int(name)] = found[1]
                self._meet(int(name), *found)
        for pid in [p for p, (start, _) in self._known.items() if seen.get(p) != start]:
            _, role = self._known.pop(pid)
            self._journal.note(event="death", pid=pid, role=role)
        for pid in [p for p, start in self._foreign.items() if seen.get(p) != start]:
            del self._foreign[pid]

    def _meet(self, pid: int, parent: int, start: int) -> None:
        known = self._known.get(pid)
        if known is not None and known[0] == start:
            return
        if self._foreign.get(pid) == start:
            return
        role = self._role_of(pid, parent)
        if role:
            self._known[pid] = (start, role)
            self._journal.note(event="birth", pid=pid, role=role, parent=parent)
        elif role is None:
            self._foreign[pid] = start

    def _role_of(self, pid: int, parent: int) -> str | None:
        """The role of a process: empty for one of ours without a role yet, None for a foreign one."""
        try:
            argv = Path(f"/proc/{pid}/cmdline").read_bytes()
            # A confined runner has a network of its own: a child of one of ours is ours too.
            if parent not in self._known and not self._is_ours(pid, argv):
                return None
        except OSError:
            return None
        if GUARD in argv:  # its child that waits for the flock, or is about to become a runner, is none
            return "" if self._known.get(parent, (0, ""))[1] == "guard" else "guard"
        if b"runner" in argv and b"--interval-log" in argv:
            return "runner"
        for word, role in ((b"nats-server", "nats"), (b"gateway_plugin", "gateway")):
            if word in argv:
                return role
        return "supervisor" if b"-m\0workers" in argv or b"toyworker" in argv else ""

    async def _keep(self) -> None:
        while True:
            self.scan()
            await asyncio.sleep(SCAN_S)


def carries(mark: str) -> Callable[[int, bytes], bool]:
    """Whether ``mark`` stands on a process's command line or in its environment."""
    text = mark.encode()
    return lambda pid, argv: text in argv or text in Path(f"/proc/{pid}/environ").read_bytes()


def _stat(pid: int) -> tuple[int, int] | None:
    """``(parent, start time in ticks)`` of a process that lives."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:  # noqa: PTH123  many times a second
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return None
    return None if fields[0] in {b"Z", b"X"} else (int(fields[1]), int(fields[19]))
