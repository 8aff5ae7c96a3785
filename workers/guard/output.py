"""Reads what guard and runner print: bounded, and kept out of the worker's log.

Both write to one pipe that only the supervisor reads. A model may print its inputs, so lines are not
logged as they come: only the last ones, when a runner ends on its own, as they say why. A runner that
prints without end is a flood: it is reported once, and the supervisor ends the runner.
"""

import asyncio
import os
from collections import deque
from collections.abc import Callable
from typing import Final

BURST_BYTES: Final = 1 << 20
REFILL_BYTES_S: Final = 64 << 10
LINES: Final = 20
LINE_CHARACTERS: Final = 500
_READ_BYTES: Final = 1 << 16


class RunnerOutput:
    """One pipe. ``fd`` is the end to write to, closed by :meth:`given` once a process has it.

    on_flood: called when a runner has written more than it may. clock: monotonic seconds.
    """

    def __init__(self, on_flood: Callable[[], None], clock: Callable[[], float]) -> None:
        self._fd, self.fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(self.fd, True)
        self._on_flood, self._clock = on_flood, clock
        self._left, self._at_s = float(BURST_BYTES), clock()
        self._lines: deque[str] = deque(maxlen=LINES)
        self._rest = b""
        self._is_flooded = False
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._fd, self._on_readable)

    def given(self) -> None:
        """Close this process's end to write to, once another process has it."""
        os.close(self.fd)

    def last_lines(self) -> list[str]:
        """The last lines since they were asked for; a new runner starts with a full allowance."""
        self._on_readable()
        lines = [*self._lines, *([_text(self._rest)] if self._rest else [])]
        self._lines.clear()
        self._rest = b""
        self._left, self._is_flooded = float(BURST_BYTES), False
        return lines[-LINES:]

    def close(self) -> None:
        """Stop reading. Idempotent."""
        if self._fd >= 0:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _on_readable(self) -> None:
        """Read what there is, but no more than the pipe holds: other tasks need the loop."""
        if self._fd < 0:
            return
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return
        if not data:
            self.close()
            return
        now = self._clock()
        self._left = min(BURST_BYTES, self._left + (now - self._at_s) * REFILL_BYTES_S) - len(data)
        self._at_s = now
        *lines, rest = (self._rest + data).split(b"\n")
        self._rest = rest[-LINE_CHARACTERS:]
        self._lines.extend(_text(line) for line in lines[-LINES:])
        if self._left < 0 and not self._is_flooded:
            self._is_flooded = True
            self._on_flood()


def _text(line: bytes) -> str:
    return line[:LINE_CHARACTERS].decode(errors="replace")
