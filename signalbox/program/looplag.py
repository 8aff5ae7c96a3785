"""Watches an event loop: how late it runs, and the end of a process whose loop has stopped turning.

A blocked loop answers no heartbeat and no caller, and nothing inside the loop can notice. So a thread
counts: the loop beats a few times a second, and after ``abort_s`` of the thread's own turns without a
beat it writes every thread's stack to standard error and aborts the process. A worker's guard then ends
its runner; a gateway is started again by its service manager. Programs that nobody waits for in seconds
are not aborted: after :data:`DEAD_S` they are not alive (:mod:`signalbox.program.health`).

The thread counts its turns and reads no clock: a process that was stopped and continued, or a machine
that slept, is not blocked. Code that never lets go of the interpreter lock stops this thread too; in a
worker the guard's deadline ends that.
"""

import asyncio
import faulthandler
import os
import sys
import threading
from collections.abc import Callable
from typing import Final, Self

from signalbox.program import health, log, metrics

WARN_S: Final = 0.5
"""A beat that is late by so many seconds is logged."""
ABORT_S: Final = 5.0
"""Seconds without a turn of the loop after which the process is aborted."""
PERIOD_S: Final = 0.25
DEAD_S: Final = 30.0
"""Seconds without a turn of the loop after which the process is not alive."""

_STILL: Final = "The event loop has not turned for {:.0f} s. Start the program again."

LAG: Final = metrics.histogram("loop_lag_seconds", "How late the event loop came to its beat, four times a second.")
STALLS: Final = metrics.counter("loop_stalls", f"Beats more than {WARN_S:g} s late.")


def _abort() -> None:
    faulthandler.dump_traceback(file=sys.stderr, all_threads=True)
    os.abort()


class LoopWatch:
    """Watches the running loop from :meth:`start` to :meth:`stop`.

    abort_s: None = it is never aborted. on_stall: called in the watching thread.
    """

    def __init__(
        self,
        *,
        warn_s: float = WARN_S,
        abort_s: float | None = ABORT_S,
        period_s: float = PERIOD_S,
        dead_s: float = DEAD_S,
        on_stall: Callable[[], None] = _abort,
    ) -> None:
        self._warn_s = warn_s
        self._turns = max(2, round(abort_s / period_s)) if abort_s is not None else None
        self._period_s = period_s
        self._dead_s = dead_s
        self._still_s = 0.0
        self._on_stall = on_stall
        self._loop = asyncio.get_running_loop()
        self._beats = 0
        self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="loop watch", daemon=True)

    def start(self) -> Self:
        """Begin. Call once, in the loop to be watched."""
        self._due_s = self._loop.time()
        self._beat()
        self._thread.start()
        health.ALIVE.add(self)
        return self

    def faults(self) -> list[str]:
        """That the loop does not turn, see :mod:`signalbox.program.health`."""
        still_s = self._still_s
        return [_STILL.format(still_s)] if still_s >= self._dead_s else []

    def stop(self) -> None:
        """Watch no more. Idempotent."""
        health.ALIVE.remove(self)
        self._ended.set()
        if self._timer is not None:
            self._timer.cancel()

    def _beat(self) -> None:
        late_s = max(0.0, self._loop.time() - self._due_s)
        LAG.observe(late_s)
        if late_s > self._warn_s:
            STALLS.inc()
            log.warning("loop.late", seconds=round(late_s, 3))
        self._beats += 1
        self._due_s = self._loop.time() + self._period_s
        self._timer = self._loop.call_at(self._due_s, self._beat)

    def _watch(self) -> None:
        seen, turns = -1, 0
        while not self._ended.wait(self._period_s):
            if seen != self._beats:
                seen, turns, self._still_s = self._beats, 0, 0.0
                continue
            turns += 1
            self._still_s = turns * self._period_s
            if turns == self._turns:
                self._on_stall()
                return
