"""``signalbox up`` as a newcomer runs it: a process of its own, what it prints, and that nothing outlives it."""

import json
import os
import queue
import re
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from benchmarks.rig.processes import descendants, title

ROOT: Final = Path(__file__).resolve().parents[2]
START_S: Final = 600.0
END_S: Final = 40.0
EDGE: Final = ("up", "--ports", "any", "--front", "edge")


class Up:
    """A running ``signalbox up``, or another command that starts a stack, and what it has printed."""

    def __init__(
        self,
        data: Path,
        *command: str,
        program: str = "signalbox",
        python: Path = Path(sys.executable),
        folder: Path = ROOT,
        env: Mapping[str, str] | None = None,
    ) -> None:
        self.data = data
        self.printed: list[str] = []
        argv = [str(python), "-m", program, *(command or EDGE)]
        self.process = subprocess.Popen(
            [*argv, "--data", str(data)],
            cwd=folder,
            env={**os.environ, "SIGNALBOX_LOG_LEVEL": "DEBUG", **(env or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, name="up's output")
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self._lines.put(line)
        self._lines.put("")

    def wait_for_line(self, pattern: str) -> re.Match[str]:
        """The next line printed that matches; fails after the time a start may take."""
        deadline = time.monotonic() + START_S
        while True:
            try:
                line = self._lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = ""
            assert line, f"no line like {pattern!r} in:\n{''.join(self.printed)}"
            self.printed.append(line)
            if found := re.search(pattern, line):
                return found

    def wait_until_up(self) -> dict[str, Any]:
        self.wait_for_line(r"Ctrl-C stops everything")
        doc: dict[str, Any] = json.loads((self.data / "up.json").read_text())
        return doc

    def everything(self) -> dict[int, str]:
        """Every process of the stack, itself included, by pid."""
        return {pid: title(pid) for pid in [self.process.pid, *descendants(self.process.pid)]}

    def end(self, number: signal.Signals) -> int:
        self.process.send_signal(number)
        status = self.process.wait(END_S)
        self._reader.join(END_S)
        while line := self._lines.get(timeout=END_S):
            self.printed.append(line)
        return status


def wait_until_gone(pids: dict[int, str]) -> None:
    """Fails naming the processes that outlive ``END_S``."""
    deadline = time.monotonic() + END_S
    for pid, what in pids.items():
        try:
            watch = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        try:
            gone, _, _ = select.select([watch], [], [], max(0.0, deadline - time.monotonic()))
        finally:
            os.close(watch)
        assert gone, f"still there: {pid} {what}"
